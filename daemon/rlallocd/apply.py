"""Making pending jobs what was decided, as transactions over a server that has none.

journal the original and the intent → update → read back → compare → begin, or restore, verify and begin. The journal
says at every moment which of these steps a job is in, so that a daemon that was killed finishes them when it is
started again; a job that nobody finishes begins by itself after its grace.
"""

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from rlalloc.job import Allocation
from rlalloc.store import OPEN_STATES, Application, ApplicationState, Decision, Store
from rlallocd.candidates import Candidate
from rlallocd.sizes import differences, size_of
from rlallocd.slurm import JobRecord, Slurm, SlurmUnavailable, UpdatePlan, UpdateRefused
from rlallocd.tag import with_note

_log = logging.getLogger(__name__)

_LIMIT_REASONS: Final = ("QOS", "Assoc", "BadConstraints", "PartitionNodeLimit", "PartitionTimeLimit")


class Applier:
    """Applies decisions and finishes what was left open."""

    def __init__(self, slurm: Slurm, store: Store, counters: Counter[str]) -> None:
        """``counters`` gets ``applications_<state>`` for each end that an application comes to."""
        self._slurm = slurm
        self._store = store
        self._counters = counters

    def apply(self, decided: Sequence[tuple[Candidate, Decision]]) -> None:
        """Apply all decisions that change a job and begin all jobs that were deferred for us. Raises SlurmError.

        If Slurm fails on the way, the journal keeps what is open and ``finish`` goes on with it.
        """
        changed = [(candidate, decision) for candidate, decision in decided if _changes(candidate, decision)]
        unchanged = [candidate for candidate, decision in decided if not _changes(candidate, decision)]
        applications = self._store.journal([_application(candidate, decision) for candidate, decision in changed])
        self._begin([(each.job.job_id, each.begin_s) for each in unchanged if each.deferred_by_us])
        for application, (candidate, decision) in zip(applications, changed, strict=True):
            self._update(application.intended, candidate.job, with_note(candidate.job.admin_comment, decision.id))
        if applications:
            self.finish(applications, {job.job_id: job for job in self._slurm.jobs()})

    def finish(self, applications: Sequence[Application], jobs: Mapping[int, JobRecord]) -> None:
        """Bring open applications to their end, from ``jobs`` as they were just read. Raises SlurmError."""
        good: list[Application] = []
        bad: list[Application] = []
        for application in applications:
            job = jobs.get(application.job_id)
            if job is None or not job.pending:
                self._note_started(application, job)
            elif differences(job, application.intended):
                bad.append(application)
            else:
                good.append(application)
        self._mark(good, "applied", "read back as intended")
        self._begin_all(good, "begun", "let go with the decided size")
        if bad:
            self._restore(bad, jobs)

    def undo_limited(self, applications: Sequence[Application], jobs: Mapping[int, JobRecord]) -> None:
        """Give a job its request back if it now waits for a limit that only our change can have met."""
        limited = [
            application
            for application in applications
            if (job := jobs.get(application.job_id)) is not None
            and job.pending
            and job.reason.startswith(_LIMIT_REASONS)
            and not differences(job, application.intended)
        ]
        if limited:
            self._restore(limited, jobs)

    def _restore(self, applications: Sequence[Application], jobs: Mapping[int, JobRecord]) -> None:
        for application in applications:
            job = jobs[application.job_id]
            found = "; ".join(differences(job, application.intended)) or f"it waits for {job.reason}"
            _log.warning("job %d: restoring the request: %s", application.job_id, found, extra=_fields(application))
            self._update(application.original, job, job.admin_comment)
        again = {job.job_id: job for job in self._slurm.jobs()}
        restored: list[Application] = []
        for application in applications:
            after = again.get(application.job_id)
            if after is None or not after.pending:
                self._note_started(application, after)
            elif left := differences(after, application.original):
                # It stays open in the journal, so that the next cycle tries again.
                _log.error(
                    "job %d: not restored yet: %s", application.job_id, "; ".join(left), extra=_fields(application)
                )
            else:
                restored.append(application)
        self._begin_all(restored, "restored", "the update did not come out as intended; the request was restored")

    def _update(self, size: Allocation, job: JobRecord, admin_comment: str) -> None:
        """Send one update. What became of it is seen when the job is read back, so a refusal is only logged."""
        plan = UpdatePlan(
            job_id=job.job_id,
            allocation=size,
            gpu_type=job.gpu_type,
            clear_exclusive=job.is_exclusive,
            admin_comment=admin_comment,
        )
        try:
            self._slurm.update(plan)
        except (UpdateRefused, SlurmUnavailable) as err:
            _log.warning("job %d: update failed: %s", job.job_id, err, extra={"job_id": job.job_id})

    def _begin_all(self, applications: Sequence[Application], state: ApplicationState, detail: str) -> None:
        self._begin([(application.job_id, application.begin_s) for application in applications])
        self._mark(applications, state, detail)

    def _begin(self, jobs: Sequence[tuple[int, float]]) -> None:
        """Let jobs go: those without a later begin time of their own in one call."""
        now_s = time.time()
        self._begin_at([job_id for job_id, begin_s in jobs if begin_s <= now_s], 0)
        for job_id, begin_s in jobs:
            if begin_s > now_s:
                self._begin_at([job_id], begin_s)

    def _begin_at(self, job_ids: Sequence[int], begin_s: float) -> None:
        """Begin jobs; one that was cancelled or started meanwhile is no error."""
        if not job_ids:
            return
        try:
            self._slurm.begin(job_ids, begin_s)
        except UpdateRefused as err:
            _log.info("not all of %d jobs could be let go: %s", len(job_ids), err)

    def _mark(self, applications: Sequence[Application], state: ApplicationState, detail: str) -> None:
        self._store.set_applications(applications, state, time.time(), detail)
        if state not in OPEN_STATES:
            self._counters[f"applications_{state}"] += len(applications)

    def _note_started(self, application: Application, job: JobRecord | None) -> None:
        """A job that is not pending any more: it cannot be changed, only be told apart."""
        if job is None:
            self._mark([application], "lost", "the job had left the queue before it could be read back")
        elif not differences(job, application.intended):
            self._mark([application], "begun", "it started with the decided size")
        elif not differences(job, application.original):
            self._mark([application], "left", "it started as submitted before the update")
        else:
            self._mark(
                [application], "lost", f"it started otherwise: {'; '.join(differences(job, application.intended))}"
            )


def _changes(candidate: Candidate, decision: Decision) -> bool:
    return candidate.mode == "enforce" and decision.allocation is not None and decision.allocation != decision.request


def _application(candidate: Candidate, decision: Decision) -> Application:
    if decision.allocation is None:
        raise ValueError("only a decision with an allocation can be applied")
    return Application(
        id=0,
        decision_id=decision.id,
        job_id=decision.job_id,
        state="intended",
        original=size_of(candidate.job),
        intended=decision.allocation,
        begin_s=candidate.begin_s,
        detail="",
        changed_s=time.time(),
    )


def _fields(application: Application) -> dict[str, object]:
    return {"job_id": application.job_id, "decision_id": application.decision_id}
