"""Deciding pending jobs again, by the rules of ``rlalloc.late_decisions``: a pass through each partition's queue.

Nothing here touches Slurm or the store.
"""

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np

from rlalloc.allocation import allocation_for
from rlalloc.config import Config
from rlalloc.heuristics import smallest
from rlalloc.job import Allocation, JobView
from rlalloc.late_decisions import DEPTH, LateRules, Waiting, decide_pass, left_by
from rlalloc.messages import PolicyAnswer
from rlalloc.observation import EncodedQuestion, encode
from rlalloc.store import Decision, JobHistory
from rlalloc.view import ClusterView, FloatArray
from rlallocd.agent_client import AgentClient
from rlallocd.candidates import WAITS_FOR_RESOURCES, Candidate, job_view
from rlallocd.cluster_views import ClusterViews, queue_of
from rlallocd.decisions import Question, Snapshot, decision_from
from rlallocd.job_plans import gpu_memory_gib
from rlallocd.redecision_rules import (
    Situation,
    changed_enough,
    is_new,
    situation_at,
    situation_in,
    starts_within_s,
    takes_more,
    why_not_redecided,
)
from rlallocd.request_sizes import Skipped, check_form, size_of
from rlallocd.slurm import JobRecord
from rlallocd.unchecked_nodes import require_checked

_log = logging.getLogger(__name__)

JobKey = tuple[int, int]
"""Job id and submit second, as in ``Candidate.key``."""
Decided = list[tuple[Candidate, Decision]]


@dataclasses.dataclass(frozen=True)
class _Asking:
    """Asks the agent, and calls ``progress`` after each step."""

    agent: AgentClient
    progress: Callable[[], None]

    def answer(self, question: EncodedQuestion) -> tuple[PolicyAnswer, str]:
        """The policy's answer, and its version. Raises AgentUnavailable."""
        answered = self.agent.decide([question], sample=False)
        self.progress()
        return answered.answers[0], answered.policy_version


def redecide(
    pending: Sequence[Candidate],
    histories: Mapping[JobKey, JobHistory],
    asked: dict[JobKey, Situation],
    snapshot: Snapshot,
    config: Config,
    agent: AgentClient,
    progress: Callable[[], None] = lambda: None,
) -> Decided:
    """Decisions for those pending jobs that could start now and that another size serves better.

    ``asked`` holds the situation of the last question about a job, if there was one after its decision; this notes
    those of now. The policy answers with its mean: the predicted gain decides what is done, so these decisions have
    no probability. ``progress`` is called for each job and after each question. Raises AgentUnavailable.
    """
    views = snapshot.views(config)
    asking = _Asking(agent, progress)
    decided: Decided = []
    for name in sorted({candidate.partition for candidate in pending}):
        mine = {each.job.job_id: each for each in pending if each.partition == name}
        try:
            decided += _Pass(name, mine, histories, asked, snapshot, config, asking, views).decided()
        except Skipped:
            continue  # no usable node: no size could start there
    return decided


