"""Submit jobs and follow them until they reach a state."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from rlalloc.store import Decision
from rlalloc_demo.demo_errors import DemoError
from rlalloc_demo.demo_site import Place
from rlalloc_demo.demo_workload import Entry, Submission, Submitted
from rlalloc_demo.screen import Progress, Screen
from rlallocd.slurm import AccountingRecord, JobRecord, SlurmUnavailable

LOOK_EVERY_S: Final = 1.0
TICK_S: Final = 0.1
ACTIVE: Final = frozenset({"PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "REQUEUED"})
PATIENCE_S: Final = 600.0
"""Jobs of a minute take several on a machine that is busy with something else."""
ACCOUNTED_WITHIN_S: Final = 180.0

Arrived = Callable[[Sequence[JobRecord]], bool]
"""Whether the jobs of a phase, as slurmctld shows them, have reached their state."""


def ended(jobs: Sequence[JobRecord]) -> bool:
    """All have ended."""
    return all(job.state not in ACTIVE for job in jobs)


def begun(jobs: Sequence[JobRecord]) -> bool:
    """All run or have run."""
    return all(job.state != "PENDING" for job in jobs)


def follow(place: Place, screen: Screen, entries: Sequence[Entry], arrived: Arrived) -> list[Submitted]:
    """Submit ``entries`` when they are due and return when ``arrived``. Raises DemoError after PATIENCE_S."""
    submission = Submission(place.site, entries)
    wait_for(place, screen, submission, arrived)
    return submission.submitted


def wait_for(place: Place, screen: Screen, submission: Submission, arrived: Arrived) -> None:
    """Like ``follow``, with a submission that has begun."""
    deadline = time.monotonic() + PATIENCE_S
    look_at = 0.0
    while True:
        submission.submit_due()
        if time.monotonic() >= look_at:
            look_at = time.monotonic() + LOOK_EVERY_S
            jobs = jobs_of(place, submission.submitted)
            screen.progress(_progress(place, submission, jobs))
            if submission.complete and len(jobs) == submission.total and arrived(jobs):
                return
            if time.monotonic() > deadline:
                stuck = ", ".join(f"{job.job_id} {job.state} {job.reason}" for job in jobs if job.state in ACTIVE)
                raise DemoError(f"not done after {PATIENCE_S:g} s: {stuck}; see {place.site.log_directory}")
        time.sleep(TICK_S)


def jobs_of(place: Place, submitted: Iterable[Submitted]) -> list[JobRecord]:
    """These jobs as slurmctld shows them now; none while it is too busy to answer."""
    wanted = {each.job_id for each in submitted}
    try:
        return [job for job in place.slurm.jobs() if job.job_id in wanted]
    except SlurmUnavailable:
        return []


def decisions_of(place: Place, submitted: Iterable[Submitted]) -> dict[int, Decision]:
    """The decisions in force for these jobs, by job."""
    ids = [each.job_id for each in submitted]
    jobs = {
        (job_id, int(decision.submitted_s)) for job_id in ids for decision in place.store.decisions_of(job_id)[-1:]
    }
    return {job_id: history.in_force for (job_id, _), history in place.store.histories(jobs).items()}


def first_decisions_of(place: Place, submitted: Iterable[Submitted]) -> dict[int, Decision]:
    """The decisions that were taken when these jobs came, by job; a job that waits may be decided again."""
    return {each.job_id: decision for each in submitted for decision in place.store.decisions_of(each.job_id)[:1]}


def accounted(place: Place, screen: Screen, submitted: Sequence[Submitted]) -> dict[int, AccountingRecord]:
    """What sacct says of these ended jobs, by job; waits until it knows and until rlalloc has stored its outcomes.

    slurmctld tells slurmdbd in rounds of some seconds. Raises DemoError.
    """
    deadline = time.monotonic() + ACCOUNTED_WITHIN_S
    since_s = place.site.record.created
    screen.waiting("waiting for sacct, and for rlalloc to join it with its decisions")
    while True:
        ids = [each.job_id for each in submitted]
        records = {record.job_id: record for record in place.slurm.accounting(ids, since_s) if record.ended_s}
        missing = sorted(set(ids) - set(records))
        decided = {decision.id: job_id for job_id, decision in decisions_of(place, submitted).items()}
        ended = place.store.outcomes(list(decided))
        open_decisions = [job_id for decision_id, job_id in decided.items() if decision_id not in ended]
        if not missing and not open_decisions:
            return records
        if time.monotonic() > deadline:
            raise DemoError(f"no end in sacct: {missing}; no outcome in the store: {open_decisions}")
        time.sleep(LOOK_EVERY_S)


def _progress(place: Place, submission: Submission, jobs: Sequence[JobRecord]) -> Progress:
    pending = sum(job.state == "PENDING" for job in jobs)
    active = sum(job.state in ACTIVE for job in jobs)
    ours = {each.job_id for each in submission.submitted}
    return Progress(
        total=submission.total,
        pending=pending,
        running=active - pending,
        ended=len(jobs) - active,
        gpus_used=sum(job.gpus for job in jobs if job.running),
        gpus=32,
        decisions=tuple(each for each in place.store.recent_decisions(20) if each.job_id in ours),
    )
