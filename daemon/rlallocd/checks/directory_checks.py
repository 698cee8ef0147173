"""Whose the directories are that several users share."""

import contextlib
import grp
import stat
from pathlib import Path
from typing import Final

from rlalloc.config import Config
from rlalloc.system.run_as_owner import name_of
from rlallocd.checks.file_access import ids_of, may_write
from rlallocd.checks.finding import Finding, failure, good, unchecked

_GROUP: Final = "rlalloc"
"""Of rlalloc's units."""
_TMPFILES: Final = "systemd-tmpfiles --create rlalloc.conf"


def directory_findings(config: Config, daemon: str, trainer: str) -> list[Finding]:
    """Whether daemon, agent and trainer can write where they meet, and nobody else."""
    found = []
    for what, path, users, sticky in (
        ("runtime directory", config.runtime_directory, (daemon, trainer), True),
        ("policy directory", config.policy.directory, (trainer,), False),
    ):
        try:
            wrong = _wrong_with(path, users, sticky=sticky)
        except KeyError as err:
            found.append(unchecked(what, f"not checked: no such user here: {err}", "scripts/install-site.sh"))
            continue
        found.append(failure(what, f"{path}: {wrong}", _TMPFILES) if wrong else good(what, f"{path} is right"))
    return found


def _wrong_with(path: Path, users: tuple[str, ...], *, sticky: bool) -> str:
    """What is wrong with a directory that these users are to write in; an empty string for nothing.

    Raises KeyError where one of the users does not exist.
    """
    try:
        found = path.stat()
        closed = [user for user in users if not may_write(path, *_ids_of(user))]
    except OSError as err:
        return err.strerror or str(err)
    said = f"{name_of(found.st_uid)}:{_group(found.st_gid)} {stat.S_IMODE(found.st_mode):o}"
    if closed:
        return f"{said}: {', '.join(closed)} cannot write there"
    if found.st_mode & stat.S_IWOTH:
        return f"{said}: everybody can write there"
    if sticky and found.st_mode & stat.S_IWGRP and not found.st_mode & stat.S_ISVTX:
        return f"{said}: it is not sticky, so the agent could replace what slurmctld reads"
    return ""


def _ids_of(user: str) -> tuple[int, frozenset[int]]:
    with contextlib.suppress(KeyError):
        return ids_of(user, _GROUP)
    return ids_of(user)


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
