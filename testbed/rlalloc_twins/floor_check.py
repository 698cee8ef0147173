"""What ``make floor`` states: what completes without rlalloc completes with it, in the documented environment."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from rlalloc.job import Allocation
from rlalloc_twins.environment_values import Outer
from rlalloc_twins.event_check import CPUS, PLACES, are_comparable, is_updated_here_only, problems_of_events
from rlalloc_twins.node_fit import EMPTY, fits
from rlalloc_twins.run_check import problems_of_runs
from rlalloc_twins.size_check import problems_of_size
from rlalloc_twins.twin_plan import Plan, Submission
from rlalloc_twins.twin_record import Ended, SiteRecord, TwinJob

_JOURNAL_ENDS: Final = frozenset({"begun", "left", "restored", "gone"})
_DEFERRED: Final = re.compile(r"rlalloc:v=1;.*\bbegin=[1-9]")
"""In the tag of a job that rlalloc.lua made wait for a decision."""


class Problem(msgspec.Struct, frozen=True):
    """A job that is not as the statement says."""

    key: str
    form: str
    text: str


class Floor(msgspec.Struct, frozen=True, kw_only=True):
    """One site with rlalloc against the one without: jobs by what they show, and what is wrong."""

    counts: Mapping[str, int]
    problems: tuple[Problem, ...]


def compare(plan: Plan, off: SiteRecord, on: SiteRecord) -> Floor:
    """Compare all jobs of both sites."""
    twins = {job.key: job for job in off.jobs}
    planned = {job.key: job for job in plan.submissions}
    counts: Counter[str] = Counter()
    problems: list[Problem] = []
    jobs = {job.key: job for job in on.jobs}
    apart = _apart(planned, twins, jobs)
    for job in on.jobs:
        of_plan, twin = planned.get(job.key), twins.get(job.key)
        counts["jobs"] += 1
        if twin is None or (job.key in apart and not (twin.refused or job.refused)):
            counts["an event found them in different states"] += 1
            waits = of_plan is not None and _waits_for_another_end(of_plan, twins, jobs)
            texts = iter(()) if waits else _problems_apart(of_plan, twin, job, counts)
        else:
            texts = _problems(of_plan, twin, job, _outer(job.key, twins, jobs), counts)
        form = of_plan.form if of_plan else "inside a job"
        problems += [Problem(job.key, form, text) for text in texts]
    ended = {
        key for key, job in planned.items() if _is_cancelled(job) or (key in apart and not _completed(jobs[key]))
    }
    missing = twins.keys() - jobs.keys() - {f"{key}-inner" for key in ended}
    problems += [Problem(key, "inside a job", "it was not submitted with rlalloc") for key in sorted(missing)]
    return Floor(counts=dict(counts), problems=tuple(problems))


def _apart(
    planned: Mapping[str, Submission], off: Mapping[str, TwinJob], on: Mapping[str, TwinJob]
) -> frozenset[str]:
    """Jobs that an event met in different states on both sites, what depends on them, and jobs inside them."""
    found: set[str] = set()
    for key, job in planned.items():  # in the order of submission: what a job depends on comes first
        depends = job.after is not None and job.after[0] in found
        if depends or not are_comparable(job, off[key], on[key]):
            found |= {key, f"{key}-inner"}
    return frozenset(found)


def _problems_apart(
    planned: Submission | None, twin: TwinJob | None, job: TwinJob, counts: Counter[str]
) -> Iterator[str]:
    """Say what is wrong with a job that is not compared in full, whatever state its user's events met it in.

    It may not wait for ever, nor end otherwise than its script does, if its twin does not. If its user cancelled it
    on one of the sites, its end is not checked. If rlalloc neither deferred nor changed it, its user's own events are
    the cause, and it is only counted. The same holds if rlalloc deferred it without changing it, and its user's
    update was accepted here within the grace, but came too late for its twin. There are two such cases. Either, after
    the update, no nodes that the job may use could hold what its twin had. Or it ran with all that its twin had but
    CPUs, and timed out: on 24.11, after MinCPUsNode=1, its srun waits for its CPUs per task, with or without rlalloc.
    """
    if job.stuck:
        if twin is not None and twin.stuck:
            return
        if _is_left_alone(job):
            counts["never started, and rlalloc had left it alone"] += 1
        elif planned and twin and _is_barred_by_user(planned, twin, job):
            counts["never started after its user's update, which came too late for its twin"] += 1
        else:
            yield f"it waited for {job.stuck} when nothing else went on"
        return
    ends = {"COMPLETED", "FAILED"} if planned is not None and planned.exit_status else {"COMPLETED"}
    for name, after in job.tasks.items():
        before = twin.tasks.get(name) if twin is not None else None
        without = before.state if before is not None else "no such task"
        ended_by_user = before is None or "CANCELLED" in (after.state, without)
        by_user = planned is not None and _is_cancelled(planned) and ended_by_user
        if after.state in (*ends, without) or by_user:
            continue
        if _is_left_alone(job):
            counts["ended otherwise after its user's event, and rlalloc had left it alone"] += 1
        elif planned and twin and before and _is_timed_out_by_user(planned, twin, job, before, after):
            counts["ended otherwise after its user's update, which came too late for its twin"] += 1
        else:
            yield f"it ended {after.state} {after.exit_code}, without rlalloc {without}"


def _is_left_alone(job: TwinJob) -> bool:
    deferred = any(_DEFERRED.search(record.get("AdminComment", "")) for record in job.records)
    return not deferred and not _is_changed(job)


def _is_barred_by_user(planned: Submission, twin: TwinJob, job: TwinJob) -> bool:
    """Whether no nodes hold what its twin had, since its user, and not rlalloc, changed where it may run."""
    if _is_changed(job) or not is_updated_here_only(planned, twin, job, PLACES):
        return False
    return not any(fits(job, _had(task), EMPTY) for task in twin.tasks.values())


def _is_timed_out_by_user(planned: Submission, twin: TwinJob, job: TwinJob, before: Ended, after: Ended) -> bool:
    """Whether it timed out with the same as its twin but for its CPUs, which its user had set, and not rlalloc."""
    if _is_changed(job) or not is_updated_here_only(planned, twin, job, CPUS):
        return False
    same = all(after.tres.get(name) == before.tres.get(name) for name in ("node", "gres/gpu", "mem"))
    return after.state == "TIMEOUT" and same and after.limit_min == before.limit_min


def _had(task: Ended) -> Allocation:
    """What it had of each node; its time limit plays no part."""
    nodes = int(task.tres["node"])
    gpus, cpus, mem_mib = (int(task.tres.get(name, 0)) // nodes for name in ("gres/gpu", "cpu", "mem"))
    return Allocation(nodes, gpus, 1, cpus, mem_mib, 60)


def _is_changed(job: TwinJob) -> bool:
    return any(each.updates for each in job.decisions)


def _waits_for_another_end(planned: Submission, off: Mapping[str, TwinJob], on: Mapping[str, TwinJob]) -> bool:
    """Whether it waits for ever for a job that ended otherwise than its twin: that is said of the other job."""
    if planned.after is None or not on[planned.key].stuck.startswith("Dependency"):
        return False
    ends = [{task.state for task in jobs[planned.after[0]].tasks.values()} for jobs in (off, on)]
    return ends[0] != ends[1]


def _is_cancelled(planned: Submission) -> bool:
    return any(event.doing == "cancel" for event in planned.events)


def _completed(job: TwinJob) -> bool:
    return {task.state for task in job.tasks.values()} == {"COMPLETED"}


def _outer(key: str, off: Mapping[str, TwinJob], on: Mapping[str, TwinJob]) -> Outer | None:
    """The job that has submitted this one from inside, if one has."""
    name = key.removesuffix("-inner")
    if name == key:
        return None
    before, after = (next(iter(jobs[name].runs.values())) for jobs in (off, on))
    told = after.batch.get("SLURM_SET_BY_RLALLOC", "").split()[1:]
    return Outer(before.batch, after.batch, frozenset(word.partition("=")[0] for word in told))


def _problems(
    planned: Submission | None, twin: TwinJob, job: TwinJob, outer: Outer | None, counts: Counter[str]
) -> Iterator[str]:
    if twin.refused or job.refused:
        if bool(twin.refused) != bool(job.refused):
            yield f"sbatch said {job.refused!r}, without rlalloc {twin.refused!r}"
        counts["refused by Slurm on both"] += 1
        return
    if planned is not None:
        yield from problems_of_events(planned, twin, job)
    yield from problems_of_ends(twin, job, counts)
    for decided in job.decisions:
        for update in decided.updates:
            counts[f"journal: {update.state}"] += 1
            if update.state not in _JOURNAL_ENDS:
                yield f"the journal says {update.state}: {update.detail}"
    yield from problems_of_size(planned, twin, job, counts)
    yield from problems_of_runs(planned, twin, job, outer, counts)


def problems_of_ends(twin: TwinJob, job: TwinJob, counts: Counter[str]) -> Iterator[str]:
    """Say which tasks ended otherwise than without rlalloc, or never started."""
    if job.stuck or twin.stuck:
        counts["never started on both"] += bool(job.stuck and twin.stuck)
        if not twin.stuck:
            yield f"it waited for {job.stuck} when nothing else went on"
        return
    if twin.tasks.keys() != job.tasks.keys():
        yield f"its tasks are {sorted(job.tasks)}, without rlalloc {sorted(twin.tasks)}"
    for name in twin.tasks.keys() & job.tasks.keys():
        before, after = twin.tasks[name], job.tasks[name]
        counts[f"{before.state} on both"] += before.state == after.state
        if (before.state, after.state) == ("TIMEOUT", "COMPLETED"):
            counts["TIMEOUT without rlalloc, COMPLETED with it"] += 1
            continue  # for example, its user left the request's tasks too few CPUs for srun
        if (before.state, before.exit_code) != (after.state, after.exit_code):
            yield f"it ended {after.state} {after.exit_code}, without rlalloc {before.state} {before.exit_code}"
