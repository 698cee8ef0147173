"""Each run of a span, joined with what rlalloc decided for its job. Pure functions but for ``reported``'s reading."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final, Literal

import msgspec

from rlalloc.job import Allocation
from rlalloc.past_job import ENDED_STATES
from rlalloc.store.decided_jobs import DecidedJob
from rlalloc.store.submissions import submission_of
from rlalloc.tres import gpus_of, parse_tres
from rlalloc.usage.family_kills import Cause
from rlallocd.outcomes.ends_of_ours import GPU_MARKER, end_of_smaller
from rlallocd.slurm import AccountedRun, Span

Result = Literal["changed", "kept", "skipped", "shadow", "undone", "open", "none"]
"""changed: ran, or waits, in a size of ours · kept: the decision was what was asked for · skipped: not decided, see
``why`` · shadow: would have been changed · undone: a change did not come to be, see ``why`` · open: the change is
under way · none: rlalloc did not decide it."""
RESULTS: Final[tuple[Result, ...]] = ("changed", "kept", "skipped", "shadow", "undone", "open", "none")
MAY_RUN_AGAIN: Final = frozenset({"REQUEUED", "PREEMPTED", "NODE_FAIL"})
"""States of a run after which its job may have gone back into the queue: not counted as the end of a job."""


class Size(msgspec.Struct, frozen=True):
    """Totals over all nodes; memory in MiB, the time limit in seconds (None: none, or not known)."""

    nodes: int
    gpus: int
    cpus: int
    mem_mib: int
    limit_s: int | None = None


class Amounts(msgspec.Struct):
    """Resources times time: GPU-seconds, CPU-seconds and MiB-seconds."""

    gpu_s: float = 0
    cpu_s: float = 0
    mem_mib_s: float = 0

    def add(self, other: "Amounts") -> None:
        """Add other amounts to these."""
        self.gpu_s += other.gpu_s
        self.cpu_s += other.cpu_s
        self.mem_mib_s += other.mem_mib_s


class ReportedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the report. Times are epoch seconds; None is not known, or never came to be.

    ``elapsed_s`` counts inside the span, as with ``sacct --truncate``; ``start_s`` and ``end_s`` are the real ones.
    ``given`` is what the job did not hold of what was asked for while it ran inside the span: below 0 where it got
    more. ``net`` is an estimate: the same with what was asked for held as long as it had been expected to be needed.
    ``again`` is true for a run that follows a requeue. ``submit_s`` of a requeued run is that of the requeue, as in
    sacct; ``jct_s`` counts from the first submission to the end.
    """

    job_id: str
    job_id_raw: int
    job_name: str
    user: str
    account: str
    partition: str
    qos: str
    state: str
    exit_code: str
    submit_s: int
    eligible_s: int | None
    start_s: int | None
    end_s: int | None
    elapsed_s: int
    run_s: int
    wait_s: int | None
    jct_s: int | None
    again: bool
    asked: Size
    decided: Size | None
    applied: Size | None
    held: Size | None
    tres: str
    requested_tres: str
    cpu_s_used: float | None
    max_rss_mib: float | None
    result: Result
    mode: str | None
    rule: str | None
    policy: str | None
    why: str
    killed_by: str | None
    our_doing: Cause | None
    given: Amounts | None
    net: Amounts | None


Lookup = Callable[[Collection[int]], Iterable[DecidedJob]]
"""The decided submissions of these job ids."""


class RunJoiner:
    """Joins the runs of ``span``, portion by portion in the order of time; remembers only jobs that may run again."""

    def __init__(self, lookup: Lookup, span: Span) -> None:
        self._lookup = lookup
        self._span = span
        self._first_submitted_s: dict[int, int] = {}

    def reported(self, runs: Sequence[AccountedRun]) -> Iterator[ReportedRun]:
        """The lines of these runs, in the order of submission. Raises what the lookup raises."""
        submissions: dict[int, list[DecidedJob]] = {}
        for decided in self._lookup({run.job_id for run in runs}):
            submissions.setdefault(decided.job_id, []).append(decided)
        for run in sorted(runs, key=lambda run: (run.submitted_s, run.job_id, run.raw_id)):
            first_s = self._first_submitted_s.pop(run.raw_id, run.submitted_s)
            if run.state in MAY_RUN_AGAIN:
                self._first_submitted_s[run.raw_id] = first_s
            job = _decided(run, first_s, submissions.get(run.job_id, ()))
            if job is not None and job.submitted_s < first_s:
                first_s = job.submitted_s
            yield _line(run, job, first_s, self._span)


def _gpus_held(run: AccountedRun, job: DecidedJob | None) -> int:
    """GPUs of a run: those of its size where Slurm accounts none (AccountingStorageTRES lacks gres/gpu)."""
    return run.gpus if run.gpus or job is None else (job.applied or job.asked).gpus


