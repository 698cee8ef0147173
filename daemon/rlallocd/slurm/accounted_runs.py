"""Every run of every job in a span of time, from sacct, cut at the ends of the span as ``sacct --truncate`` does.

A run is one record of slurmdbd: a job, a task of an array, or a component of a heterogeneous job, from a submission
or a requeue to its end. Slurm says which runs belong to a span: those eligible before its end that had not ended
before its begin (man sacct, "DEFAULT TIME WINDOW", without --state).
"""

import logging
import re
import secrets
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from rlalloc.history.sacct_rows import clock_s, state_of, whole_number, with_steps
from rlalloc.tres import gpus_of, memory_mib, parse_tres
from rlallocd.slurm.sacct_windows import Span, moment
from rlallocd.slurm.slurm_commands import Commands
from rlallocd.slurm.slurm_errors import SlurmUnavailable

_log = logging.getLogger(__name__)

_FIELDS: Final = (
    "JobID", "JobIDRaw", "User", "Account", "Partition", "QOS", "State", "ExitCode", "Submit", "Eligible", "Start",
    "End", "ElapsedRaw", "TimelimitRaw", "AllocTRES", "ReqTRES", "TotalCPU", "MaxRSS", "JobName", "Comment",
)  # fmt: skip
"""The last two are their user's, and may hold any text."""
_CUT_FIELDS: Final = "JobIDRaw,Submit,ElapsedRaw"
_JOBS_PER_CALL: Final = 500
_FIRST_SPAN_S: Final = 3600
_SHORTEST_SPAN_S: Final = 600
_FEW_CHARACTERS: Final = 2**21
_MANY_CHARACTERS: Final = 2**24
_ABOUT_S: Final = 2
"""Two calls that meet at a second may both have the runs of that second."""


class RunFilter(NamedTuple):
    """Lists as sacct takes them, empty for all; ``everybody`` asks for the jobs of all users, not of one's own."""

    users: str = ""
    accounts: str = ""
    partitions: str = ""
    everybody: bool = True

    @property
    def options(self) -> tuple[str, ...]:
        """Sacct's options."""
        wanted = (("user", self.users), ("accounts", self.accounts), ("partition", self.partitions))
        named = tuple(f"--{name}={value}" for name, value in wanted if value)
        return ("--allusers", *named) if self.everybody and not self.users else named


class AccountedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run. Times are epoch seconds, memory is in MiB of all nodes, None is not known or never came to be.

    ``name`` is the id that users see (``7``, ``7_3``, ``7_[4-9]``, ``7+1``), ``raw_id`` Slurm's own number,
    ``job_id`` the one that sbatch printed. ``elapsed_s`` is the time inside the span, without suspensions;
    ``run_s`` that of the whole run. ``tres`` and ``requested_tres`` are as sacct prints them. ``cpu_s_used`` is of
    the whole run, and so is ``max_rss_mib``, the largest peak of a task.
    """

    name: str
    raw_id: int
    job_id: int
    user: str
    account: str
    partition: str
    qos: str
    state: str
    exit_code: str
    submitted_s: int
    eligible_s: int | None
    started_s: int | None
    ended_s: int | None
    elapsed_s: int
    run_s: int
    limit_s: int | None
    tres: str
    requested_tres: str
    nodes: int
    gpus: int
    cpus: int
    mem_mib: int
    cpu_s_used: float | None
    max_rss_mib: float | None
    job_name: str
    comment: str

    @property
    def ran(self) -> bool:
        """Whether it ever held nodes: a job that was cancelled while it waited may have a start time, too."""
        return self.started_s is not None and self.tres != ""


def runs_in(commands: Commands, span: Span, wanted: RunFilter) -> Iterator[list[AccountedRun]]:
    """All runs in a span, in portions that memory holds; each run once, by its eligible time.

    Raises SlurmError if sacct does not answer for the shortest portion.
    """
    since_s, length_s = span.since_s, _FIRST_SPAN_S
    known: set[tuple[int, int]] = set()
    while since_s < span.until_s:
        until_s = min(span.until_s, since_s + length_s)
        try:
            text, delimiter = _ask(commands, Span(since_s, until_s), wanted, _FIELDS, ())
        except SlurmUnavailable:
            if length_s <= _SHORTEST_SPAN_S:
                raise
            length_s = max(_SHORTEST_SPAN_S, length_s // 4)
            continue
        runs = read_runs(text, delimiter)
        first = since_s == span.since_s
        new = [run for run in runs if _is_new(run, since_s, known, first=first)]
        known = {_key(run) for run in runs if (run.eligible_s or 0) >= until_s - _ABOUT_S}
        yield _cut(commands, span, wanted, new)
        if len(text) > _MANY_CHARACTERS:
            length_s = max(_SHORTEST_SPAN_S, length_s // 2)
        elif len(text) < _FEW_CHARACTERS:
            length_s *= 2
        since_s = until_s


def read_runs(text: str, delimiter: str) -> list[AccountedRun]:
    """Read sacct's rows of jobs and their steps; ``elapsed_s`` is that of the whole run.

    A job that cannot be read is left out, with a warning.
    """
    runs = []
    for row, steps in with_steps(_rows(text, delimiter), lambda row: row[0]):
        try:
            runs.append(_run(row, steps))
        except ValueError as err:
            _log.warning("the report leaves out job %s, which sacct does not show whole: %s", row[0][:32], err)
    return runs


def _ask(
    commands: Commands, span: Span, wanted: RunFilter, fields: Sequence[str], more: Sequence[str]
) -> tuple[str, str]:
    """What sacct prints, and the delimiter, which no user can know."""
    delimiter = f"\x1f{secrets.token_hex(8)}"
    text = commands.run(
        "sacct",
        *("--duplicates", "--noheader", "--parsable2", "--noconvert", f"--delimiter={delimiter}"),
        *(f"--format={','.join(fields)}", f"--starttime={moment(span.since_s)}", f"--endtime={moment(span.until_s)}"),
        *(*wanted.options, *more),
    )
    return text, delimiter


def _rows(text: str, delimiter: str) -> Iterator[list[str]]:
    """Rows of all columns: a name or a comment may have lines of its own."""
    row = ""
    for line in text.split("\n"):
        if not row and delimiter not in line:
            continue  # a further line of a comment
        row = f"{row}\n{line}" if row else line
        columns = row.split(delimiter)
        if len(columns) == len(_FIELDS):
            yield columns
            row = ""


def _is_new(run: AccountedRun, since_s: int, known: set[tuple[int, int]], *, first: bool) -> bool:
    return first or ((run.eligible_s or 0) >= since_s - _ABOUT_S and _key(run) not in known)


def _key(run: AccountedRun) -> tuple[int, int]:
    return run.raw_id, run.submitted_s


def _cut(commands: Commands, span: Span, wanted: RunFilter, runs: Sequence[AccountedRun]) -> list[AccountedRun]:
    """The same runs, each with the time that it had inside the span: sacct knows when a run was suspended."""
    over = [
        run
        for run in runs
        if run.ran and ((run.started_s or 0) < span.since_s or run.ended_s is None or run.ended_s > span.until_s)
    ]
    inside: dict[tuple[int, int], int] = {}
    for first in range(0, len(over), _JOBS_PER_CALL):
        ids = ",".join(str(run.raw_id) for run in over[first : first + _JOBS_PER_CALL])
        more = ("--truncate", "--allocations", f"--jobs={ids}")
        text, delimiter = _ask(commands, span, wanted, _CUT_FIELDS.split(","), more)
        for line in text.splitlines():
            raw_id, submitted_s, elapsed_s, *_ = (whole_number(value) for value in (*line.split(delimiter), "", ""))
            if raw_id is not None and submitted_s is not None and elapsed_s is not None:
                inside[raw_id, submitted_s] = elapsed_s
    return [msgspec.structs.replace(run, elapsed_s=inside.get(_key(run), run.elapsed_s)) for run in runs]


def _run(row: Sequence[str], steps: Sequence[Sequence[str]]) -> AccountedRun:
    name, raw_id, user, account, partition, qos, state, exit_code = row[:8]
    submit, eligible, start, end, elapsed, limit_min, tres, requested, total_cpu = row[8:17]
    job_name, comment = row[18:]
    counts = parse_tres(tres)
    own_s = clock_s(total_cpu)
    used_s = own_s or sum(clock_s(step[16]) or 0.0 for step in steps) or None
    peaks = [peak for step in steps if (peak := memory_mib(step[17])) is not None]
    return AccountedRun(
        name=name,
        raw_id=_certain(raw_id),
        job_id=_certain(re.split("[_+]", name)[0]),
        user=user,
        account=account,
        partition=partition,
        qos=qos,
        state=state_of(state) or "UNKNOWN",
        exit_code=exit_code,
        submitted_s=_certain(submit),
        eligible_s=whole_number(eligible),
        started_s=whole_number(start),
        ended_s=whole_number(end),
        elapsed_s=whole_number(elapsed) or 0,
        run_s=whole_number(elapsed) or 0,
        limit_s=None if (minutes := whole_number(limit_min)) is None else minutes * 60,
        tres=tres,
        requested_tres=requested,
        nodes=int(counts.get("node", 0)),
        gpus=gpus_of(counts),
        cpus=int(counts.get("cpu", 0)),
        mem_mib=int(counts.get("mem", 0)),
        cpu_s_used=used_s,
        max_rss_mib=max(peaks, default=None),
        job_name=job_name,
        comment=comment,
    )


def _certain(text: str) -> int:
    if (number := whole_number(text)) is None:
        raise ValueError(f"no number: {text[:32]!r}")
    return number
