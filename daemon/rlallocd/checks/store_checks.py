"""Checks of the store: can it be read, can each of its users write it, is there room."""

import contextlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from rlalloc.config import Config
from rlalloc.errors import StoreError, StoreMissing
from rlalloc.store import Store
from rlalloc.store.database import file_of
from rlalloc.system.shared_files import SHARED_MODE
from rlallocd.checks.file_access import ids_of, may_write
from rlallocd.checks.finding import Finding, failure, good, unchecked, warning

_LITTLE_BYTES: Final = 1 << 30
_TOO_LITTLE_BYTES: Final = 64 << 20
_TOO_LITTLE_IN_MEMORY_BYTES: Final = 4 << 20


def store_findings(config: Config, users: Sequence[str]) -> list[Finding]:
    """All checks; ``users`` are the login names that have to be able to write the store."""
    found = [_readable(config)]
    try:
        url = sa.make_url(config.store.url)
    except sa.exc.ArgumentError:  # as the first finding says
        return found
    if url.get_backend_name() != "sqlite" or not url.database or not Path(url.database).exists():
        return found
    path = Path(url.database)
    return [*found, *_writable(path, users)]


def disk_findings(config: Config) -> list[Finding]:
    """How much room there is where rlalloc writes, a line for each file system."""
    wanted = [
        config.policy.directory,
        config.store.key_file.parent,
        config.runtime_directory,
        *((store.parent,) if (store := file_of(config.store.url)) is not None else ()),
    ]
    found: dict[int, Path] = {}
    for directory in reversed(wanted):
        with contextlib.suppress(OSError):
            found.setdefault(directory.stat().st_dev, directory)
    return [_room(directory, volatile=directory == config.runtime_directory) for directory in found.values()]


def _readable(config: Config) -> Finding:
    try:
        store = Store(config.store.url, read_only=True, skip_unreadable=True)
    except StoreMissing as err:
        return failure("store", str(err), "systemctl start rlallocd")
    except StoreError as err:
        return failure("store", str(err), "journalctl -u rlallocd")
    try:
        latest = store.recent_decisions(1)
        return good("store", "readable" if latest else "readable, no decision yet")
    except StoreError as err:
        return failure("store", str(err), "journalctl -u rlallocd")
    finally:
        store.close()


def _writable(path: Path, users: Sequence[str]) -> list[Finding]:
    """Whether each user may write the file, what SQLite keeps beside it, and the directory for that."""
    files = [path, *(each for ending in ("-wal", "-shm") if (each := Path(f"{path}{ending}")).exists())]
    found = []
    for user in users:
        try:
            uid, groups = ids_of(user, "rlalloc")
        except KeyError:
            found.append(unchecked(f"store for {user}", "there is no such user here", "scripts/install-site.sh"))
            continue
        closed = [str(each) for each in (*files, path.parent) if not may_write(each, uid, groups)]
        if closed:
            remedy = f"restart rlallocd, which mends it; or chmod {SHARED_MODE:o} and chgrp rlalloc {path}*"
            found.append(failure(f"store for {user}", f"cannot write {', '.join(closed)}", remedy))
        else:
            found.append(good(f"store for {user}", "writable"))
    return found


def _room(directory: Path, *, volatile: bool) -> Finding:
    """``volatile``: in memory, where little is written and file systems are small."""
    free = shutil.disk_usage(directory).free
    text = f"{free / (1 << 30):.1f} GiB free in {directory}"
    system = os.statvfs(directory)
    if system.f_files and not system.f_favail:
        return failure(
            "disk", f"no inodes are left for files in {directory}", "remove files: df --inodes shows how many"
        )
    if system.f_flag & os.ST_RDONLY:
        return failure(
            "disk", f"{directory} is on a read-only file system", "mount -o remount,rw, then restart rlallocd"
        )
    if free < (_TOO_LITTLE_IN_MEMORY_BYTES if volatile else _TOO_LITTLE_BYTES):
        return failure("disk", text, "free disk space: rlallocd decides nothing without it")
    if free < _LITTLE_BYTES and not volatile:
        return warning("disk", text, "free disk space")
    return good("disk", text)
