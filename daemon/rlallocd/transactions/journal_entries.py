"""What an entry of the journal says: the update that it stands for, how to compare it, and how to take it back.

Pure functions of an entry, Slurm's record of its job, and the clock.
"""

import itertools
import time
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from rlalloc.job import Allocation
from rlalloc.llm.parallel_layouts import ParallelPlan
from rlalloc.store import Application, Decision, JobHistory
from rlallocd.slurm import JobRecord, UpdatePlan
from rlallocd.submissions.candidates import Candidate
from rlallocd.submissions.job_tag import read_tag, with_note, with_plan_note
from rlallocd.submissions.request_sizes import Skipped, same_minutes, size_of
from rlallocd.transactions.update_plans import (
    has_own_terms,
    plan_nice,
    plan_restoration,
    plan_update,
    without_empty_memory,
    without_same_tasks,
)
from rlallocd.transactions.verification import (
    AddedNice,
    Verification,
    has_size,
    limit_is_ours,
    verify_pending,
    verify_started,
)

ONE_BY_ONE: Final = 50
"""So many tasks of one array are given their request back before the job is read again."""


def changes_job(candidate: Candidate, decision: Decision) -> bool:
    """Whether a decision is an update of its job."""
    if candidate.mode != "enforce" or decision.allocation is None:
        return False
    # A re-decision always brings another size.
    return candidate.begun or decision.allocation != decision.request or bool(decision.nice)


def entry_of(candidate: Candidate, decision: Decision) -> Application:
    """The entry for a decision that changes its job, still without an id."""
    if decision.allocation is None:
        raise ValueError("only a decision with an allocation can be applied")
    return Application(
        id=0,
        decision_id=decision.id,
        job_id=decision.job_id,
        state="intended",
        original=_size_before(candidate, decision),
        intended=decision.allocation,
        begin_s=candidate.begin_s,
        detail="",
        changed_s=time.time(),
        begins=candidate.deferred_by_us,
        record=msgspec.json.encode(candidate.job).decode(),
        own_nice=candidate.job.nice if decision.nice else None,
        added_nice=decision.nice or None,
    )


def _size_before(candidate: Candidate, decision: Decision) -> Allocation:
    """The size that a job has now, on the fewest nodes that it accepts; if its nodes differ, the decision's request.

    The same holds for a job that keeps its request: only its nice changes.
    """
    if not candidate.begun and decision.allocation == decision.request:
        return decision.request
    try:
        return size_of(candidate.job)
    except Skipped:
        return decision.request


def restoration_of(begun: Sequence[Application], why: str) -> Application:
    """The entry that takes back all updates of a job (``begun``, oldest first, at least one), still without an id."""
    with_nice = next((each for each in begun if each.added_nice), begun[-1])
    return msgspec.structs.replace(
        begun[-1],
        state="restoring",
        original=begun[0].original,
        record=begun[0].record,
        own_nice=with_nice.own_nice,
        added_nice=with_nice.added_nice,
        begins=False,
        detail=why,
        changed_s=time.time(),
    )


def updates_of(job: JobRecord, history: JobHistory) -> list[Application]:
    """The updates that a job read just now may still have, oldest first.

    Of an array, the journal says what became of the tasks that stood in the queue as one job. A task with a job id of
    its own may have been requeued since, in the size with which it had started. A job that has its request back, as
    the journal says, may have the size again: slurmctld forgets what it was told just before it was killed.
    """
    states = ("begun", "restored") if job.is_own_task else ("begun",)
    updates = [each for each in history.applications if each.state in states]
    taken_back = [each for each in history.applications if each.state == "restored"]
    return updates or [each for each in taken_back if has_size(job, each.intended)]


def taking_back(job: JobRecord, begun: Sequence[Application], why: str) -> Application | None:
    """The entry that takes back all updates of a job that was read just now; None if others have changed its size.

    If others changed only the CPUs per task, these stay, and the rest is taken back. The whole request comes back
    where they are fewer than it had (22.05 then finds no node: the task would still be the only one of its node), or
    where scontrol cannot repeat the request in its own terms. So it does where NumCPUs is another and the total is
    not: an update of NumNodes that Slurm refuses leaves a NumCPUs that no node holds with the tasks of the decided
    size.

    ``changes_of_others.kept_changes`` cannot keep CPUs per task between ours and the request's; here they were set
    after our size had been verified, so no plugin has made them from ours.
    """
    entry, last = restoration_of(begun, why), begun[-1]
    asked, before, ours = job.fields, record_before(entry), last.intended
    if is_as_applied(job, last):
        return entry
    own = msgspec.structs.replace(asked, cpus_per_task=ours.cpus_per_task, min_cpus=ours.cpus)
    if before is None or not is_as_applied(msgspec.structs.replace(job, fields=own), last):
        return None
    stays = (
        asked.min_cpus == ours.cpus and has_own_terms(before) and asked.cpus_per_task >= entry.original.cpus_per_task
    )
    if entry.intended == entry.original or not stays:
        return entry
    theirs = msgspec.structs.replace(before.fields, cpus_per_task=asked.cpus_per_task)
    return msgspec.structs.replace(
        entry,
        original=msgspec.structs.replace(entry.original, cpus_per_task=asked.cpus_per_task),
        record=msgspec.json.encode(msgspec.structs.replace(before, fields=theirs)).decode(),
    )


