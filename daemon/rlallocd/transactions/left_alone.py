"""``rlalloc off JOBID``: a pending job that its user, or root, wants left alone gets its request back and keeps it.

Slurm lets no user change an AdminComment, so users ask through the daemon's socket. The thread that serves it
(``rlallocd.users.user_service``) hands the request to the loop, which alone changes jobs. The job's tag then says
``skip=off``: it holds for as long as the job does, whatever is restarted.
"""

import logging
import queue
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as TooLate
from typing import Final

import msgspec

from rlalloc.store import Decision, JobHistory, Store
from rlalloc.user_messages import UserServiceError
from rlallocd.slurm import CommandDied, JobRecord, Slurm, UpdatePlan, UpdateRefused
from rlallocd.submissions.candidates import Candidate
from rlallocd.submissions.job_tag import fits_slurmdbd, read_tag, with_plan_note, with_skip
from rlallocd.transactions.transactions import Applier, TakenBack

_log = logging.getLogger(__name__)

OFF: Final = "off"
"""The name of the reason for which such a job is skipped."""
_NOT_YOURS: Final = "no job {} of yours is in the queue"
_NOT_THERE: Final = "no job {} is in the queue"
_LATER: Final = "slurmctld or the store does not answer rlallocd now: try again later"


class OffRequest(msgspec.Struct, frozen=True):
    """Who wants which job left alone, and why. ``any_job``: not only one of ``user``."""

    job_id: int
    user: str
    uid: int
    any_job: bool
    reason: str = ""

    @property
    def who(self) -> str:
        """Who asks, for the log and the journal."""
        why = f": {self.reason}" if self.reason else ""
        return f"{self.user or 'a user without a name'} (uid {self.uid}) asked to leave it alone{why}"


class OffRequests:
    """Requests on their way from the thread that serves users to the loop."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[tuple[OffRequest, Future[str]]] = queue.SimpleQueue()
        self._users: Mapping[int, str] = {}

    def saw(self, jobs: Sequence[JobRecord]) -> None:
        """Note whose jobs are in the queue."""
        self._users = {job.base_id: job.user for job in jobs}

    def knows(self, job_id: int) -> bool:
        """Whether the loop has seen a job."""
        return job_id in self._users

    def require_own(self, request: OffRequest) -> None:
        """Raise UserServiceError for a job that is known to be another user's: the loop need not come to it."""
        if not request.any_job and self._users.get(request.job_id, request.user) != request.user:
            raise UserServiceError(_NOT_YOURS.format(request.job_id))

    def ask(self, request: OffRequest, within_s: float, wake: Callable[[], None]) -> str:
        """What the loop did, in words. Raises UserServiceError if it refuses, or does not come to it in time."""
        answer: Future[str] = Future()
        self._waiting.put((request, answer))
        wake()
        try:
            return answer.result(within_s)
        except (TooLate, CancelledError):
            if answer.cancel():
                raise UserServiceError(_LATER) from None
            return answer.result(within_s)  # the loop is at it

    def take(self) -> list[tuple[OffRequest, "Future[str]"]]:
        """Those that nobody has given up."""
        taken = []
        while not self._waiting.empty():
            request, answer = self._waiting.get()
            if answer.set_running_or_notify_cancel():
                taken.append((request, answer))
        return taken


