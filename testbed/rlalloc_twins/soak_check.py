"""What ``make soak`` states: no job waits for a reason that only its size explains; none is lost or killed for it."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from rlalloc.job import Allocation
from rlalloc_twins.floor_check import Problem, problems_of_ends
from rlalloc_twins.node_fit import emptied, fits
from rlalloc_twins.size_check import problems_of_size
from rlalloc_twins.twin_plan import Plan
from rlalloc_twins.twin_record import Look, SiteRecord, TwinJob, Waited

INTERVAL_S: Final = 30.0
"""One scheduling interval: Slurm's bf_interval by default. That of the twin sites is shorter."""
LONGEST_LOOK_S: Final = 10.0
"""Nothing is said of a longer time between two looks."""
QUEUED: Final = ("Resources", "Priority")
OTHER_FITS: Final = "first in the queue, and only its request fits"
LONGER: Final = "in the queue, its request fits and is shorter"
"""What the size of a job may explain that waits for resources; of the second, backfill decides, so that its twin may
wait as well."""
_OF_A_LIMIT: Final = ("Partition", "Assoc", "QOS", "Max")
_OF_NODES: Final = ("ReqNodeNotAvail", "Reserv")
"""Beginnings of the reasons that a size may explain, beside those of the queue."""
_NODES_GONE: Final = "Nodes required for job are"
_ALL: Final = ("nodes", "gpus", "cpus", "mem_mib", "gpus_per_node", "time_limit_s")
_COUNTED: Final = (
    ("Minutes", _ALL),
    ("GRES", ("gpus",)),
    ("Cpu", ("cpus",)),
    ("Mem", ("mem_mib",)),
    ("Node", ("nodes",)),
    ("Wall", ("time_limit_s",)),
    ("TimeLimit", ("time_limit_s",)),
)
"""What a limit counts, by a part of its reason; a reason of which no part is listed may be for anything."""


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """How long one job waited for a reason, in a size larger than its request; its twin for the same; seconds."""

    key: str
    reason: str
    in_our_size_s: float
    twin_s: float

    @property
    def too_long(self) -> bool:
        """Whether it waited longer than its twin, by more than a scheduling interval."""
        return self.in_our_size_s > self.twin_s + INTERVAL_S


class Soak(msgspec.Struct, frozen=True, kw_only=True):
    """One site with rlalloc against the one without.

    ``waits`` are all that a size of ours may explain, the longest first; ``wait_s`` mean and 95th percentile of both
    sites' waits, without rlalloc first.
    """

    counts: Mapping[str, int]
    waits: tuple[Waits, ...]
    wait_s: tuple[tuple[float, float], tuple[float, float]]
    jct_s: tuple[float, float]
    problems: tuple[Problem, ...]


def compare(plan: Plan, off: SiteRecord, on: SiteRecord) -> Soak:
    """Compare all jobs of both sites."""
    planned = {job.key: job for job in plan.submissions}
    twins = {job.key: job for job in off.jobs}
    counts: Counter[str] = Counter(jobs=len(on.jobs))
    lone = twins.keys() ^ {job.key for job in on.jobs}
    problems = [Problem(key, planned[key].form, "it is on one site only") for key in sorted(lone)]
    for job in on.jobs:
        if (twin := twins.get(job.key)) is not None:
            texts = [*problems_of_ends(twin, job, counts), *problems_of_size(planned[job.key], twin, job, counts)]
            problems += [Problem(job.key, planned[job.key].form, text) for text in texts]
    counts["looks"] = len(on.looks)
    waits = waits_of(off, on)
    for each in (each for each in waits if each.too_long):
        text = f"it waited {each.in_our_size_s:.0f} s for {each.reason} in a size of ours"
        problems.append(Problem(each.key, planned[each.key].form, text))
    return Soak(
        counts=dict(counts),
        waits=waits,
        wait_s=(_waited(off), _waited(on)),
        jct_s=(_jct_s(off), _jct_s(on)),
        problems=tuple(problems),
    )


def waits_of(off: SiteRecord, on: SiteRecord) -> tuple[Waits, ...]:
    """All waits with rlalloc that a job's size may explain, the longest first."""
    return tuple(sorted(_waits(off, on), key=lambda each: -each.in_our_size_s))


def _waits(off: SiteRecord, on: SiteRecord) -> Iterator[Waits]:
    jobs = {job.job_id: job for job in on.jobs if job.job_id is not None}
    seconds: dict[tuple[str, str], float] = defaultdict(float)
    for look, lasted_s in _lasting(on.looks):
        for waited in look.waited:
            job = jobs.get(waited.job_id)
            if job is not None and (reason := _explained_by_size(job, waited, look)):
                seconds[job.key, reason] += lasted_s
    twins = _looks_by_job(off)
    on_by_key = {job.key: job for job in on.jobs}
    for (key, reason), in_our_size_s in seconds.items():
        twin_s = sum(
            lasted_s
            for found, look, lasted_s in twins.get(key, ())
            if (found in QUEUED if reason in (OTHER_FITS, LONGER) else found == reason)
            and (not reason.startswith(_OF_NODES) or _nodes_could_hold_request(on_by_key[key], look))
        )
        yield Waits(key=key, reason=reason, in_our_size_s=in_our_size_s, twin_s=twin_s)


