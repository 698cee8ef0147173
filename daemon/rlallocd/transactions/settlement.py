"""Settles what a reading shows of updated jobs: verified and let go, or the request is restored and verified.

docs/explanation/transactions.md has the states, and what each fault ends in.
"""

import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Literal, TypeVar

import msgspec

from rlalloc.errors import StoreError
from rlalloc.store import Application, ApplicationState
from rlallocd.slurm import JobRecord, SlurmError, UpdatePlan
from rlallocd.transactions.changes_of_others import kept_changes, verify_kept, verify_kept_as_started
from rlallocd.transactions.job_updates import JobUpdates
from rlallocd.transactions.journal import Journal
from rlallocd.transactions.journal_entries import (
    is_deferred,
    is_new_size,
    record_before,
    restorations_for,
    verify,
    verify_as_started,
)
from rlallocd.transactions.update_plans import as_read
from rlallocd.transactions.verification import Verification, moves

_log = logging.getLogger(__name__)

RESTORATIONS: Final = 3
"""How often a restoration is sent and verified in one cycle. The next cycle goes on with what is open then."""

_BETWEEN: Final = frozenset({"COMPLETING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT"})
"""States of a job that may become pending again, or end: the next cycle looks again."""

CHANGED_SINCE: Final = (
    "rlalloc.lua refused the update: since the job was read, someone else changed it, "
    "or it started, or slurmctld loaded job_submit.lua again"
)

_Found = TypeVar("_Found")


class Settlement:
    """Finishes applications by what was read of their jobs."""

    def __init__(self, updates: JobUpdates, journal: Journal) -> None:
        self._updates = updates
        self._journal = journal

    def settle(
        self,
        applications: Sequence[Application],
        jobs: Mapping[int, JobRecord],
        refusals: Mapping[int, str] | None = None,
    ) -> list[tuple[Application, str]]:
        """Finish what this reading settles; return what to restore, and why. Raises SlurmError."""
        ended: list[tuple[Application, ApplicationState, str]] = []
        wrong: list[tuple[Application, str]] = []
        looked_at = self._look_at_pending(applications, jobs)
        found = [(application, finding) for application, finding, _ in looked_at]
        kept = {application.id: text for application, _, text in looked_at if text}
        never = self._updates.never_runs(
            [
                jobs[each.job_id]
                for each, finding in found
                if is_new_size(each, finding) or (each.id in kept and finding.verdict != "as submitted")
            ]
        )
        obstacles = {job_id: f"slurmctld says of the new size: {said}" for job_id, said in never.items()}
        obstacles |= {
            each.job_id: moved for each, finding in found if (moved := _moved(each, finding, jobs[each.job_id]))
        }
        for application, finding in found:
            taken_back = application.state == "restoring"
            if finding.verdict == "as submitted":
                refusal = (refusals or {}).get(application.job_id, "")
                restored = _restored(application, kept.get(application.id, ""))
                ended.append(restored if taken_back else _left(application, refusal))
            elif application.job_id in obstacles:
                wrong.append((application, obstacles[application.job_id]))
            elif application.id in kept:
                ended.append(_restored(application, kept[application.id]))
            elif finding.verdict == "as decided" and not taken_back:
                what_then = "let go" if application.begins else "left in its place in the queue"
                ended.append((application, "begun", f"verified as decided and {what_then}"))
            else:
                wrong.append((application, finding.text or application.detail))
        self._journal.mark([each for each, state, _ in ended if state == "begun"], "applied", "read back as decided")
        if self._updates.begin(
            [(each.job_id, each.begin_s) for each, _, _ in ended if is_deferred(jobs[each.job_id], each)]
        ):
            for (state, detail), group in itertools.groupby(ended, key=lambda end: end[1:]):
                self._journal.mark([application for application, _, _ in group], state, detail)
        return wrong

    def _look_at_pending(
        self, applications: Sequence[Application], jobs: Mapping[int, JobRecord]
    ) -> list[tuple[Application, Verification, str]]:
        """What is found of each pending job, and what of it is kept, in words; of the others, the end is noted."""
        looked_at = []
        for application in applications:
            job = jobs.get(application.job_id)
            if job is None or job.unread or not job.pending:
                unless_odd(application.job_id, partial(self._note_unverified, application, job))
            elif (of_it := unless_odd(application.job_id, partial(_look_at, application, job))) is not None:
                looked_at.append((application, *of_it))
        return looked_at

    def restore(
        self,
        wrong: Sequence[tuple[Application, str]],
        jobs: Mapping[int, JobRecord],
        *,
        is_as_decided: bool = False,
    ) -> None:
        """Send the request again and verify it, RESTORATIONS times; then the rest stays open. Raises SlurmError.

        The last attempt sends the whole request, whatever others changed: what they set may be what Slurm refuses.
        With ``is_as_decided``, the jobs have their decided size: a job that others change meanwhile keeps it.
        """
        refused: set[int] = set()  # because others changed the job, whose values were not tried yet
        for attempt in range(1, RESTORATIONS + 1):
            if not wrong:
                return
            restoring = [self._note_restoring(application, why) for application, why in wrong]
            last = attempt == RESTORATIONS
            with self._updates.together():
                sent = {
                    each.id: self._send_restoration(
                        each, jobs[each.job_id], whole=last and each.job_id not in refused
                    )
                    for each in restoring
                }
            refused = {each.job_id for each in restoring if sent[each.id] == "changed"}
            changed = [each for each in restoring if is_as_decided and attempt == 1 and sent[each.id] == "changed"]
            self._journal.mark(changed, "begun", f"nothing is taken back: {CHANGED_SINCE}")
            answered = [each for each in restoring if sent[each.id] != "unanswered" and each not in changed]
            jobs = self._updates.read_back([application.job_id for application in answered])
            wrong = self.settle(answered, jobs)
        for application, why in wrong:
            _log.error("job %d: not restored yet: %s", application.job_id, why, extra=_fields(application))

    def _send_restoration(
        self, application: Application, job: JobRecord, *, whole: bool
    ) -> Literal["answered", "unanswered", "changed"]:
        """Send the request again: the ``whole`` of it, or without what is kept of others' changes.

        Returns whether scontrol answered every update, or that all were refused because the job may have changed
        since it was read. If rlalloc fails to write one, the entry stays open.
        """
        plans = unless_odd(application.job_id, partial(_restorations, application, job, whole=whole))
        changed = True
        for plan in plans or ():
            answer = self._updates.update(as_read(plan, self._updates.read_s))
            if not answer.answered:
                return "unanswered"
            changed &= answer.changed
        if plans is None:
            return "unanswered"
        return "changed" if changed and plans else "answered"

    def _note_restoring(self, application: Application, why: str) -> Application:
        if application.state == "restoring":
            return application
        _log.warning("job %d: restoring the request: %s", application.job_id, why, extra=_fields(application))
        self._journal.mark([application], "restoring", why)
        return msgspec.structs.replace(application, state="restoring", detail=why)

    def _note_unverified(self, application: Application, job: JobRecord | None) -> None:
        """Note the end of a job that is no longer pending and so cannot be changed any more.

        The next cycle looks again at one that is between two states, or of which the request was not shown.
        """
        if job is None:
            self._journal.mark(
                [application], "lost", "slurmctld had forgotten it before it could be read back (see sacct)"
            )
        elif job.unread or job.state in _BETWEEN:
            what = "not shown in full" if job.unread else job.state
            _log.info("job %d is %s: the next cycle looks again", job.job_id, what, extra=_fields(application))
        elif not job.has_run:
            self._journal.mark([application], "gone", f"{job.state} before it started")
        else:
            taken_back = application.state == "restoring"
            started = (verify_kept_as_started if taken_back else verify_as_started)(job, application)
            if started.verdict == "as decided":
                self._journal.mark([application], "begun", "it started with the decided size")
            elif started.verdict == "as submitted" and taken_back:
                _, state, why = _restored(application)
                self._journal.mark([application], state, why)
            elif started.verdict == "as submitted":
                self._journal.mark([application], "left", "it started as submitted")
            else:
                self._journal.mark([application], "lost", f"it started with neither size: {started.text}")


