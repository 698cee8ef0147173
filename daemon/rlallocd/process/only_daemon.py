"""The lock by which one rlallocd at a time works in a runtime directory.

Two of them would decide the same jobs and send updates for each other's. The kernel takes the lock back with its
process, however that ends.
"""

import fcntl
import os
from pathlib import Path
from typing import Final

from rlallocd.submissions.intercept import RuntimeDirectoryError

LOCK_FILE: Final = "rlallocd.lock"
_PID_BYTES: Final = 20


class AnotherDaemonError(RuntimeDirectoryError):
    """Another rlallocd has the lock."""


class OnlyDaemon:
    """Holds the lock from construction until closed. Raises AnotherDaemonError if another daemon has it."""

    def __init__(self, runtime_directory: Path) -> None:
        self._path = runtime_directory / LOCK_FILE
        self._file = _locked(self._path)

    def renew(self) -> None:
        """Lock the file again that is in its place now, if somebody has removed the old one. Raises as above."""
        if not _is_there(self._path, self._file):
            renewed = _locked(self._path)
            os.close(self._file)
            self._file = renewed

    def close(self) -> None:
        """Give the lock up, and leave nothing that a daemon of another user could not open."""
        if _is_there(self._path, self._file):
            self._path.unlink()
        os.close(self._file)


def _locked(path: Path) -> int:
    """The file, open and locked, with our process id in it. Raises RuntimeDirectoryError."""
    try:
        # Nobody else may open it: who can read a file can lock it.
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except PermissionError as err:
        raise RuntimeDirectoryError(
            f"cannot lock {path}: it belongs to another user; if no rlallocd runs, remove it"
        ) from err
    except OSError as err:
        raise RuntimeDirectoryError(f"cannot lock {path}: {err.strerror or err}") from err
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError as err:
        pid = os.pread(file, _PID_BYTES, 0).decode(errors="replace").strip()
        os.close(file)
        raise AnotherDaemonError(
            f"another rlallocd (process {pid}) works in {path.parent}: stop it first (systemctl stop rlallocd)"
        ) from err
    except OSError as err:
        os.close(file)
        raise RuntimeDirectoryError(f"cannot lock {path}: {err.strerror or err}") from err
    if not _is_there(path, file):  # the one that had it ended just now
        os.close(file)
        return _locked(path)
    return file


def _is_there(path: Path, file: int) -> bool:
    """Whether ``path`` still leads to the open file."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(file))
    except OSError:
        return False