def _explained_by_size(job: TwinJob, waited: Waited, look: Look) -> str:
    """The reason for which a job waits if its size may explain that; else nothing."""
    size, reason = size_at(job, look.at_s), _reason(waited)
    if size is None:
        return ""
    request = job.decisions[0].request
    if reason in QUEUED:
        return _explained_in_queue(job, size, waited, look)
    explained = reason == "BadConstraints"
    if reason.startswith(_OF_A_LIMIT):
        explained = is_larger(size, request, _counted(reason))
    elif reason.startswith(_OF_NODES):
        longer = size.time_limit_s > request.time_limit_s and _nodes_could_hold_request(job, look)
        explained = longer or _only_request_fits(job, size, request, look)
    return reason if explained else ""


def _nodes_could_hold_request(job: TwinJob, look: Look) -> bool:
    """Whether the nodes that take jobs, so not those that are drained or in maintenance, could hold its request."""
    return fits(job, job.decisions[0].request, emptied(look))


def _explained_in_queue(job: TwinJob, size: Allocation, waited: Waited, look: Look) -> str:
    request = job.decisions[0].request
    if _is_first(waited, look) and _only_request_fits(job, size, request, look):
        return OTHER_FITS
    return LONGER if size.time_limit_s > request.time_limit_s and fits(job, request, look) else ""


def _only_request_fits(job: TwinJob, size: Allocation, request: Allocation, look: Look) -> bool:
    return is_larger(size, request) and fits(job, request, look) and not fits(job, size, look)


def size_at(job: TwinJob, at_s: float) -> Allocation | None:
    """The size that rlalloc had given to a job at a moment; None where it had its request."""
    if not job.decisions:
        return None
    size: Allocation | None = None
    for decided in job.decisions:
        for update in decided.updates:
            if update.state == "begun" and update.at_s <= at_s:
                size = update.intended
            elif update.state == "restored" and decided.at_s <= at_s:  # its journal keeps only when that was done
                size = update.intended if at_s < update.at_s else None
    return size if size is not None and size != job.decisions[0].request else None


def is_larger(size: Allocation, request: Allocation, fields: Sequence[str] = _ALL) -> bool:
    """Whether a size takes more of any of these, time included."""
    return any(getattr(size, field) > getattr(request, field) for field in fields)


def _counted(reason: str) -> Sequence[str]:
    return next((fields for part, fields in _COUNTED if part in reason), _ALL)


def _reason(waited: Waited) -> str:
    """The reason as one word. With a whole sentence, squeue says that all nodes are down, drained or reserved."""
    return "Resources" if waited.reason.startswith(_NODES_GONE) else waited.reason.split(",")[0]


def _is_first(waited: Waited, look: Look) -> bool:
    """Whether no job of a higher priority waits for resources."""
    return all(each.priority <= waited.priority for each in look.waited if _reason(each) in QUEUED)


def _lasting(looks: Sequence[Look]) -> Iterator[tuple[Look, float]]:
    """Each look and the seconds until the next."""
    for look, following in itertools.pairwise(looks):
        yield look, min(LONGEST_LOOK_S, following.at_s - look.at_s)


def _looks_by_job(record: SiteRecord) -> dict[str, list[tuple[str, Look, float]]]:
    """By a job's key the looks in which it waited, with the reason and the seconds until the next look."""
    jobs = {job.job_id: job.key for job in record.jobs}
    found: dict[str, list[tuple[str, Look, float]]] = defaultdict(list)
    for look, lasted_s in _lasting(record.looks):
        for waited in look.waited:
            if waited.job_id in jobs:
                found[jobs[waited.job_id]].append((_reason(waited), look, lasted_s))
    return found


def _waited(record: SiteRecord) -> tuple[float, float]:
    """Mean and 95th percentile of the waits of all that started."""
    waits = sorted(
        task.started_s - task.submitted_s for job in record.jobs for task in job.tasks.values() if task.started_s
    )
    return (sum(waits) / len(waits), waits[int(0.95 * (len(waits) - 1))]) if waits else (0.0, 0.0)


def _jct_s(record: SiteRecord) -> float:
    ends = [
        task.ended_s - task.submitted_s
        for job in record.jobs
        for task in job.tasks.values()
        if task.started_s and task.ended_s
    ]
    return sum(ends) / max(1, len(ends))
