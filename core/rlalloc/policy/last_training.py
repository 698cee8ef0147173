"""What the last ``rlalloc train run`` came to, beside the policies: for ``rlalloc status`` and ``rlalloc doctor``.

A training that runs holds a lock, in whose file it has written when it began: one that was killed leaves that behind.
One that is told to stop (SIGTERM, or SIGINT at a terminal) notes that: it has not failed.
"""

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Final

import msgspec

from rlalloc.errors import RlallocError
from rlalloc.system.shared_files import (
    SHARED_MODE,
    lock_file,
    mend_shared,
    open_shared,
    read_regular_file,
    replace_file,
)

FILE: Final = "last_training.json"
LOCK_FILE: Final = "training.lock"
_LOCK_WITHIN_S: Final = 5.0
"""A check of whether a training runs holds the lock for a moment."""
_KILLED: Final = "it was killed before it ended: by a time limit, for want of memory, or with the machine"


class LastTraining(msgspec.Struct, frozen=True, kw_only=True):
    """``verdict`` is the command's last word; ``failed`` where it ended with an error, or was killed.

    ``succeeded_s`` is when a training last ended without an error, None where none ever did. ``stopped_s`` is when a
    later one was told to stop, by systemd for example; where none had ended before, ``ended_s`` is 0.
    """

    ended_s: float
    failed: bool
    promoted: bool
    verdict: str
    succeeded_s: float | None
    stopped_s: float | None = None

    @property
    def noted_s(self) -> float:
        """When the last training ended or was stopped."""
        return max(self.ended_s, self.stopped_s or 0.0)


class TrainingRuns(RlallocError):
    """Another training runs."""


@contextlib.contextmanager
def running_training(directory: Path) -> Iterator[None]:
    """Be the one training that runs; note when it began, and if it is told to stop. Raises TrainingRuns.

    Call it in the main thread: only there can a signal handler be set.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = open_shared(directory / LOCK_FILE, os.O_RDWR)
    except OSError:  # what the training is to write there fails, too, and says why
        yield
        return
    try:
        if not lock_file(file, _LOCK_WITHIN_S):
            raise TrainingRuns("another training runs: wait for its end, or stop it")
        with contextlib.suppress(OSError):
            os.ftruncate(file, 0)
            os.pwrite(file, f"{time.time()}\n".encode(), 0)
        with _stop_is_noted(directory):
            yield
    finally:
        os.close(file)


@contextlib.contextmanager
def _stop_is_noted(directory: Path) -> Iterator[None]:
    """Note a SIGTERM, and die from it, or a SIGINT. After the training has noted its end, neither changes a note."""
    process, began_s = os.getpid(), time.time()

    def stop(number: int, _: FrameType | None) -> None:
        if os.getpid() == process:  # not in a process that it has forked
            _note_stop(directory, began_s)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt:
        _note_stop(directory, began_s)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def _note_stop(directory: Path, began_s: float) -> None:
    before = _noted(directory)
    if before is None:
        before = LastTraining(ended_s=0.0, failed=False, promoted=False, verdict="", succeeded_s=None)
    if before.ended_s < began_s:
        _write(directory, msgspec.structs.replace(before, stopped_s=time.time()))


def note_training(directory: Path, verdict: str, *, failed: bool, promoted: bool = False) -> None:
    """Note how a training ended. A note that cannot be written is left out: the journal has it, too."""
    now_s = time.time()
    before = _noted(directory)
    succeeded_s = now_s if not failed else before.succeeded_s if before is not None else None
    note = LastTraining(ended_s=now_s, failed=failed, promoted=promoted, verdict=verdict, succeeded_s=succeeded_s)
    _write(directory, note)


def _write(directory: Path, note: LastTraining) -> None:
    with contextlib.suppress(OSError):
        directory.mkdir(parents=True, exist_ok=True)
        replace_file(directory / FILE, msgspec.json.encode(note), SHARED_MODE)
        mend_shared(directory / FILE)


def read_last_training(directory: Path) -> LastTraining | None:
    """What the last training that runs no more came to; None where there was none, or that cannot be read."""
    noted, began_s = _noted(directory), _began_and_runs_no_more_s(directory)
    if began_s is None or (noted is not None and noted.noted_s >= began_s):
        return noted
    succeeded_s = noted.succeeded_s if noted is not None else None
    return LastTraining(ended_s=began_s, failed=True, promoted=False, verdict=_KILLED, succeeded_s=succeeded_s)


def _noted(directory: Path) -> LastTraining | None:
    try:
        return msgspec.json.decode(read_regular_file(directory / FILE), type=LastTraining)
    except (OSError, msgspec.DecodeError):
        return None


def _began_and_runs_no_more_s(directory: Path) -> float | None:
    """When the last training began, unless it still runs."""
    path = directory / LOCK_FILE
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return float(read_regular_file(path)) if lock_file(file, kind=fcntl.LOCK_SH) else None
    except (OSError, ValueError):
        return None
    finally:
        os.close(file)
