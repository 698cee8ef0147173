"""Commands that root types, and whose files another user has to be able to change: they run as that user.

Whoever may write in such a directory could lead root's hand, by a link, to any file of the machine.
"""

import os
import pwd
import sys
from pathlib import Path
from typing import Final

from rlalloc.system.shared_files import others_can_replace

_UMASK: Final = 0o007
"""As in the units: what is written is the group's, too."""
_STARTED_BY: Final = "RLALLOC_STARTED_BY"
_ROOTS_OWN: Final = ("XDG_CACHE_HOME", "NUMBA_CACHE_DIR")
_CACHE: Final = Path("/var/cache/rlalloc")
"""The trainer's: numba keeps there what it has compiled, and executes what it finds there."""


def run_as_owner_of(directory: Path) -> None:
    """As root, run this program again as owner and group of ``directory``; as anybody else, do nothing.

    It does not return then. Without it, what root once trained by hand could not be changed by the nightly training.
    """
    who = _owner(directory)
    if who is None:
        return
    started_by = login_name()
    _become(*who, directory)
    environment = {name: value for name, value in os.environ.items() if name not in _ROOTS_OWN}
    if others_can_replace(_CACHE) is None and os.access(_CACHE, os.W_OK):
        environment["XDG_CACHE_HOME"] = str(_CACHE)
    environment[_STARTED_BY] = started_by
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)  # noqa: S606


def become_owner_of(directory: Path) -> None:
    """As root, go on as owner and group of ``directory``, with what is open; as anybody else, do nothing."""
    who = _owner(directory)
    if who is not None:
        _become(*who, directory)


def login_name() -> str:
    """Who sits at the keyboard: whoever became root by sudo, else the user who started this."""
    if os.geteuid() == 0 and (name := os.environ.get("SUDO_USER")):
        return name
    if os.geteuid() != 0 and (name := os.environ.get(_STARTED_BY)):
        return name
    return name_of(os.getuid())


def name_of(uid: int) -> str:
    """The name of a user, or the number where there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _owner(directory: Path) -> tuple[int, int] | None:
    """As which user and group root is to write in ``directory``; None for itself.

    It may be missing, or root's in a directory of somebody else, who could put another one, or a link, in its place.
    """
    if os.geteuid() != 0:
        return None
    nearest = directory.absolute()
    while not nearest.exists():
        nearest = nearest.parent
    found = nearest.stat()
    if found.st_uid and not nearest.is_symlink():
        return found.st_uid, found.st_gid
    uid = others_can_replace(nearest)
    return (uid, _group_of(uid)) if uid else None


def _become(uid: int, gid: int, directory: Path) -> None:
    """Drop root's rights for good."""
    try:
        owner = pwd.getpwuid(uid)
        name, home = owner.pw_name, owner.pw_dir
    except KeyError:
        name, home = str(uid), str(directory)
        os.setgroups([gid])
    else:
        os.initgroups(name, gid)
    os.setgid(gid)
    os.setuid(uid)
    os.umask(_UMASK)
    if not os.access(".", os.R_OK | os.X_OK):  # such as /root
        os.chdir("/")
    os.environ |= {"HOME": home, "USER": name, "LOGNAME": name}


def _group_of(uid: int) -> int:
    try:
        return pwd.getpwuid(uid).pw_gid
    except KeyError:
        return uid
