"""Files that several programs write, which run as different users of one group.

Whoever comes first makes such a file, under whatever umask; the others have to be able to write it all the same. And
any of them may put a link, a pipe or another file in its place, while root or another user is about to open it.
"""

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

SHARED_MODE: Final = 0o660
_SAFELY: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""No link is followed, and no pipe waited for."""
_LARGEST_BYTES: Final = 1 << 28
_MOST_LINKS: Final = 40
_LOCK_AGAIN_S: Final = 0.1


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


def open_shared(path: Path, flags: int) -> int:
    """Open a file that several users write, made if it is missing (``make_shared``); the caller closes it.

    Raises OSError, also where somebody has put a link, a pipe or a file with another name in its place.
    """
    make_shared(path)
    try:
        file = os.open(path, flags | _SAFELY)
    except FileNotFoundError:  # in a directory that nobody shares
        file = os.open(path, flags | os.O_CREAT | os.O_EXCL | _SAFELY, 0o644)
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        os.close(file)
        raise OSError(errno.EINVAL, "not a regular file of one name", str(path))
    return file


def lock_file(file: int, within_s: float = 0.0, kind: int = fcntl.LOCK_EX) -> bool:
    """Lock an open file until it is closed. Returns whether that succeeded in time."""
    until_s = time.monotonic() + within_s
    while True:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until_s:
                return False
            time.sleep(_LOCK_AGAIN_S)
        else:
            return True


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


def read_regular_file(
    path: Path, *, owner: int | None = None, follow: bool = False, largest_bytes: int = _LARGEST_BYTES
) -> bytes:
    """What is in a file in a folder that others may write in. Raises OSError, also for a link or a pipe.

    With ``owner``, a uid, also for a file of another user, and for one that others may read or write. ``follow``
    allows links, for files that a person names.
    """
    flags = os.O_RDONLY | (_SAFELY & ~os.O_NOFOLLOW if follow else _SAFELY)
    with os.fdopen(os.open(path, flags), "rb") as stream:
        found = os.fstat(stream.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if owner is not None and (found.st_uid != owner or stat.S_IMODE(found.st_mode) & 0o077):
            raise OSError(errno.EPERM, "others may read it, or it belongs to another user", str(path))
        if found.st_size > largest_bytes:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
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


def hand_over(path: Path, uid: int) -> None:
    """Give an existing file to a user; a link, or a file with another name, is left alone. Raises OSError."""
    try:
        file = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        found = os.fstat(file)
        if found.st_uid != uid and found.st_nlink == 1 and not stat.S_ISLNK(found.st_mode):
            os.chown(f"/proc/self/fd/{file}", uid, -1)
    finally:
        os.close(file)


def others_can_replace(path: Path) -> int | None:
    """The owner of the first thing on the way to ``path`` that is not root's or ours alone; None if all is.

    With None, what lies at ``path`` was put there by root or us. In a sticky directory, others can only add things.
    """
    return _others_on_the_way(Path("/"), path.absolute().parts[1:], (0, os.geteuid()), 0)


def _others_on_the_way(start: Path, names: Sequence[str], trusted: Collection[int], links: int) -> int | None:
    way = start
    for number, name in enumerate(("", *names)):
        way /= name
        try:
            found = way.lstat()
        except FileNotFoundError:
            return None
        if found.st_uid not in trusted:
            return found.st_uid
        if stat.S_ISLNK(found.st_mode):
            target = (way.parent / way.readlink()).parts[1:]
            return (
                0
                if links > _MOST_LINKS
                else _others_on_the_way(Path("/"), (*target, *names[number:]), trusted, links + 1)
            )
        if found.st_mode & 0o022 and not (stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX):
            return found.st_uid
        if stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077:
            return None  # nobody else gets further
    return None


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
