"""All sites below one root directory: names, ports and users are handed out under its lock."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .layout import Layout, Record
from .ports import choose_ports, reserved_ports
from .processes import end_processes, end_processes_of_users
from .shares import unmount_below
from .site_users import create_unix_users, created_user_ids, remove_unix_users
from .specification import NAME_PATTERN, SiteSpec
from .testbed_errors import SiteExistsError, SiteNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

REMOVAL_ATTEMPTS = 5
STARTED_BY = "SLURM_TESTBED_STARTED_BY"


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """Hold the root directory's lock."""
    root.mkdir(mode=0o755, parents=True, exist_ok=True)
    with (root / ".lock").open("w", encoding="ascii") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def claim(spec: SiteSpec, root: Path) -> tuple[Layout, Record]:
    """Reserve a site's name and ports and create its users and directories.

    Raises SiteExistsError, and what the steps raise; a step that fails leaves a half-made site,
    which `remove` removes.
    """
    layout = Layout(root / spec.name)
    with locked(root):
        try:
            layout.directory.mkdir(mode=0o755)
        except FileExistsError as error:
            raise SiteExistsError(
                f"{layout.directory} exists: a site of that name runs or has crashed. "
                f"`slurm_testbed down {spec.name}` ends it, `up --replace` replaces it, "
                "another --name runs beside it"
            ) from error
        layout.directory.chmod(0o755)
        reserved = {port for other in records(root) for port in reserved_ports(other.ports, len(other.nodes))}
        record = Record(
            name=spec.name,
            nodes=spec.node_names,
            users=spec.users,
            ports=choose_ports(len(spec.node_names), reserved),
            created=int(time.time()),
            spec=spec.summary(),
            started_by=os.environ.get(STARTED_BY, ""),
        )
        record.write(layout.record)
        create_unix_users(spec.users, root)
    layout.create(spec.users)
    return layout, record


def remove(name: str, root: Path) -> list[int]:
    """End whatever a site started, unmount what it mounted, remove its directory; returns ended pids.

    With the last site go the users that the testbed created. A site that does not exist (any
    more) is no error: what a removed one may have left running is ended all the same.
    Raises TestbedError when a process or a mount cannot be removed: then the directory stays.
    """
    if not NAME_PATTERN.fullmatch(name):
        raise SiteNotFoundError(f"{name!r} is not the name of a site, see `slurm_testbed list`")
    directory = root / name
    created = created_user_ids(root)
    ended = end_processes(directory, created)
    unmount_below(directory)
    for attempt in range(REMOVAL_ATTEMPTS):
        try:
            shutil.rmtree(directory)
        except FileNotFoundError:
            break
        except OSError:  # written to until just now
            if attempt == REMOVAL_ATTEMPTS - 1:
                raise
            time.sleep(0.2)
            ended += end_processes(directory, created)
    if root.is_dir():
        with locked(root):
            if not site_names(root):
                ended += end_processes_of_users(created_user_ids(root))
                remove_unix_users(root)
    return ended


def site_names(root: Path) -> list[str]:
    """Names of all sites below `root`, broken ones too."""
    if not root.is_dir():
        return []
    return sorted(entry.name for entry in root.iterdir() if entry.is_dir() and NAME_PATTERN.fullmatch(entry.name))


def records(root: Path) -> list[Record]:
    """The readable records of all sites below `root`."""
    found = []
    for name in site_names(root):
        try:
            found.append(Record.read(Layout(root / name).record))
        except SiteNotFoundError:
            continue
    return found