def unless_odd(job_id: int, look: Callable[[], _Found]) -> _Found | None:
    """What ``look`` finds; None if it fails by a fault of ours: one odd job must not keep the others from going on.

    Raises SlurmError, StoreError.
    """
    try:
        return look()
    except (SlurmError, StoreError):
        raise
    except Exception as err:  # noqa: BLE001 (as above)
        _log.exception("job %d: rlalloc failed, its update stays as it is: %r", job_id, err, extra={"job_id": job_id})
        return None


def _look_at(application: Application, job: JobRecord) -> tuple[Verification, str]:
    finding = verify(job, application)
    return finding, _kept(application, finding, job)


def _restorations(application: Application, job: JobRecord, *, whole: bool) -> list[UpdatePlan]:
    kept = None if whole else kept_changes(application, job)
    plans = restorations_for(application, job)
    return [plan if kept is None else kept.left_out_of(plan) for plan in plans]


def _moved(application: Application, finding: Verification, job: JobRecord) -> str:
    """How others moved a job to other limits around its update: Slurm did not check its new size against them."""
    before = record_before(application)
    if before is None or not is_new_size(application, finding):
        return ""
    moved = moves(before, job)
    return f"someone else changed it since it was read: {'; '.join(moved)}" if moved else ""


def _left(application: Application, refusal: str) -> tuple[Application, ApplicationState, str]:
    why = f"refused: {refusal}" if refusal else "slurmctld never carried it out"
    return application, "left", f"the update changed nothing, the job runs as submitted; {why}"


def _kept(application: Application, finding: Verification, job: JobRecord) -> str:
    """What others changed of a job that is otherwise as submitted again; empty if anything else differs."""
    if application.state != "restoring" or finding.verdict == "as decided":
        return ""
    kept = kept_changes(application, job)
    as_submitted = kept is not None and verify_kept(job, application, kept).verdict == "as submitted"
    return kept.text if kept is not None and as_submitted else ""


def _restored(application: Application, kept: str = "") -> tuple[Application, ApplicationState, str]:
    but = f", except what someone else set ({kept})" if kept else ""
    return application, "restored", f"request restored{but}: {application.detail}"


def _fields(application: Application) -> dict[str, object]:
    return {"job_id": application.job_id, "decision_id": application.decision_id}
