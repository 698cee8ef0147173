"""Users by their numbers, and whether another one may write a file, by its mode."""

import grp
import os
import pwd
import stat
from pathlib import Path


def ids_of(user: str, *more_groups: str) -> tuple[int, frozenset[int]]:
    """The uid of a user, and its groups with some that its unit adds. Raises KeyError for an unknown name."""
    entry = pwd.getpwnam(user)
    added = (grp.getgrnam(name).gr_gid for name in more_groups)
    return entry.pw_uid, frozenset((*os.getgrouplist(user, entry.pw_gid), *added))


def may_write(path: Path, uid: int, groups: frozenset[int]) -> bool:
    """Whether a user may write a file or a directory; root may. Raises OSError where it cannot be looked at."""
    found = path.stat()
    if uid == 0:
        return True
    if found.st_uid == uid:
        return bool(found.st_mode & stat.S_IWUSR)
    if found.st_gid in groups:
        return bool(found.st_mode & stat.S_IWGRP)
    return bool(found.st_mode & stat.S_IWOTH)