class _Pass:
    """One pass through the queue of one partition."""

    def __init__(
        self,
        partition: str,
        candidates: Mapping[int, Candidate],
        histories: Mapping[JobKey, JobHistory],
        asked: dict[JobKey, Situation],
        snapshot: Snapshot,
        config: Config,
        asking: _Asking,
        views: ClusterViews,
    ) -> None:
        """Raise Skipped if the partition has no usable node."""
        self._partition = partition
        self._view = views.of(partition)
        self._candidates = candidates
        self._histories = histories
        self._asked = asked
        self._snapshot = snapshot
        self._config = config
        self._asking = asking
        self._views = views
        self._queue = queue_of(partition, snapshot.jobs, snapshot.taken_s)
        self._seen: dict[int, JobView] = {}
        self._decisions: dict[int, Decision] = {}

    def decided(self) -> Decided:
        """The jobs that get another size, each with its decision."""
        section = self._config.redecision
        view = dataclasses.replace(self._view, free=left_by(self._new_sizes(), self._view.free))
        waiting = [self._waiting(place, job, view) for place, job in enumerate(self._queue[:DEPTH])]
        resized = decide_pass(
            waiting,
            len(self._queue),
            view,
            self._limits(),
            self._ask,
            LateRules(head=section.head, min_gain=section.min_gain, max_updates=section.max_updates),
            self._accept,
        )
        return [
            (
                self._candidates[self._queue[place].job_id],
                msgspec.structs.replace(self._decisions[place], predicted_gain=each.gain),
            )
            for place, each in resized.items()
        ]

    def _waiting(self, place: int, job: JobRecord, view: ClusterView) -> Waiting:
        """One job of the queue; ``least`` is set where the agent may be asked about it now."""
        self._asking.progress()
        run_s = self._snapshot.run_times.expected_s(job)
        size = _size_if_it_waits_for_resources(job)
        seen = self._job(place, view) if size is not None else None
        if seen is None:
            return Waiting(size, run_s)
        self._seen[place] = seen
        least = allocation_for(smallest(seen, view), seen.request, seen.bounds, view.shape, lambda _: 1.0)
        within_s = starts_within_s(job, self._snapshot.taken_s)
        return Waiting(size, run_s, seen.request, seen.run_time, least, within_s, seen.speed)

    def _job(self, place: int, view: ClusterView) -> JobView | None:
        """What the policy sees of the job at a place of the queue; None if nothing may be asked about it now."""
        job = self._queue[place]
        candidate = self._candidates.get(job.job_id)
        history = None if candidate is None else self._histories.get(candidate.key)
        if candidate is None or history is None:
            return None
        rule = self._config.rule(candidate.tag.rule)
        why = why_not_redecided(job, history, place, view, self._config.redecision, self._snapshot.taken_s)
        if why:
            _log.debug("job %d keeps its size: %s", job.job_id, why, extra={"job_id": job.job_id})
        if why or rule is None:
            return None
        try:
            check_form(job)
            require_checked(job, self._snapshot.unchecked)
            return job_view(candidate, history.request, rule, view, self._views, self._config)
        except Skipped:
            return None  # the site, its rules or the job have changed since the first decision

    def _ask(self, place: int, view: ClusterView) -> Allocation | None:
        candidate = self._candidates[self._queue[place].job_id]
        history, now = self._histories[candidate.key], situation_in(view)
        then = self._asked.get(candidate.key) or situation_at(history.decisions[-1])
        if not changed_enough(then, now, self._config.redecision.change):
            return None
        seen = self._seen[place]
        question = Question(
            candidate,
            seen,
            view,
            encode(seen, view, self._config.objective.weights),
            gpu_memory_gib(candidate.job.gpu_type, view, self._config),
        )
        answer, version = self._asking.answer(question.encoded)
        self._asked[candidate.key] = now
        decision = decision_from(question, answer, version, self._snapshot)
        if decision.allocation is None or not _may_become(decision.allocation, history, self._snapshot):
            return None
        self._decisions[place] = msgspec.structs.replace(decision, log_probability=None)
        return decision.allocation

    def _accept(self, place: int, size: Allocation) -> None:
        """Count a size against the limits from now on."""
        self._snapshot.granted[self._queue[place].job_id] = size

    def _new_sizes(self) -> list[Allocation]:
        """What this cycle gave to jobs that are not in the queue yet."""
        queued = {job.job_id for job in self._queue}
        return [
            self._snapshot.granted[job.job_id]
            for job in self._snapshot.jobs
            if job.job_id in self._snapshot.granted
            and job.job_id not in queued
            and job.partition.split(",")[0] == self._partition
        ]

    def _limits(self) -> FloatArray:
        """Seconds until each job that runs in the partition reaches its time limit, and its GPUs: (running, 2)."""
        now_s = self._snapshot.taken_s
        rows = [
            (max(0.0, job.started_s + job.time_limit_s - now_s), job.gpus)
            for job in self._snapshot.jobs
            if job.running and self._partition in job.partition.split(",")
        ]
        return np.array(rows, dtype=np.float64).reshape(-1, 2)


def _may_become(proposed: Allocation, history: JobHistory, snapshot: Snapshot) -> bool:
    """Whether a pending job may get this size, whatever it saves.

    slurmctld no longer checks group limits of a job that an operator has changed. So where limits are enforced, such
    a job never grows again.
    """
    if not is_new(proposed, history):
        return False
    unlimited = snapshot.limits is not None and not snapshot.limits.enforced
    return unlimited or not takes_more(proposed, history.size)


def _size_if_it_waits_for_resources(job: JobRecord) -> Allocation | None:
    if job.reason not in WAITS_FOR_RESOURCES:
        return None
    try:
        return size_of(job)
    except Skipped:
        return None
