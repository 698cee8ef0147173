"""Applies decisions to pending jobs, as transactions on a server that has none.

journal the original and the intent → update → read back → compare → begin, or restore, verify and begin. The journal
says at every moment which of these steps a job is in, so that a daemon that was killed finishes them when it is
started again; a job that nobody finishes begins by itself after its grace. docs/explanation/transactions.md
has the states, and what each fault ends in.
"""

import itertools
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal, TypeVar

import msgspec

from rlalloc.job import Allocation
from rlalloc.llm.parallel_layouts import ParallelPlan
from rlalloc.store import OPEN_STATES, Application, ApplicationState, Decision, JobHistory, Store
from rlallocd.candidates import Candidate
from rlallocd.decisions import LEAST_GRACE_LEFT_S
from rlallocd.job_plans import looks_for_a_plan
from rlallocd.job_tag import fits_slurmdbd, read_tag, with_note, with_plan_note
from rlallocd.request_sizes import Skipped, size_of
from rlallocd.slurm import JobRecord, Slurm, SlurmUnavailable, UpdatePlan, UpdateRefused
from rlallocd.update_plans import plan_nice, plan_restoration, plan_update
from rlallocd.verification import (
    AddedNice,
    Verification,
    changed_meanwhile,
    limit_is_ours,
    same_minutes,
    verify_pending,
    verify_started,
)

_log = logging.getLogger(__name__)

BATCH: Final = 50
"""Jobs that are updated, then read back in one call and let go in one more: a burst is let go batch by batch."""
RESTORATIONS: Final = 3
"""How often a restoration is sent and verified in one cycle. The next cycle goes on with what is open then."""

_LIMIT_REASONS: Final = ("QOS", "Assoc", "Max", "BadConstraints", "PartitionNodeLimit", "PartitionTimeLimit")
_BETWEEN: Final = frozenset({"COMPLETING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT"})
"""States of a job that may become pending again, or end: the next cycle looks again."""

TakenBack = Literal["not ours", "restored", "not yet"]
"""Of a request: the job's size is not ours (as submitted, changed by others, or it has started), the request is back,
or Slurm has not taken it so far and the next cycle tries again."""

_Item = TypeVar("_Item")


