"""Applies decisions to pending jobs, as transactions on a server that has none.

journal the original and the intent → update → read back → compare → begin, or restore, verify and begin. The journal
says at every moment which of these steps a job is in, so that a daemon that was killed finishes them when it is
started again; a job that nobody finishes begins by itself after its grace. docs/explanation/transactions.md
has the states, and what each fault ends in.
"""

import itertools
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from typing import Final, Literal

import msgspec

from rlalloc.llm.parallel_layouts import ParallelPlan
from rlalloc.store import OPEN_STATES, Application, Decision, JobHistory, Store
from rlallocd.decisions.decisions import LEAST_GRACE_LEFT_S
from rlallocd.knowledge.job_plans import looks_for_a_plan
from rlallocd.slurm import JobRecord, Slurm, SlurmUnavailable, UpdatePlan
from rlallocd.submissions.candidates import Candidate
from rlallocd.submissions.job_tag import (
    fits_slurmdbd,
    has_note,
    has_reading,
    has_room_for_notes,
    read_tag,
    with_plan_note,
)
from rlallocd.transactions.changes_of_others import taking_back_kept
from rlallocd.transactions.job_updates import JobUpdates, in_batches
from rlallocd.transactions.journal import Journal
from rlallocd.transactions.journal_entries import (
    changes_job,
    entry_of,
    is_deferred,
    parallel_plan_of,
    restorations_for,
    taking_back,
    update_for,
    updates_of,
    verify,
)
from rlallocd.transactions.settlement import CHANGED_SINCE, Settlement, unless_odd
from rlallocd.transactions.update_plans import as_read, without_same_nodes
from rlallocd.transactions.verification import changed_meanwhile

_log = logging.getLogger(__name__)

SECOND_READING_S: Final = 1.0
"""The least seconds between the two readings of a job whose update slurmctld did not answer."""

