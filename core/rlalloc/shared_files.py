"""Files that several programs write, which run as different users of one group.

Whoever comes first makes such a file, under whatever umask; the others have to be able to write it all the same.
"""

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import Final

SHARED_MODE: Final = 0o660


def make_shared(path: Path) -> None:
    """Make ``path`` where it is missing; owner and group of its directory may write it, others not even read.

    An existing file of a wrong mode or group is mended if this process may. Where the directory is not its group's
    to write, nothing is shared, and nothing done. Raises OSError where the file cannot be made.
    """
    directory = path.parent.stat()
    if not directory.st_mode & stat.S_IWGRP:
        return
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, SHARED_MODE)
    except FileExistsError:
        mend_shared(path)
        return
    try:
        _share(file, directory)
    finally:
        os.close(file)


def replace_file(path: Path, content: bytes, mode: int) -> None:
    """Write a file anew, whole or not at all; nothing that somebody else put there is written to. Raises OSError.

    The directory may be others' to write, too: a link in the place of the new file could lead anywhere.
    """
    aside = path.with_name(f"{path.name}.new")
    aside.unlink(missing_ok=True)
    file = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with os.fdopen(file, "wb") as writable:
        os.fchmod(file, mode)  # whatever the umask
        writable.write(content)
    aside.replace(path)


def read_regular_file(path: Path, *, private: bool = False) -> bytes:
    """What is in a file in a folder that others may write in. Raises OSError, also for a link or a pipe.

    With ``private`` also for a file of another user, and for one that others may read or write.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
        found = os.fstat(stream.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if private and (found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077):
            raise OSError(errno.EPERM, "others may read it, or it belongs to another user", str(path))
        return stream.read()


def mend_shared(path: Path) -> None:
    """Give an existing file the group of its directory, and a mode in which that may write it, if we may."""
    directory = path.parent.stat()
    if not directory.st_mode & stat.S_IWGRP:
        return
    with contextlib.suppress(OSError):  # missing, or another user's: the first writer that may does it
        # O_PATH: closing any other descriptor of the file would release the locks that SQLite has on it.
        file = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            found = os.fstat(file)
            if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
                _share(file, directory)
        finally:
            os.close(file)


def _share(file: int, directory: os.stat_result) -> None:
    """Set group and mode of an open file; root hands it to the owner of the directory, too."""
    path = Path(f"/proc/self/fd/{file}")
    found = path.stat()
    owner = directory.st_uid if os.geteuid() == 0 else -1
    if found.st_gid != directory.st_gid or owner not in (-1, found.st_uid):
        with contextlib.suppress(PermissionError):  # we are not in that group
            os.chown(path, owner, directory.st_gid)
    if stat.S_IMODE(found.st_mode) != SHARED_MODE:
        path.chmod(SHARED_MODE)