class Applier:
    """Applies decisions and finishes open applications."""

    def __init__(
        self,
        slurm: Slurm,
        store: Store,
        counters: Counter[str],
        *,
        progress: Callable[[], None] = lambda: None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        """``counters`` counts finished applications as ``applications_<state>``.

        ``progress`` is called after each call of Slurm's. Where ``stopping`` says so, no further job is updated.
        """
        self._slurm = slurm
        self._store = store
        self._counters = counters
        self._progress = progress
        self._stopping = stopping
        self._open = {each.id: each for each in store.open_applications()}
        self._store_answers = True

    @property
    def open_jobs(self) -> frozenset[int]:
        """Ids of jobs with an update that is not finished, known without the store. Only ``finish`` lets them go."""
        return frozenset(each.job_id for each in self._open.values())

    def apply(self, decided: Sequence[tuple[Candidate, Decision]]) -> None:
        """Apply all decisions that change a job and let all jobs go that were deferred for us. Raises SlurmError.

        A job that is not deferred is updated and verified, and keeps its place in the queue. If Slurm fails on the
        way, the journal keeps what is open and ``finish`` goes on with it. Told to stop, it lets the jobs that
        are left go as submitted.
        """
        changed = [(candidate, decision) for candidate, decision in decided if _changes(candidate, decision)]
        unchanged = [candidate for candidate, decision in decided if not _changes(candidate, decision)]
        plans = {decision.id: plan for _, decision in decided if (plan := _plan(decision)) is not None}
        applications = self._journal([_application(candidate, decision) for candidate, decision in changed])
        now_s = time.time()
        self._note_plans([pair for pair in decided if not _changes(*pair)])
        waiting = [each for each in unchanged if each.deferred_by_us and each.tag.begin > now_s]
        self._begin([(each.job.job_id, each.begin_s) for each in waiting])
        batches = _batches(zip(applications, (candidate for candidate, _ in changed), strict=True))
        # Users change jobs, and Slurm starts some, while jobs are decided.
        latest = self._read_back([application.job_id for application, _ in batches[0]]) if batches else {}
        for number, batch in enumerate(batches, 1):
            if self._stopping():
                self._leave_batch(batch, latest, "rlallocd was told to stop")
                continue
            following = [application.job_id for application, _ in itertools.chain(*batches[number : number + 1])]
            latest = self._apply_batch(batch, latest, following, plans)

    def finish(self, applications: Sequence[Application]) -> None:
        """Finish open applications. Raises SlurmError if their jobs cannot be read.

        If Slurm does not answer an update, the batch stays open until the next cycle; other jobs are decided
        nevertheless.
        """
        self._open = {application.id: application for application in applications}
        for batch in _batches(applications):
            jobs = self._read_back([application.job_id for application in batch])
            try:
                self._restore(self._settle(batch, jobs), jobs)
            except SlurmUnavailable as err:
                _log.warning("%d updates stay unfinished until the next cycle: %s", len(batch), err)

    def finish_without_store(self) -> None:
        """Finish what is known to be open while the store fails, so that no job starts half changed.

        The journal is left behind: ``finish`` brings it up to date once the store answers. Raises SlurmError.
        """
        self._store_answers = False
        try:
            self.finish(tuple(self._open.values()))
        finally:
            self._store_answers = True

    def let_go(self, jobs: Sequence[JobRecord]) -> None:
        """Let jobs go that are still deferred though no update of them is open: at their own begin times.

        Raises SlurmError.
        """
        tags = ((job.job_id, read_tag(job.admin_comment)) for job in jobs)
        self._begin([(job_id, tag.user_begin if tag is not None else 0) for job_id, tag in tags])

    def undo_limited(self, applications: Sequence[Application], jobs: Mapping[int, JobRecord]) -> None:
        """Give a job its request back if it now waits for a limit that only our change can have reached."""
        limited = [
            (application, f"it waits for {job.reason}")
            for application in applications
            if (job := jobs.get(application.job_id)) is not None
            and job.pending
            and application.job_id not in self.open_jobs
            and not job.is_split  # Slurm refuses to change the rest of an array as a whole
            and job.reason.startswith(_LIMIT_REASONS)
            and not verify_started(job, application.original, application.intended, _record(application)).text
        ]
        self._restore(limited, jobs)

    def take_back(self, job_id: int, history: JobHistory, why: str) -> TakenBack:
        """Give a pending job its first request back, whatever was decided since.

        The journal says that those decisions no longer hold once the request has been read back, not before. Raises
        SlurmError, StoreError.
        """
        begun = [each for each in history.applications if each.state == "begun"]
        jobs = self._read_back([job_id])
        job = jobs.get(job_id)
        if not begun or job is None or not job.pending or _verify(job, begun[-1]).verdict != "as decided":
            return "not ours"
        with_nice = next((each for each in begun if each.added_nice), begun[-1])
        restoration = msgspec.structs.replace(
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
        (restoration,) = self._journal([restoration])
        self._restore([(restoration, why)], jobs)
        after = next(each for each in self._store.applications(restoration.decision_id) if each.id == restoration.id)
        if after.state in OPEN_STATES:
            return "not yet"
        return "restored" if after.state == "restored" else "not ours"

    def _apply_batch(
        self,
        batch: Sequence[tuple[Application, Candidate]],
        latest: Mapping[int, JobRecord],
        following: Sequence[int],
        plans: Mapping[str, ParallelPlan],
    ) -> dict[int, JobRecord]:
        """Update, read back and begin or restore one batch; returns the reading, of the ``following`` jobs too.

        ``latest`` is the reading just before: a job that others changed since the decision is not touched.
        """
        open_still: list[Application] = []
        refusals: dict[int, str] = {}
        for number, (application, candidate) in enumerate(batch):
            if self._stopping():
                self._leave_batch(batch[number:], latest, "rlallocd was told to stop")
                break
            job = latest.get(application.job_id)
            if job is not None and job.pending:  # an update may take nodes from one that runs
                if obstacle := _obstacle(candidate, job):
                    self._leave(application, job, obstacle)
                    continue
                plan = _update_plan(application, candidate.job, plans.get(application.decision_id))
                refusals[application.job_id] = self._update(plan)
            open_still.append(application)
        jobs = self._read_back([*(application.job_id for application in open_still), *following])
        self._restore(self._settle(open_still, jobs, refusals), jobs)
        return jobs

    def _settle(
        self,
        applications: Sequence[Application],
        jobs: Mapping[int, JobRecord],
        refusals: Mapping[int, str] | None = None,
    ) -> list[tuple[Application, str]]:
        """Finish what this reading settles; return what to restore, and why. Raises SlurmError."""
        ended: list[tuple[Application, ApplicationState, str]] = []
        wrong: list[tuple[Application, str]] = []
        for application in applications:
            job = jobs.get(application.job_id)
            if job is None or not job.pending:
                self._note_started(application, job)
                continue
            finding = _verify(job, application)
            taken_back = application.state == "restoring"
            if finding.verdict == "as submitted":
                refusal = (refusals or {}).get(application.job_id, "")
                ended.append(_restored(application) if taken_back else _left(application, refusal))
            elif finding.verdict == "as decided" and not taken_back:
                what_then = "let go" if application.begins else "left in its place in the queue"
                ended.append((application, "begun", f"verified as decided and {what_then}"))
            else:
                wrong.append((application, finding.text or application.detail))
        self._mark([each for each, state, _ in ended if state == "begun"], "applied", "read back as decided")
        if self._begin([(each.job_id, each.begin_s) for each, _, _ in ended if _deferred(jobs[each.job_id], each)]):
            for (state, detail), group in itertools.groupby(ended, key=lambda end: end[1:]):
                self._mark([application for application, _, _ in group], state, detail)
        return wrong

    def _restore(self, wrong: Sequence[tuple[Application, str]], jobs: Mapping[int, JobRecord]) -> None:
        """Send the request again and verify it, RESTORATIONS times; then the rest stays open. Raises SlurmError."""
        for _ in range(RESTORATIONS):
            if not wrong:
                return
            restoring = [self._note_restoring(application, why) for application, why in wrong]
            for application in restoring:
                self._update(_restoration_plan(application, jobs[application.job_id]))
            jobs = self._read_back([application.job_id for application in restoring])
            wrong = self._settle(restoring, jobs)
        for application, why in wrong:
            _log.error("job %d: not restored yet: %s", application.job_id, why, extra=_fields(application))

    def _note_plans(self, unchanged: Sequence[tuple[Candidate, Decision]]) -> None:
        """Tell jobs that keep their size how to divide it; without an answer, their scripts' own sizes hold."""
        for candidate, decision in unchanged:
            plan = _plan(decision)
            if candidate.mode != "enforce" or plan is None or not looks_for_a_plan(candidate.tag):
                continue
            comment = with_plan_note(candidate.job.admin_comment, plan)
            if not fits_slurmdbd(comment) or self._stopping():
                continue
            try:
                self._update(UpdatePlan(job_id=candidate.job.job_id, fields=(("AdminComment", comment),)))
            except SlurmUnavailable as err:
                _log.warning("jobs that keep their size get no plan in this cycle: %s", err)
                return

    def _note_restoring(self, application: Application, why: str) -> Application:
        if application.state == "restoring":
            return application
        _log.warning("job %d: restoring the request: %s", application.job_id, why, extra=_fields(application))
        self._mark([application], "restoring", why)
        return msgspec.structs.replace(application, state="restoring", detail=why)

    def _leave(self, application: Application, job: JobRecord, why: str) -> None:
        """Let a job go that has not been changed."""
        if not _deferred(job, application) or self._begin([(application.job_id, application.begin_s)]):
            self._mark([application], "left", why)

    def _leave_batch(
        self, batch: Sequence[tuple[Application, Candidate]], latest: Mapping[int, JobRecord], why: str
    ) -> None:
        """Let jobs go that have not been changed, in one call; if it is refused, the journal keeps them open."""
        deferred = [
            (application.job_id, application.begin_s)
            for application, candidate in batch
            if _deferred(latest.get(application.job_id, candidate.job), application)
        ]
        if self._begin(deferred):
            self._mark([application for application, _ in batch], "left", why)

    def _note_started(self, application: Application, job: JobRecord | None) -> None:
        """Note the end of a job that is no longer pending and so cannot be changed any more."""
        if job is None:
            self._mark([application], "lost", "slurmctld had forgotten it before it could be read back (see sacct)")
        elif job.state in _BETWEEN:
            _log.info("job %d is %s: the next cycle looks again", job.job_id, job.state, extra=_fields(application))
        elif not job.has_run:
            self._mark([application], "gone", f"{job.state} before it started")
        else:
            started = verify_started(job, application.original, application.intended, _record(application))
            if started.verdict == "as decided":
                self._mark([application], "begun", "it started with the decided size")
            elif started.verdict == "as submitted":
                state: ApplicationState = "restored" if application.state == "restoring" else "left"
                self._mark([application], state, "it started as submitted")
            else:
                self._mark([application], "lost", f"it started with neither size: {started.text}")

    def _update(self, plan: UpdatePlan) -> str:
        """Send one update; return why it was refused, or an empty string. Raises SlurmUnavailable.

        The read-back shows its result. Without an answer nothing more is sent in this cycle: a slow slurmctld may
        still carry the update out.
        """
        try:
            self._slurm.update(plan)
        except UpdateRefused as err:
            _log.warning("job %d: update refused: %s", plan.job_id, err, extra={"job_id": plan.job_id})
            return str(err)
        finally:
            self._progress()
        return ""

    def _read_back(self, job_ids: Sequence[int]) -> dict[int, JobRecord]:
        try:
            return self._slurm.read_back(job_ids)
        finally:
            self._progress()

    def _begin(self, jobs: Sequence[tuple[int, float]]) -> bool:
        """Let jobs go, in one call per batch except those with a later begin time of their own; whether all went."""
        now_s = time.time()
        at_once = [job_id for job_id, begin_s in jobs if begin_s <= now_s]
        calls = [*((batch, 0.0) for batch in _batches(at_once)), *(([job], at) for job, at in jobs if at > now_s)]
        refused = [job_ids for job_ids, begin_s in calls if not self._begin_at(job_ids, begin_s)]
        return not refused

    def _begin_at(self, job_ids: Sequence[int], begin_s: float) -> bool:
        """Begin jobs. One that was cancelled or started meanwhile is no error: the next reading shows it."""
        try:
            self._slurm.begin(job_ids, begin_s)
        except UpdateRefused as err:
            _log.info("cannot let all of %d jobs go: %s", len(job_ids), err)
            return False
        finally:
            self._progress()
        return True

    def _journal(self, applications: Sequence[Application]) -> tuple[Application, ...]:
        journalled = self._store.journal(applications)
        self._open.update({each.id: each for each in journalled})
        return journalled

    def _mark(self, applications: Sequence[Application], state: ApplicationState, detail: str) -> None:
        if not self._store_answers:
            return
        self._store.set_applications(applications, state, time.time(), detail)
        if state not in OPEN_STATES:
            for application in applications:
                self._open.pop(application.id, None)
            self._counters[f"applications_{state}"] += len(applications)


def _changes(candidate: Candidate, decision: Decision) -> bool:
    if candidate.mode != "enforce" or decision.allocation is None:
        return False
    # A re-decision always brings another size.
    return candidate.begun or decision.allocation != decision.request or bool(decision.nice)


def _application(candidate: Candidate, decision: Decision) -> Application:
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


def _record(application: Application) -> JobRecord | None:
    """Slurm's record before the update; None if a version with another record wrote the journal."""
    try:
        return msgspec.json.decode(application.record, type=JobRecord) if application.record else None
    except msgspec.DecodeError:
        return None


def _verify(job: JobRecord, application: Application) -> Verification:
    return verify_pending(
        job, application.original, application.intended, _record(application), added_nice(application)
    )


def added_nice(application: Application) -> AddedNice | None:
    """What an application adds to a job's nice; None if it leaves the nice alone."""
    if application.own_nice is None or application.added_nice is None:
        return None
    return AddedNice(application.own_nice, application.added_nice)


def _plan(decision: Decision) -> ParallelPlan | None:
    return decision.circumstances.plan if decision.circumstances is not None else None


def _update_plan(application: Application, job: JobRecord, parallel: ParallelPlan | None) -> UpdatePlan:
    comment = with_plan_note(with_note(job.admin_comment, application.decision_id), parallel)
    nice = added_nice(application)
    if nice is not None and application.intended == application.original:
        return plan_nice(job, nice.own + nice.added, comment)
    plan = plan_update(job, application.intended, comment)
    if same_minutes(application.intended.time_limit_s, job.time_limit_s):
        plan = plan.without("TimeLimit")
    return plan if nice is None else plan.with_nice(nice.own + nice.added)


def _restoration_plan(application: Application, job: JobRecord) -> UpdatePlan:
    """The whole request again. Time limit and nice are included only if they are ours: what others set stays."""
    before, nice = _record(application), added_nice(application)
    if nice is not None and application.intended == application.original:
        return plan_nice(job, nice.own, job.admin_comment)
    if before is None:
        plan = plan_update(job, application.original, job.admin_comment)
    else:
        plan = plan_restoration(before, job.admin_comment)
    if not limit_is_ours(job, application.original, application.intended):
        plan = plan.without("TimeLimit")
    return plan if nice is None or not nice.is_in(job) else plan.with_nice(nice.own)


def _obstacle(candidate: Candidate, latest: JobRecord) -> str:
    """Why a job must not be changed now, or an empty string."""
    if candidate.deferred_by_us and candidate.tag.begin - time.time() < LEAST_GRACE_LEFT_S:
        return "its grace was nearly over"
    changed = changed_meanwhile(candidate.job, latest)
    return f"someone else changed it after the decision: {changed}" if changed else ""


def _deferred(job: JobRecord, application: Application) -> bool:
    """Whether a job is still deferred by us, and not by a begin time that its user or Slurm (a requeue) has set.

    One whose grace is over may begin already. To let it go again would reset the age in its priority.
    """
    before = _record(application) or job
    tag = read_tag(before.admin_comment) or read_tag(job.admin_comment)
    return application.begins and tag is not None and tag.begin == job.begin_s > time.time()


def _left(application: Application, refusal: str) -> tuple[Application, ApplicationState, str]:
    why = f"refused: {refusal}" if refusal else "slurmctld never carried it out"
    return application, "left", f"the update changed nothing, the job runs as submitted; {why}"


def _restored(application: Application) -> tuple[Application, ApplicationState, str]:
    return application, "restored", f"request restored: {application.detail}"


def _batches(items: Iterable[_Item]) -> list[list[_Item]]:
    every = list(items)
    return [every[first : first + BATCH] for first in range(0, len(every), BATCH)]


def _fields(application: Application) -> dict[str, object]:
    return {"job_id": application.job_id, "decision_id": application.decision_id}