TakingBack = Callable[[JobRecord, Sequence[Application], str], Application | None]
"""What makes the entry that takes back all updates of a job, or None where its size is no longer ours."""
TakenBack = Literal["not ours", "restored", "not yet"]
"""Of a request: the job's size is not ours (as submitted, changed by others, or it has started), the request is back,
or Slurm has not taken it so far and the next cycle tries again."""


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
        self._updates = JobUpdates(slurm, progress)
        self._journal = Journal(store, counters)
        self._settlement = Settlement(self._updates, self._journal)
        self._stopping = stopping
        self._unanswered: dict[int, float] = {}
        """Applications whose updates slurmctld may still carry out, by when they were first read as submitted."""
        self._is_judged = False
        """Whether rlalloc.lua judges updates: it has removed the notes of those that were read back last."""
        self._note_sent_by_others(self._journal.open_entries)

    @property
    def open_jobs(self) -> frozenset[int]:
        """Ids of jobs with an update that is not finished, known without the store. Only ``finish`` lets them go."""
        return self._journal.open_jobs

    def apply(
        self,
        decided: Sequence[tuple[Candidate, Decision]],
        read_s: float | None = None,
        new_jobs: Set[int] = frozenset(),
    ) -> None:
        """Apply all decisions that change a job and let all jobs go that were deferred for us. Raises SlurmError.

        ``read_s`` is when the reading on which they are based began (seconds of uptime), or None if that is not
        known. If a job may have changed since then, rlalloc.lua refuses its update. ``new_jobs`` are the ids of
        jobs that were first read then: no older reading is part of their records.

        A job that is not deferred is updated and verified, and keeps its place in the queue. If Slurm fails on the
        way, the journal keeps what is open and ``finish`` goes on with it. Told to stop, it lets the jobs that
        are left go as submitted.
        """
        changed = [(candidate, decision) for candidate, decision in decided if changes_job(candidate, decision)]
        unchanged = [candidate for candidate, decision in decided if not changes_job(candidate, decision)]
        plans = {decision.id: plan for _, decision in decided if (plan := parallel_plan_of(decision)) is not None}
        applications = self._journal.enter([entry_of(candidate, decision) for candidate, decision in changed])
        now_s = time.time()
        self._note_plans([pair for pair in decided if not changes_job(*pair)])
        waiting = [each for each in unchanged if each.deferred_by_us and each.tag.begin > now_s]
        self._updates.begin([(each.job.job_id, each.begin_s) for each in waiting])
        batches = in_batches(zip(applications, (candidate for candidate, _ in changed), strict=True))
        # Users change jobs, and Slurm starts some, while jobs are decided.
        new_jobs = new_jobs if read_s is not None else frozenset()
        following = self._to_read(batches[0], new_jobs) if batches else []
        latest = self._updates.read_back(following) if following else {}
        for number, batch in enumerate(batches, 1):
            latest = _as_decided(batch, following) | latest
            if self._stopping():
                self._leave(batch, latest, "rlallocd was told to stop")
                continue
            following = self._to_read(list(itertools.chain(*batches[number : number + 1])), new_jobs)
            latest = self._apply_batch(batch, latest, following, plans, read_s)

    def finish(self, applications: Sequence[Application]) -> None:
        """Finish open applications. Raises SlurmError if their jobs cannot be read.

        If Slurm does not answer an update, the batch stays open until the next cycle; other jobs are decided
        nevertheless. A job whose update was not answered waits for a second reading, if the first shows it as
        submitted: slurmctld may carry the update out right after it answers again.
        """
        known = {each.id for each in self._journal.open_entries}
        still_open = self._journal.take_up(applications)
        self._note_sent_by_others([each for each in still_open if each.id not in known])
        for batch in in_batches(still_open):
            jobs = self._updates.read_back([application.job_id for application in batch])
            settled = [application for application in batch if not self._may_still_change(application, jobs)]
            try:
                self._settlement.restore(self._settlement.settle(settled, jobs), jobs)
            except SlurmUnavailable as err:
                _log.warning("%d updates stay unfinished until the next cycle: %s", len(batch), err)

    def finish_without_store(self) -> None:
        """Finish what is known to be open while the store fails, so that no job starts half changed.

        The journal is left behind; ``finish`` brings it up to date once the store answers. Raises SlurmError.
        """
        with self._journal.left_behind():
            self.finish(self._journal.open_entries)

    def let_go(self, jobs: Sequence[JobRecord]) -> None:
        """Let jobs go that are still deferred though no update of them is open: at their own begin times.

        Raises SlurmError.
        """
        tags = ((job.job_id, read_tag(job.admin_comment)) for job in jobs)
        self._updates.begin([(job_id, tag.user_begin if tag is not None else 0) for job_id, tag in tags])

    def take_back(self, job_id: int, history: JobHistory, why: str) -> TakenBack:
        """Give a pending job its first request back, whatever was decided since.

        The journal says that those decisions no longer hold once the request has been read back, not before. Raises
        SlurmError, StoreError.
        """
        restorations = self.take_back_all([(job_id, history, why)], still_ours=taking_back)
        if not restorations:
            return "not ours"
        state = self._journal.state_of(restorations[0])
        if state in OPEN_STATES:
            return "not yet"
        return "restored" if state == "restored" else "not ours"

    def take_back_all(
        self, jobs: Sequence[tuple[int, JobHistory, str]], still_ours: TakingBack = taking_back_kept
    ) -> tuple[Application, ...]:
        """Likewise for several jobs, each with the reason; returns the journal's entries for those still ours.

        ``still_ours`` says which are: also those of which others have changed what can be kept, or not.
        """
        entered: list[Application] = []
        for batch in in_batches(jobs):
            found = self._updates.read_back([job_id for job_id, _, _ in batch])
            wanted = [
                msgspec.structs.replace(entry, job_id=job_id)
                for job_id, history, why in batch
                if (job := found.get(job_id)) is not None
                and job.pending
                and not job.unread
                and (updates := updates_of(job, history))
                and (entry := unless_odd(job_id, partial(still_ours, job, updates, why))) is not None
                and unless_odd(job_id, partial(restorations_for, entry, job)) != ()  # else nothing could be sent
            ]
            restorations = self._journal.enter(wanted) if wanted else ()
            entered += restorations
            self._settlement.restore([(each, each.detail) for each in restorations], found, is_as_decided=True)
        return tuple(entered)

    def release(self, job: JobRecord) -> bool:
        """End slurmctld's hold of a task, or of an array's tasks that wait together. Raises SlurmUnavailable.

        Returns whether to try again if they are still held.
        """
        return self._updates.release(job)

    def _to_read(self, batch: Sequence[tuple[Application, Candidate]], new_jobs: Set[int]) -> list[int]:
        """The jobs of a batch that have to be read again just before their updates.

        ``new_jobs`` need not be read if rlalloc.lua judges updates: it refuses an update if others have changed the
        job since, or if the job has started. Some tasks of an array may have started, so arrays are read again.
        """
        return [
            application.job_id
            for application, candidate in batch
            if not self._is_judged
            or application.job_id not in new_jobs
            or not candidate.job.fields.reported
            or not has_room_for_notes(candidate.job.admin_comment)
            or candidate.job.array_job_id
        ]

    def _apply_batch(
        self,
        batch: Sequence[tuple[Application, Candidate]],
        latest: Mapping[int, JobRecord],
        following: Sequence[int],
        plans: Mapping[str, ParallelPlan],
        read_s: float | None,
    ) -> dict[int, JobRecord]:
        """Update, read back and begin or restore one batch; returns the reading, of the ``following`` jobs too.

        ``latest`` is the last reading before: a job that others changed since the decision is not touched.
        """
        open_still: list[Application] = []
        refusals: dict[int, str] = {}
        changed_since: list[tuple[Application, JobRecord]] = []
        has_answered = False
        with self._updates.together():
            for number, (application, candidate) in enumerate(batch):
                if self._stopping():
                    self._leave(batch[number:], latest, "rlallocd was told to stop")
                    break
                job = latest.get(application.job_id)
                if job is not None and job.pending:  # an update may take nodes from one that runs
                    if obstacle := _obstacle(candidate, job):
                        self._leave([(application, candidate)], latest, obstacle)
                        continue
                    parallel = plans.get(application.decision_id)
                    plan = unless_odd(job.job_id, partial(update_for, application, candidate.job, parallel))
                    if plan is None:
                        self._leave([(application, candidate)], latest, "rlalloc failed to write its update")
                        continue
                    # With NumNodes, scontrol sends a query first, which shows that slurmctld answers.
                    # An answer just before shows the same.
                    plan = as_read(without_same_nodes(plan, job) if has_answered else plan, read_s)
                    try:
                        answer = self._updates.update(plan)
                    except SlurmUnavailable:
                        self._unanswered[application.id] = math.inf
                        raise
                    has_answered = answer.answered and not answer.refusal  # which may be scontrol's own
                    if not answer.answered:
                        self._unanswered[application.id] = math.inf
                        continue
                    if answer.changed and not job.is_split:  # other tasks of a split array may have got it
                        # Before the release: later, their change could look like ours.
                        self._journal.mark([application], "left", CHANGED_SINCE)
                        changed_since.append((application, job))
                        continue
                    refusals[application.job_id] = answer.refusal
                open_still.append(application)
        touched = [*open_still, *(application for application, _ in changed_since)]
        jobs = self._updates.read_back([*(application.job_id for application in touched), *following])
        self._look_for_notes(refusals, jobs, read_s)
        self._let_go([(application, jobs.get(job.job_id, job)) for application, job in changed_since])
        if wrong := self._settlement.settle(
            open_still, jobs, refusals
        ):  # their users may have changed them since that reading
            self._settlement.restore(wrong, {**jobs, **self._updates.read_back([each.job_id for each, _ in wrong])})
        return jobs

    def _look_for_notes(
        self, refusals: Mapping[int, str], jobs: Mapping[int, JobRecord], read_s: float | None
    ) -> None:
        """Learn from updates that were carried out whether rlalloc.lua has removed the notes of their reading."""
        comments = [jobs[job_id].admin_comment for job_id, why in refusals.items() if not why and job_id in jobs]
        noted = [comment for comment in comments if has_note(comment) and has_room_for_notes(comment)]
        if noted and read_s is not None:
            self._is_judged = not any(map(has_reading, noted))

    def _note_sent_by_others(self, applications: Sequence[Application]) -> None:
        """Note updates of another process, before a restart or takeover: nobody knows whether they were answered."""
        self._unanswered |= {each.id: math.inf for each in applications if each.state == "intended"}

    def _may_still_change(self, application: Application, jobs: Mapping[int, JobRecord]) -> bool:
        """Whether slurmctld may still carry out an update that it did not answer."""
        first_s = self._unanswered.pop(application.id, None)
        job = jobs.get(application.job_id)
        if first_s is None or job is None or job.unread or not job.pending:
            return False
        finding = unless_odd(application.job_id, partial(verify, job, application))
        if finding is None or finding.verdict != "as submitted" or time.monotonic() - first_s > SECOND_READING_S:
            return False
        self._unanswered[application.id] = min(first_s, time.monotonic())
        return True

    def _note_plans(self, unchanged: Sequence[tuple[Candidate, Decision]]) -> None:
        """Tell jobs that keep their size how to divide it; without an answer, their scripts' own sizes hold."""
        for candidate, decision in unchanged:
            plan = parallel_plan_of(decision)
            if candidate.mode != "enforce" or plan is None or not looks_for_a_plan(candidate.tag):
                continue
            comment = with_plan_note(candidate.job.admin_comment, plan)
            if not fits_slurmdbd(comment) or self._stopping():
                continue
            try:
                self._updates.update(UpdatePlan(job_id=candidate.job.job_id, fields=(("AdminComment", comment),)))
            except SlurmUnavailable as err:
                _log.warning("jobs that keep their size get no plan in this cycle: %s", err)
                return

    def _leave(
        self, batch: Sequence[tuple[Application, Candidate]], latest: Mapping[int, JobRecord], why: str
    ) -> None:
        """Let jobs go that rlallocd has not changed. Others may have changed them, so the journal says so before."""
        self._journal.mark([application for application, _ in batch], "left", why)
        self._let_go(
            [(application, latest.get(application.job_id, candidate.job)) for application, candidate in batch]
        )

    def _let_go(self, left: Sequence[tuple[Application, JobRecord]]) -> None:
        """Begin those that are still deferred for us, in one call. If that fails, the next cycle begins them."""
        self._updates.begin([(each.job_id, each.begin_s) for each, job in left if is_deferred(job, each)])


def _as_decided(batch: Sequence[tuple[Application, Candidate]], read: Sequence[int]) -> dict[int, JobRecord]:
    """The records on which the decisions of a batch are based, of jobs that were not ``read`` again."""
    jobs = {application.job_id: candidate.job for application, candidate in batch}
    return {job_id: job for job_id, job in jobs.items() if job_id not in read}


def _obstacle(candidate: Candidate, latest: JobRecord) -> str:
    """Why a job must not be changed now, or an empty string."""
    if candidate.deferred_by_us and candidate.tag.begin - time.time() < LEAST_GRACE_LEFT_S:
        return "its grace was nearly over"
    if latest.unread:
        return "scontrol did not show what it asks for"
    changed = changed_meanwhile(candidate.job, latest)
    return f"someone else changed it after the decision: {changed}" if changed else ""