def record_before(application: Application) -> JobRecord | None:
    """Slurm's record before the update; None if a version with another record wrote the journal."""
    try:
        return msgspec.json.decode(application.record, type=JobRecord) if application.record else None
    except msgspec.DecodeError:
        return None


def verify(job: JobRecord, application: Application) -> Verification:
    """Whether a pending job is as decided, as submitted, or neither."""
    return verify_pending(
        job, application.original, application.intended, record_before(application), added_nice(application)
    )


def verify_as_started(job: JobRecord, application: Application) -> Verification:
    """Likewise of a job that runs or has run."""
    return verify_started(job, application.original, application.intended, record_before(application))


def is_as_applied(job: JobRecord, application: Application) -> bool:
    """Whether a pending job still is what an application made it. Others may have changed its time limit since."""
    if application.intended == application.original:
        return verify(job, application).verdict == "as decided"
    return has_size(job, application.intended)


def is_new_size(application: Application, finding: Verification) -> bool:
    """Whether a job has got another size than it had and is about to keep it."""
    new = application.state != "restoring" and application.intended != application.original
    return new and finding.verdict == "as decided"


def added_nice(application: Application) -> AddedNice | None:
    """What an application adds to a job's nice; None if it leaves the nice alone."""
    if application.own_nice is None or application.added_nice is None:
        return None
    return AddedNice(application.own_nice, application.added_nice)


def parallel_plan_of(decision: Decision) -> ParallelPlan | None:
    """How a decision divides the job's GPUs into ranks; None where too little was known for a plan."""
    return decision.circumstances.plan if decision.circumstances is not None else None


def update_for(application: Application, job: JobRecord, parallel: ParallelPlan | None) -> UpdatePlan:
    """The one message that makes a job what was decided, with a note of the decision in its AdminComment."""
    nice = added_nice(application)
    nice_alone = nice is not None and application.intended == application.original
    noted = with_note(job.admin_comment, application.decision_id, nice_alone=nice_alone)
    comment = with_plan_note(noted, parallel)
    if nice is not None and nice_alone:
        return plan_nice(job, nice.own + nice.added, comment)
    plan = plan_update(job, application.intended, comment)
    if same_minutes(application.intended.time_limit_s, job.time_limit_s):
        plan = plan.without("TimeLimit")
    return plan if nice is None else plan.with_nice(nice.own + nice.added)


def restorations_for(application: Application, job: JobRecord) -> tuple[UpdatePlan, ...]:
    """The updates that give a pending job its request back: one, or some for the tasks of a split array.

    scontrol changes the number of nodes of a split array task by task only (ONE_BY_ONE of them at a time). There is
    none where it is not known which tasks wait.
    """
    plan = msgspec.structs.replace(_restoration(application, job), job_id=job.base_id)
    if not (job.is_split or job.is_own_task):
        return (plan,)
    if application.intended.nodes == application.original.nodes:
        return (plan.without("NumNodes", "ReqNodeList").of_tasks(job.array_tasks),) if job.array_tasks else ()
    return tuple(plan.of_tasks(task) for task in itertools.islice(_each_of(job.array_tasks), ONE_BY_ONE))


def _each_of(tasks: str) -> Iterator[str]:
    """``2-4,8-12:2`` one by one."""
    for part in tasks.split(",") if tasks else ():
        bounds, _, step = part.partition(":")
        first, _, last = bounds.partition("-")
        yield from map(str, range(int(first), int(last or first) + 1, int(step or 1)))


def _restoration(application: Application, job: JobRecord) -> UpdatePlan:
    """The whole request again. Time limit and nice are included only if they are ours: what others set stays."""
    before, nice = record_before(application), added_nice(application)
    if nice is not None and application.intended == application.original:
        return plan_nice(job, nice.own, job.admin_comment)
    if before is None:
        plan = plan_update(job, application.original, job.admin_comment)
    else:
        plan = without_empty_memory(plan_restoration(before, application.original, job.admin_comment), job)
    if not limit_is_ours(job, application.original, application.intended):
        plan = plan.without("TimeLimit")
    plan = without_same_tasks(plan, job)
    if (chosen := application.intended.gpu_type) is not None:
        plan = plan.leaving_out(chosen.own_excluded_nodes if before is None else before.excluded_nodes)
    return plan if nice is None or not nice.is_in(job) else plan.with_nice(nice.own)


def is_deferred(job: JobRecord, application: Application) -> bool:
    """Whether a job is still deferred by us, and not by a begin time that its user or Slurm (a requeue) has set.

    One whose grace is over may begin already. To let it go again would reset the age in its priority.
    """
    before = record_before(application) or job
    tag = read_tag(before.admin_comment) or read_tag(job.admin_comment)
    return application.begins and tag is not None and tag.begin == job.begin_s > time.time()
