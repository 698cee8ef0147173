"""All jobs of the site that ended in some span of time, from sacct."""

import secrets
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from rlalloc.history import COLUMNS, LogLines, ReadTally, read_sacct
from rlalloc.past_job import ENDED_STATES, PastJob
from rlallocd.slurm.sacct_windows import moment
from rlallocd.slurm.slurm_commands import Commands
from rlallocd.slurm.slurm_errors import SlurmUnavailable

_DELIMITER: Final = "\x1f"
_SHORTEST_S: Final = 600.0
FIRST_SPAN_S: Final = 3600.0
_LONGEST_S: Final = 86400.0
_FEW_CHARACTERS: Final = 2**21
_MANY_CHARACTERS: Final = 2**24
MOST_BYTES: Final = 2**23
"""The largest answer that a thread beside the loop reads: about seven thousand jobs."""


class EndedJobs(NamedTuple):
    """The jobs that ended until ``until_s``, and how much sacct printed of them."""

    jobs: tuple[PastJob, ...]
    until_s: float
    characters: int


def ended_jobs(
    commands: Commands, since_s: float, until_s: float, tally: ReadTally, most_bytes: int | None = None
) -> EndedJobs:
    """All jobs that ended from ``since_s`` to ``until_s``, in one call. Raises SlurmError.

    Where sacct prints more than ``most_bytes``, this raises AnswerTooLong, unless the span cannot be shorter.

    With states that are ends, sacct takes the times for those of the end (man sacct, --state). A job's name may hold
    any bytes: the delimiter is one that its user cannot know, so no name makes a row of somebody else's job.
    """
    delimiter = f"@{secrets.token_hex(4)}@"
    run = commands.run
    if most_bytes is not None and until_s - since_s > _SHORTEST_S:
        run = partial(commands.run_up_to, most_bytes)
    text = run(
        "sacct",
        *("--allusers", "--duplicates", "--parsable2", "--noconvert"),
        *(f"--delimiter={delimiter}", f"--format={','.join(COLUMNS)}", f"--state={','.join(sorted(ENDED_STATES))}"),
        *(f"--starttime={moment(since_s)}", f"--endtime={moment(until_s)}"),
    )
    text = text.replace(_DELIMITER, "_").replace(delimiter, _DELIMITER)
    return EndedJobs(tuple(read_sacct(LogLines.of_text(_one_line_each(text)), tally)), until_s, len(text))


def _one_line_each(text: str) -> str:
    """The rows with a blank for each line end in a job's name."""
    rows, parts, delimiters = [], [], 0
    for line in text.split("\n"):
        parts.append(line)
        delimiters += line.count(_DELIMITER)
        if delimiters == 0 or delimiters >= len(COLUMNS) - 1:
            rows.append(" ".join(parts))
            parts, delimiters = [], 0
    return "\n".join((*rows, *parts))


def in_spans(ask: Callable[[float, float], EndedJobs], since_s: float, until_s: float) -> Iterator[EndedJobs]:
    """Ask for all that ended from ``since_s`` to ``until_s`` in spans that sacct answers in time and memory holds.

    Spans are a day, and shorter where many jobs ended. Raises SlurmError if sacct does not answer for the shortest.
    """
    span_s = FIRST_SPAN_S
    while since_s < until_s:
        try:
            found = ask(since_s, min(until_s, since_s + span_s))
        except SlurmUnavailable:
            if span_s <= _SHORTEST_S:
                raise
            span_s = shorter_span_s(span_s)
            continue
        yield found
        since_s = found.until_s
        span_s = next_span_s(span_s, found.characters)


def shorter_span_s(span_s: float) -> float:
    """How long a span to ask for after sacct gave no answer for one of ``span_s``."""
    return max(_SHORTEST_S, span_s / 4)


def next_span_s(span_s: float, characters: int) -> float:
    """How long a span to ask for after one of ``span_s``, of which sacct printed so many characters."""
    if characters > _MANY_CHARACTERS:
        return max(_SHORTEST_S, span_s / 2)
    return min(_LONGEST_S, span_s * 2) if characters < _FEW_CHARACTERS else span_s
