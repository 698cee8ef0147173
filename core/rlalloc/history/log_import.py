"""Bringing a log of ended jobs into the store: in batches, each with how far the log has been read."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final, Literal

import msgspec

from rlalloc.errors import HistoryError
from rlalloc.history.log_lines import LogLines, ReadTally
from rlalloc.history.past_jobs_of_sacct import read_sacct
from rlalloc.history.past_jobs_of_swf import read_swf
from rlalloc.past_job import PastJob
from rlalloc.store import History

LogFormat = Literal["sacct", "swf"]
READERS: Final = {"sacct": read_sacct, "swf": read_swf}
_BATCH: Final = 5000
_HEAD: Final = 1 << 16
"""Bytes by which a file is known again, beside its size and its time."""


class Imported(msgspec.Struct):
    """What an import has done so far: jobs read, those of them that are new, and those too old to be kept."""

    read: int = 0
    added: int = 0
    too_old: int = 0
    tally: ReadTally = msgspec.field(default_factory=ReadTally)

    def describe(self) -> str:
        """All of it in one line."""
        parts = [f"{self.read} past jobs read", f"{self.added} of them new"]
        if self.too_old:
            parts.append(f"{self.too_old} left out that ended before store.keep_history_days")
        if left_out := self.tally.describe():
            parts.append(f"besides: {left_out}")
        return ", ".join(parts)


class Importer:
    """Adds past jobs to the store, after ``restore`` and ``disguise``; not those that ended before ``kept_from_s``.

    ``restore`` gives those that rlalloc resized the sizes that their users asked for (``as_requested``).
    """

    def __init__(
        self,
        history: History,
        *,
        kept_from_s: float,
        disguise: Callable[[PastJob], PastJob],
        restore: Callable[[Sequence[PastJob]], Sequence[PastJob]] = lambda jobs: jobs,
    ) -> None:
        self.done = Imported()
        self._restore = restore
        self._history = history
        self._kept_from_s = kept_from_s
        self._disguise = disguise

    def add_file(self, file: BinaryIO, log_format: LogFormat, progress: Callable[[int], None]) -> None:
        """Add an open file's jobs, from where an earlier import stopped; ``progress`` hears how far it is, in bytes.

        Raises HistoryError, StoreError.
        """
        source = f"{log_format} {_identity(file)}"
        lines = LogLines(file)
        resume_at = int(self._history.position(source) or 0)
        progress(resume_at)
        jobs = READERS[log_format](lines, self.done.tally, resume_at)
        while True:
            some = list(islice(jobs, _BATCH))
            self.add(some, {source: lines.start})
            progress(lines.start)
            if not some:
                break
        if not self.done.read and not resume_at and self.done.tally.unreadable:
            raise HistoryError(f"not one line is of the format {log_format}: {self.done.tally.describe()}")

    def add(self, jobs: Sequence[PastJob], positions: Mapping[str, float]) -> None:
        """Add some jobs, and how far their sources have then been read. Raises StoreError."""
        recent = [job for job in jobs if job.ended_s >= self._kept_from_s]
        kept = [self._disguise(job) for job in self._restore(recent)]
        self.done.added += self._history.add(kept, positions)
        self.done.read += len(jobs)
        self.done.too_old += len(jobs) - len(kept)


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A log, open for reading. Raises HistoryError where it cannot be read."""
    try:
        with path.open("rb") as file:
            yield file
    except OSError as err:
        raise HistoryError(f"{path}: {err.strerror or err}; name a file that sacct wrote, or an SWF log") from err


def _identity(file: BinaryIO) -> str:
    """What is the same when the same file is opened again, and changes when it is written anew."""
    found = os.fstat(file.fileno())
    head = file.read(_HEAD)
    file.seek(0)
    return blake2b(b"%d %d " % (found.st_size, found.st_mtime_ns) + head, digest_size=16).hexdigest()


def read_file(path: Path, log_format: LogFormat, tally: ReadTally) -> Iterator[PastJob]:
    """Read a log's jobs without a store, in its own order. Raises HistoryError."""
    with opened(path) as file:
        yield from READERS[log_format](LogLines(file), tally)