def _decided(run: AccountedRun, first_s: int, jobs: Sequence[DecidedJob]) -> DecidedJob | None:
    """What was decided for a run: of this submission, else of the one that it was requeued from."""
    by_time = {job.submitted_s: job for job in jobs}
    submitted_s = submission_of(run.submitted_s, run.user, {job.submitted_s: job.user for job in jobs})
    return by_time.get(first_s if submitted_s is None else submitted_s)


def _line(run: AccountedRun, job: DecidedJob | None, first_s: int, span: Span) -> ReportedRun:
    asked = _size_of_tres(run.requested_tres, run.limit_s) if job is None else _size(job.asked)
    applied = None if job is None or job.applied is None else job.applied
    held = Size(run.nodes, _gpus_held(run, job), run.cpus, run.mem_mib, run.limit_s) if run.ran else None
    result, why = _result(job)
    ended = run.ended_s is not None and run.state in ENDED_STATES
    ours = None
    if job is not None and applied is not None and ended:
        ours = end_of_smaller(job.asked, applied, run.state, run.exit_code, run.comment)
    changed = result == "changed" and held is not None
    slowdown = job.slowdown if job is not None else None
    return ReportedRun(
        job_id=run.name,
        job_id_raw=run.raw_id,
        job_name=run.job_name,
        user=run.user,
        account=run.account,
        partition=run.partition,
        qos=run.qos,
        state=run.state,
        exit_code=run.exit_code,
        submit_s=run.submitted_s,
        eligible_s=run.eligible_s,
        start_s=run.started_s,
        end_s=run.ended_s,
        elapsed_s=run.elapsed_s,
        run_s=run.run_s,
        wait_s=run.started_s - run.submitted_s if run.ran and run.started_s is not None else None,
        jct_s=run.ended_s - first_s
        if ended and run.ran and run.ended_s is not None and run.state not in MAY_RUN_AGAIN
        else None,
        again=first_s < run.submitted_s,
        asked=asked,
        decided=None if job is None or job.decided is None else _size(job.decided),
        applied=None if applied is None else _size(applied),
        held=held,
        tres=run.tres,
        requested_tres=run.requested_tres,
        cpu_s_used=run.cpu_s_used,
        max_rss_mib=run.max_rss_mib,
        result=result,
        mode=None if job is None else job.mode,
        rule=None if job is None else job.rule,
        policy=None if job is None else job.policy_version,
        why=why,
        killed_by=_killed_by(run) if ended and (run.ended_s or 0) <= span.until_s else None,
        our_doing=ours,
        given=less(amounts(asked, run.elapsed_s), amounts(held, run.elapsed_s)) if changed else None,
        net=less(amounts(asked, run.elapsed_s / slowdown), amounts(held, run.elapsed_s))
        if changed and slowdown
        else None,
    )


def amounts(size: Size | None, seconds: float) -> Amounts:
    """A size held for so long; nothing where there is none."""
    if size is None:
        return Amounts()
    return Amounts(size.gpus * seconds, size.cpus * seconds, size.mem_mib * seconds)


def less(one: Amounts, other: Amounts) -> Amounts:
    """The difference."""
    return Amounts(one.gpu_s - other.gpu_s, one.cpu_s - other.cpu_s, one.mem_mib_s - other.mem_mib_s)


def _result(job: DecidedJob | None) -> tuple[Result, str]:
    """How a job fared, and why it was left as submitted."""
    if job is None:
        return "none", ""
    if job.applied is None and job.decided is None:
        return "skipped", job.reason
    if (job.applied or job.decided) == job.asked:
        return "kept", ""
    if job.applied is not None or job.mode == "shadow":
        return ("shadow" if job.applied is None else "changed"), ""
    if not job.undone:
        return "open", ""
    last = job.undone[-1]
    return "undone", f"{last.state}: {last.why}" if last.why else last.state


def _killed_by(run: AccountedRun) -> str | None:
    """What killed a job, as Slurm or our TaskEpilog saw it, whoever chose its size."""
    if run.state == "TIMEOUT":
        return "timeout"
    if run.state == "OUT_OF_MEMORY":
        return "out-of-memory"
    return "gpu-out-of-memory" if run.state == "FAILED" and GPU_MARKER in run.comment else None


def _size(size: Allocation) -> Size:
    return Size(size.nodes, size.gpus, size.cpus, size.mem_mib, size.time_limit_s or None)


def _size_of_tres(tres: str, limit_s: int | None) -> Size:
    counts = parse_tres(tres)
    return Size(
        nodes=int(counts.get("node", 0)),
        gpus=gpus_of(counts),
        cpus=int(counts.get("cpu", 0)),
        mem_mib=int(counts.get("mem", 0)),
        limit_s=limit_s,
    )
