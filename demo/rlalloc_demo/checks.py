"""What the demo claims, checked on what Slurm and rlalloc's store say."""

from collections.abc import Callable, Mapping, Sequence
from statistics import median

import msgspec

from rlalloc.store import Decision
from rlalloc_demo.demo_configuration import GRACE_S
from rlalloc_demo.demo_measures import Ran
from rlalloc_demo.demo_site import Place
from rlallocd.slurm import AccountingRecord, JobRecord
from slurm_testbed.waiting import stretched

Decisions = Mapping[int, Decision]
SOON_S = 1.0
UNDELAYED_S = 2
"""A job that nobody defers is eligible in the second of its submission, or the next."""


class Check(msgspec.Struct, frozen=True):
    """A statement, whether it holds, and the numbers or jobs that show it."""

    statement: str
    holds: bool
    detail: str


def none_of(statement: str, offending: Sequence[str], detail: str) -> Check:
    """Return a check that holds where nothing is ``offending``; else its detail names that."""
    return Check(statement, not offending, "; ".join(offending) or detail)


def completed(run: str, jobs: Sequence[Ran], place: Place) -> Check:
    """Every job has completed; its program has checked the sizes that it found."""
    failed = [
        f"job {job.record.job_id} {job.record.state} ({_last_line(place, job)})"
        for job in jobs
        if job.record.state != "COMPLETED"
    ]
    return none_of(
        f"{run}: all jobs completed; in them srun and torchrun found the sizes given", failed, _count(jobs)
    )


def ordinary_untouched(run: str, jobs: Sequence[Ran], decisions: Decisions, seen: Sequence[JobRecord]) -> Check:
    """Ordinary jobs have no tag and no decision, and nobody deferred them."""
    tagged = {record.job_id for record in seen if record.admin_comment}
    ordinary = [job for job in jobs if job.submitted.entry.kind == "ordinary"]
    touched = [
        f"job {job.record.job_id}"
        for job in ordinary
        if job.record.job_id in tagged or job.record.job_id in decisions or _deferred_s(job.record) > UNDELAYED_S
    ]
    return none_of(f"{run}: ordinary jobs were left alone", touched, _count(ordinary))


def as_submitted(run: str, jobs: Sequence[Ran], decisions: Decisions) -> Check:
    """Decided and recorded, but nothing of these jobs was changed."""
    changed = [
        f"job {job.record.job_id}: {job.record.gpus} GPUs, {job.record.cpus} CPUs"
        for job in jobs
        if (decision := decisions.get(job.record.job_id)) is not None
        and (
            (job.record.gpus, job.record.cpus) != (decision.request.gpus, decision.request.cpus)
            or _deferred_s(job.record) > UNDELAYED_S
        )
    ]
    return none_of(f"{run}: LLM jobs ran as submitted, none deferred", changed, _count(decisions))


def all_decided(run: str, jobs: Sequence[Ran], decisions: Decisions) -> Check:
    """With agent and daemon up, a policy decided every LLM job."""
    llm = [job for job in jobs if job.submitted.entry.kind != "ordinary"]
    undecided = []
    for job in llm:
        decision = decisions.get(job.record.job_id)
        if decision is None or decision.reason:
            undecided.append(f"job {job.record.job_id}: {decision.reason if decision else 'no decision'}")
    return none_of(f"{run}: every LLM job was decided by the policy", undecided, _count(llm))


def seen_soon(run: str, jobs: Sequence[Ran], decisions: Decisions) -> Check:
    """First decisions: the median is within a second of sbatch, later on a busy machine; all are within the grace."""
    delays = [
        decision.decided_s - job.submitted.submitted_s
        for job in jobs
        if (decision := decisions.get(job.record.job_id)) is not None
    ]
    detail = f"median {median(delays):.2f} s, longest {max(delays):.2f} s after sbatch" if delays else "none was"
    soon_s = SOON_S if delays and median(delays) < SOON_S else stretched(SOON_S)
    holds = bool(delays) and median(delays) < soon_s and max(delays) < GRACE_S
    within = "a second" if soon_s == SOON_S else f"{soon_s:.1f} s, on a busy machine"
    return Check(f"{run}: the daemon saw LLM jobs within {within}", holds, detail)


def got_what_was_decided(run: str, jobs: Sequence[Ran], decisions: Decisions, place: Place) -> Check:
    """The allocation in sacct of each resized job is the one decided."""
    wrong, resized = [], 0
    for job in jobs:
        decision = decisions.get(job.record.job_id)
        if decision is None or not was_resized(decision, place):
            continue
        resized += 1
        wanted = decision.allocation
        record = job.record
        if wanted is None or (record.nodes, record.gpus, record.cpus) != (wanted.nodes, wanted.gpus, wanted.cpus):
            wrong.append(f"job {record.job_id}: {record.nodes} nodes, {record.gpus} GPUs, {record.cpus} CPUs")
    check = none_of(f"{run}: resized jobs got what was decided, says sacct", wrong, f"{resized} resized")
    return check if resized else Check(check.statement, holds=False, detail="none was resized")


def rewarded(decisions: Sequence[Decision], place: Place) -> Check:
    """Every decision whose job has ended has its outcome and its reward."""
    without = []
    for decision in decisions:
        outcome = place.store.outcome(decision.id)
        asked = decision.observation is not None
        if outcome is None or (asked and outcome.reward is None):
            without.append(f"job {decision.job_id}")
    return none_of("outcomes from sacct are stored with their rewards", without, f"{len(decisions)} decisions")


def was_resized(decision: Decision, place: Place) -> bool:
    """Whether the job began with another size than it asked for, because of this decision."""
    return any(application.state == "begun" for application in place.store.applications(decision.id))


def each(statement: str, jobs: Sequence[Ran], holds: Callable[[Ran], bool]) -> Check:
    """A statement about every one of some jobs."""
    return none_of(statement, [f"job {job.record.job_id}" for job in jobs if not holds(job)], _count(jobs))


def _deferred_s(record: AccountingRecord) -> float:
    return (record.eligible_s or record.submitted_s) - record.submitted_s


def _count(jobs: Sequence[object] | Decisions) -> str:
    return f"{len(jobs)} jobs"


def _last_line(place: Place, job: Ran) -> str:
    lines = place.output_of(job.record.job_id, job.submitted.entry.user).strip().splitlines()
    return lines[-1] if lines else "it printed nothing"
