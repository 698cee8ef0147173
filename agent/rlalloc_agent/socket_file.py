"""The file of an ipc endpoint: whether it is ours, who else listens there, and what lies in its place.

ZeroMQ removes whatever it may remove before it binds, also the socket of an agent that runs; and it leaves its own.
"""

import contextlib
import errno
import os
import pwd
import socket
import stat
from pathlib import Path
from typing import Final

import zmq

_KINDS: Final = ((stat.S_ISDIR, "a directory"), (stat.S_ISLNK, "a link"), (stat.S_ISSOCK, "a socket"))
_ANSWERS_WITHIN_S: Final = 1.0


class SocketFile:
    """The file at ``endpoint``; there is none for TCP."""

    def __init__(self, endpoint: str) -> None:
        scheme, _, path = endpoint.partition("://")
        self.path = Path(path) if scheme == "ipc" else None
        self._ours: tuple[int, int] | None = None

    def bind(self, bound: "zmq.Socket[bytes]", endpoint: str) -> None:
        """Bind a socket there, and remember its file. Raises zmq.ZMQError, also where another program listens."""
        if self.path is None:
            bound.bind(endpoint)
            return
        if _somebody_listens(self.path):
            said = f"another program listens at {self.path}: stop it first (systemctl stop rlalloc-agent)"
            raise zmq.ZMQError(errno.EADDRINUSE, said)
        try:
            bound.bind(endpoint)
        except zmq.ZMQError as err:
            if os.path.lexists(self.path):
                raise zmq.ZMQError(err.errno, f"{self.path} is {_what_lies(self.path)}: remove it") from err
            raise
        self._ours = _identity(self.path)

    @property
    def is_lost(self) -> bool:
        """Whether clients do not find us any more: the file was removed, or another one put in its place."""
        return self.path is not None and _identity(self.path) != self._ours

    def remove(self) -> None:
        """Remove the file, if it is still ours: who starts next may be another user, who could not."""
        if self.path is not None and self._ours is not None and not self.is_lost:
            with contextlib.suppress(OSError):
                self.path.unlink()


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _somebody_listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_ANSWERS_WITHIN_S)
        try:
            probe.connect(str(path))
        except (TimeoutError, BlockingIOError):  # its queue is full
            return True
        except OSError:
            return False
    return True


def _what_lies(path: Path) -> str:
    """What is there, and whose it is."""
    try:
        found = path.lstat()
    except OSError as err:
        return err.strerror or str(err)
    kind = next((name for is_kind, name in _KINDS if is_kind(found.st_mode)), "a file")
    try:
        return f"{kind} of {pwd.getpwuid(found.st_uid).pw_name}"
    except KeyError:
        return f"{kind} of the user {found.st_uid}"
