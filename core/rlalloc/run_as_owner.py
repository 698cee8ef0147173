"""Commands that root types, and whose files another user has to be able to change: they run as that user."""

import os
import pwd
import sys
from pathlib import Path
from typing import Final

_UMASK: Final = 0o007
"""As in the units: what is written is the group's, too."""


def run_as_owner_of(directory: Path) -> None:
    """As root, run this program again as owner and group of ``directory``; as anybody else, do nothing.

    It does not return then. Without it, what root once trained by hand could not be changed by the nightly training.
    """
    if os.geteuid() != 0:
        return
    try:
        found = directory.stat()
    except OSError:  # nobody's yet: whoever makes it owns it
        return
    if found.st_uid == 0:
        return
    try:
        owner = pwd.getpwuid(found.st_uid)
        name, home = owner.pw_name, owner.pw_dir
    except KeyError:
        name, home = str(found.st_uid), str(directory)
        os.setgroups([found.st_gid])
    else:
        os.initgroups(name, found.st_gid)
    os.setgid(found.st_gid)
    os.setuid(found.st_uid)
    os.umask(_UMASK)
    if not os.access(".", os.R_OK | os.X_OK):  # such as /root
        os.chdir("/")
    environment = os.environ | {"HOME": home, "USER": name, "LOGNAME": name}
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)  # noqa: S606