class LeftAlone:
    """Carries requests out, in the loop."""

    def __init__(self, slurm: Slurm, store: Store, applier: Applier) -> None:
        self.requests = OffRequests()
        self._slurm = slurm
        self._store = store
        self._applier = applier
        self._asked: dict[tuple[int, int], str] = {}

    def carry_out(self, jobs: Sequence[JobRecord]) -> tuple[JobRecord, ...]:
        """Answer all requests; return the jobs with their new tags. Raises SlurmUnavailable, StoreError."""
        marked: dict[int, str] = {}
        self._asked = {}
        self.requests.saw(jobs)
        taken = self.requests.take()
        try:
            for request, answer in taken:
                try:
                    answer.set_result(self._leave(request, jobs, marked))
                except (UserServiceError, UpdateRefused) as err:
                    answer.set_exception(UserServiceError(str(err)))
                except CommandDied as err:  # where it was carried out, who asks again gets the request back
                    _log.info("job %d: a request to leave it alone failed: %s", request.job_id, err)
                    answer.set_exception(UserServiceError(_LATER))
        finally:  # whatever has failed
            for _, answer in taken:
                if not answer.done():
                    answer.set_exception(UserServiceError(_LATER))
        return tuple(
            msgspec.structs.replace(job, admin_comment=marked[job.job_id]) if job.job_id in marked else job
            for job in jobs
        )

    def naming_who(self, decided: Sequence[tuple[Candidate, Decision]]) -> list[tuple[Candidate, Decision]]:
        """The same decisions; those on jobs that this cycle leaves alone say who asked for it."""
        return [
            (candidate, msgspec.structs.replace(decision, reason=f"{OFF}: {who}"))
            if decision.skip_code == OFF and (who := self._asked.get(candidate.key)) is not None
            else (candidate, decision)
            for candidate, decision in decided
        ]

    def _leave(self, request: OffRequest, jobs: Sequence[JobRecord], marked: dict[int, str]) -> str:
        """Mark one job and give it its request back; say what was done. Raises UserServiceError, SlurmError.

        In an array, the tasks that wait together are one record. Each requeued task is a record of its own.
        """
        number = request.job_id
        mine = [job for job in jobs if job.base_id == number and (request.any_job or job.user == request.user)]
        if not mine:
            raise UserServiceError((_NOT_THERE if request.any_job else _NOT_YOURS).format(number))
        waiting = [job for job in mine if job.pending]
        if not waiting:
            raise UserServiceError(f"job {number} has started: rlalloc never changes a job that has")
        histories = self._store.histories({(number, job.submitted_s) for job in waiting})
        answers, refusals = [], []
        for job in waiting:
            try:
                answers.append(self._leave_record(job, histories.get((number, job.submitted_s)), request, marked))
            except (UserServiceError, UpdateRefused) as err:
                refusals.append(str(err))
        said = "; ".join(dict.fromkeys(answers + refusals))
        if not answers:
            raise UserServiceError(said)
        return said

    def _leave_record(
        self, job: JobRecord, history: JobHistory | None, request: OffRequest, marked: dict[int, str]
    ) -> str:
        number = request.job_id
        tag = read_tag(marked.get(job.job_id, job.admin_comment))
        if tag is None:
            return f"rlalloc does not cover job {number}: it is as submitted"
        if tag.skip == OFF:
            return self._leave_again(job, history, request)
        together = job.is_split and not job.is_own_task
        if together and not job.array_tasks:
            raise UserServiceError(f"Slurm does not say which tasks of array {number} wait: they keep their size")
        comment = with_plan_note(with_skip(job.admin_comment, OFF), None)
        if not fits_slurmdbd(comment):
            raise UserServiceError(f"the AdminComment of job {number} is full: ask an administrator")
        if history is not None and history.is_open:  # it would end in a size of ours afterwards
            raise UserServiceError(f"rlalloc is changing job {number} just now: try again in a few seconds")
        mark = UpdatePlan(job_id=job.job_id, fields=(("AdminComment", comment),))
        self._slurm.update(mark.of_tasks(job.array_tasks) if together else mark)
        marked[job.job_id] = comment
        _log.info("job %d is left alone from now on: %s", job.job_id, request.who, extra={"job_id": job.job_id})
        is_known = (number, job.submitted_s) in self._asked
        self._asked[number, job.submitted_s] = request.who
        if history is None:
            return f"job {number} is left alone from now on; it runs as submitted"
        if not is_known:
            self._store.add_decisions([_left_alone(history.decisions[0], request.who)])
        return self._told(job, history, self._applier.take_back(job.job_id, history, request.who))

    def _leave_again(self, job: JobRecord, history: JobHistory | None, request: OffRequest) -> str:
        """As if asked once; where Slurm or the store failed in between the first time, the request comes back now."""
        if history is not None and not history.is_open:
            taken_back = self._applier.take_back(job.job_id, history, request.who)
            if taken_back != "not ours":
                return self._told(job, history, taken_back)
        return f"job {job.base_id} is left alone already"

    def _told(self, job: JobRecord, history: JobHistory, taken_back: TakenBack) -> str:
        done = f"job {job.base_id} is left alone from now on"
        match taken_back:
            case "restored":
                return f"{done}; it has its request back: {history.request.describe()}"
            case "not yet":
                return f"{done}; Slurm has not given its request back so far: see rlalloc explain {job.base_id}"
            case "not ours":
                return f"{done}; it keeps the size that it has"


def _left_alone(first: Decision, who: str) -> Decision:
    """What the store says of a decided job from now on."""
    return Decision(
        id=str(uuid.uuid4()),
        job_id=first.job_id,
        submitted_s=first.submitted_s,
        decided_s=time.time(),
        user=first.user,
        account=first.account,
        partition=first.partition,
        job_name=first.job_name,
        job_class=first.job_class,
        rule=first.rule,
        mode=first.mode,
        reason=f"{OFF}: {who}",
        request=first.request,
    )
