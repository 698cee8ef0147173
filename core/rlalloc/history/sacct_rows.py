"""What sacct prints: rows of a job and of its steps, and the values in their columns."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final, TypeVar

Each = TypeVar("Each")

_MOST_STEPS: Final = 100_000
"""Of one job; Slurm's own default is 40,000 (MaxStepCount). Further ones are left out."""
_CLOCK: Final = re.compile(r"(?:(\d{1,9})-)?(?:(\d{1,9}):)?(\d{1,9}):(\d{1,9}(?:\.\d{1,9})?)")
_WHOLE_NUMBER: Final = re.compile("[0-9]{1,18}")
"""Of 64 bits, with a sign."""
_FREE_TEXT: Final = ("jobname", "admincomment", "comment", "systemcomment", "workdir", "submitline")
"""Columns in which a user may write the delimiter."""


class SacctColumns:
    """The columns of a table that sacct printed with ``--parsable2``, named by its header line."""

    def __init__(self, header: str) -> None:
        self.delimiter = next((each for each in header.lstrip("\ufeff") if not each.isalnum()), "|")
        self.names = [name.strip().lower() for name in header.lstrip("\ufeff").split(self.delimiter)]
        self._places = {name: place for place, name in enumerate(self.names)}
        free = [place for place, name in enumerate(self.names) if name in _FREE_TEXT]
        self._free_text = free[0] if len(free) == 1 else None

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._places

    def split(self, line: str) -> list[str] | None:
        """The values of a line, or None if they are too few or too many.

        Where one column alone is free text, such as JobName, delimiters too many belong to it.
        """
        values = line.split(self.delimiter)
        surplus = len(values) - len(self.names)
        if surplus > 0 and self._free_text is not None:
            end = self._free_text + surplus + 1
            values[self._free_text : end] = [self.delimiter.join(values[self._free_text : end])]
        return values if len(values) == len(self.names) else None

    def reader(self, *names: str) -> Callable[[Sequence[str]], str]:
        """A function that returns the value of the first of these columns that is there and not empty."""
        places = [self._places[name.lower()] for name in names if name.lower() in self._places]
        if len(places) == 1:
            (only,) = places
            return lambda row: row[only].strip()
        return lambda row: next((value for place in places if (value := row[place].strip())), "")


def is_step(job_id: str) -> bool:
    """Whether ``7_1.batch``, ``7.extern``, ``7.0`` and not the job itself."""
    return "." in job_id


def with_steps(rows: Iterable[Each], job_id: Callable[[Each], str]) -> Iterator[tuple[Each, list[Each]]]:
    """Each job's row with those of its steps, which follow it. Steps of no job are left out.

    So are those of another job than the one before them: its row could not be read.
    """
    job: Each | None = None
    of_job = ""
    steps: list[Each] = []
    for row in rows:
        if not is_step(each_id := job_id(row)):
            if job is not None:
                yield job, steps
            job, of_job, steps = row, each_id, []
        elif len(steps) < _MOST_STEPS and each_id.partition(".")[0] == of_job:
            steps.append(row)
    if job is not None:
        yield job, steps


def state_of(text: str) -> str:
    """A state without what follows it: ``CANCELLED by 1000``."""
    return text.partition(" ")[0]


def whole_number(text: str) -> int | None:
    """A number such as epoch seconds; None for anything else, such as Unknown."""
    return int(text) if _WHOLE_NUMBER.fullmatch(text) else None


def time_s(text: str) -> float | None:
    """Seconds since the epoch, of ``SLURM_TIME_FORMAT=%s`` or of a local time; None for Unknown, None and nothing.

    Raises ValueError, OverflowError.
    """
    if text.isdecimal():
        return float(text)
    if text in ("", "Unknown", "None"):
        return None
    return datetime.fromisoformat(text).astimezone().timestamp()


def clock_s(text: str) -> float | None:
    """``1-02:03:04``, ``02:03:04`` or ``03:04.567`` in seconds; None for anything else, such as UNLIMITED."""
    match = _CLOCK.fullmatch(text)
    if match is None:
        return None
    days, hours, minutes, seconds = match.groups()
    return (int(days or 0) * 24 + int(hours or 0)) * 3600.0 + int(minutes) * 60 + float(seconds)
