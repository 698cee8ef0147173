"""Deciding pending jobs again, by the rules of ``rlalloc.late_decisions``: a pass through each queue for nodes.

Nothing here touches Slurm or the store.
"""

import contextlib
import dataclasses
import itertools
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from rlalloc.allocation import allocation_for
from rlalloc.config import Config
from rlalloc.errors import RlallocError
from rlalloc.heuristics import smallest
from rlalloc.job import Allocation, JobView
from rlalloc.late_decisions import DEPTH, LateRules, PoolNow, Waiting, decide_pass, shared_devices
from rlalloc.messages import PolicyAnswer
from rlalloc.objective import Weights
from rlalloc.observation import EncodedQuestion, encode
from rlalloc.pool import Stock
from rlalloc.store import Decision, JobHistory
from rlalloc.view import ClusterView
from rlallocd.cluster.cluster_views import ClusterViews, require_alike
from rlallocd.cluster.licenses import require_licenses_read
from rlallocd.cluster.node_access import Access
from rlallocd.cluster.unchecked_nodes import require_checked
from rlallocd.decisions.agent_client import AgentClient
from rlallocd.decisions.decisions import Snapshot, decision_from, typed_decision_from
from rlallocd.decisions.pending_types import OnType, PendingTypes
from rlallocd.decisions.questions import AnswersOnTypes, Question, answers_on_types
from rlallocd.decisions.redecision_rules import (
    Situation,
    changed_enough,
    is_new,
    situation_at,
    situation_in,
    starts_within_s,
    takes_more,
    why_not_redecided,
)
from rlallocd.knowledge.job_plans import gpu_memory_gib
from rlallocd.slurm import JobRecord
from rlallocd.submissions.candidates import WAITS_FOR_RESOURCES, Candidate, job_view
from rlallocd.submissions.request_sizes import Skipped, check_form, size_of
from rlallocd.transactions.journal_entries import record_before

_log = logging.getLogger(__name__)

JobKey = tuple[int, int]
"""Job id and submit second, as in ``Candidate.key``."""
Decided = list[tuple[Candidate, Decision]]
_Found = TypeVar("_Found")


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

    def on_types(self, question: Question, answer: PolicyAnswer, version: str, objective: Weights) -> AnswersOnTypes:
        """What it answers on the nodes of each type. Raises AgentUnavailable."""
        (found,) = answers_on_types([(question, answer)], version, self.agent, objective, self.progress)
        return found


class _Answered(NamedTuple):
    """What was asked about a job, and the answer of which version of the policy."""

    question: Question
    answer: PolicyAnswer
    version: str


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
    mine = {each.job.job_id: _with_request(each, histories.get(each.key)) for each in pending}
    decided: Decided = []
    for places in views.waiting.components():
        waiting = (views.waiting.jobs[place] for place in places.tolist())
        queue = list(itertools.islice(filter(views.backfill.reaches, waiting), DEPTH))
        if any(job.job_id in mine for job in queue):
            decided += _Pass(queue, mine, histories, asked, snapshot, config, asking, views).decided()
    return decided


def _with_request(candidate: Candidate, history: JobHistory | None) -> Candidate:
    """The candidate with its fields before our first update, which the queue does not show any more."""
    first = record_before(history.applications[0]) if history is not None and history.applications else None
    return candidate if first is None else msgspec.structs.replace(candidate, asked=first.fields)


class _Pass:
    """One pass through the queue of jobs that compete for the same nodes, directly or through others."""

    def __init__(
        self,
        queue: Sequence[JobRecord],
        candidates: Mapping[int, Candidate],
        histories: Mapping[JobKey, JobHistory],
        asked: dict[JobKey, Situation],
        snapshot: Snapshot,
        config: Config,
        asking: _Asking,
        views: ClusterViews,
    ) -> None:
        self._candidates = candidates
        self._histories = histories
        self._asked = asked
        self._snapshot = snapshot
        self._config = config
        self._asking = asking
        self._views = views
        self._stock = Stock(views.pools.free)
        self._numbers: dict[Access, int] = {}
        self._access: list[Access] = []
        self._queue: list[JobRecord] = []
        for job in queue:
            with contextlib.suppress(Skipped):  # no usable node: no size could start
                self._access.append(views.access_in_queue(job))
                self._queue.append(job)
        self._pool = [self._number(access) for access in self._access]
        self._types = PendingTypes(views, config)
        self._on_types: dict[int, Mapping[str, OnType]] = {}
        self._seen: dict[int, JobView] = {}
        self._answered: dict[int, _Answered] = {}
        self._proposed: dict[int, dict[Allocation, Decision]] = defaultdict(dict)

    def decided(self) -> Decided:
        """The jobs that get another size, each with its decision."""
        section = self._config.redecision
        self._place_new_sizes()
        waiting = [
            self._or_kept(place, partial(self._waiting, place, job)) or self._kept(place, job)
            for place, job in enumerate(self._queue)
        ]
        pools = [self._now(access) for access in self._numbers]
        resized = decide_pass(
            waiting,
            pools,
            shared_devices([self._views.pools.devices_of(access.pool) for access in self._numbers]),
            self._stock,
            lambda place, view: self._or_kept(place, partial(self._ask, place, view)),
            LateRules(
                head=section.head,
                min_gain=section.min_gain,
                max_updates=section.max_updates,
                window_s=self._snapshot.scheduling.bf_window_s,
            ),
            self._accept,
            lambda place, views: self._or_kept(place, partial(self._choose_type, place, views)),
        )
        return [
            (
                self._candidates[self._queue[place].job_id],
                msgspec.structs.replace(self._proposed[place][each.size], predicted_gain=each.gain),
            )
            for place, each in resized.items()
        ]

    def _number(self, access: Access) -> int:
        return self._numbers.setdefault(access, len(self._numbers))

    def _history(self, place: int) -> JobHistory:
        return self._histories[self._candidates[self._queue[place].job_id].key]

    def _now(self, access: Access) -> PoolNow:
        competing = self._views.waiting.competing_for(access.pool)
        pool, limits = self._views.pool(access), self._views.limits(access)
        return PoolNow(pool, self._views.whole(access), limits, len(competing.demands))

    def _or_kept(self, place: int, asked: Callable[[], _Found]) -> _Found | None:
        """What was asked about a job, or None: one odd job must not keep the others from being decided."""
        try:
            return asked()
        except RlallocError:  # no agent, or told to stop: of all jobs
            raise
        except Exception as err:  # noqa: BLE001 (it is logged)
            job_id = self._queue[place].job_id
            _log.exception("job %d keeps its size because of an error in rlalloc: %r", job_id, err)
            return None

    def _kept(self, place: int, job: JobRecord) -> Waiting:
        return Waiting(None, float(job.most_s), pool=self._pool[place], tasks=job.waiting_tasks)

    def _waiting(self, place: int, job: JobRecord) -> Waiting:
        """One job of the queue; ``least`` is set where the agent may be asked about it now."""
        self._asking.progress()
        run_s = self._snapshot.run_times.expected_s(job)
        size = _size_if_it_waits_for_resources(job)
        view = self._views.whole(self._access[place])
        seen = self._job(place, view) if size is not None else None
        if size is None or seen is None:
            return Waiting(size, run_s, pool=self._pool[place], tasks=job.waiting_tasks)
        self._seen[place] = seen
        size = msgspec.structs.replace(size, gpu_type=self._history(place).size.gpu_type)
        least = allocation_for(smallest(seen, view), seen.request, seen.bounds, view.shape, lambda _: 1.0)
        # The pass only takes from the stock: a job without room now is not asked about, and needs no types.
        starts = self._stock.has_room(self._views.pool(self._access[place]), least)
        if size.gpu_type is None and starts:
            self._on_types[place] = self._types.of(self._candidates[job.job_id], self._access[place])
        within_s = starts_within_s(job, self._snapshot.taken_s)
        return Waiting(
            *(size, run_s, seen.request, seen.run_time, least, within_s, seen.speed, self._pool[place]),
            on_types={name: self._number(each.access) for name, each in self._on_types.get(place, {}).items()},
        )

    def _job(self, place: int, view: ClusterView) -> JobView | None:
        """What the policy sees of the job at a place of the queue; None if nothing may be asked about it now."""
        job = self._queue[place]
        candidate = self._candidates.get(job.job_id)
        history = None if candidate is None else self._histories.get(candidate.key)
        if candidate is None or history is None:
            return None
        rule = self._config.rule(candidate.tag.rule)
        fits_at_head = self._is_at_head(place) and view.fits_now(history.size)
        why = why_not_redecided(
            job, history, self._config.redecision, self._snapshot.taken_s, fits_at_head=fits_at_head
        )
        if why:
            _log.debug("job %d keeps its size: %s", job.job_id, why, extra={"job_id": job.job_id})
        if why or rule is None:
            return None
        try:
            check_form(job)
            require_alike(job, self._views.pools)
            require_checked(job, self._snapshot.unchecked)
            require_licenses_read(job, self._snapshot.limits)
            return job_view(candidate, history.request, rule, view, self._views, self._config)
        except Skipped:
            return None  # the site, its rules or the job have changed since the first decision

    def _is_at_head(self, place: int) -> bool:
        """Whether no other job waits ahead for the same nodes."""
        waiting = self._views.waiting
        rows, _ = waiting.competing_for(self._access[place].pool).rows_at(waiting.place_of(self._queue[place])[0])
        return rows == 0

    def _ask(self, place: int, view: ClusterView) -> Allocation | None:
        candidate, history = self._candidates[self._queue[place].job_id], self._history(place)
        now = situation_in(view)
        then = self._asked.get(candidate.key) or situation_at(history.decisions[-1])
        if not changed_enough(then, now, self._config.redecision.change):
            return None
        seen = self._seen[place]
        question = Question(
            candidate,
            seen,
            view,
            encode(seen, view, self._config.objective.weights),
            self._access[place],
            gpu_memory_gib(candidate.job.gpu_type, view, self._config),
            self._config.scripts,
            history.size.gpu_type,
        )
        answer, version = self._asking.answer(question.encoded)
        self._asked[candidate.key] = now
        self._answered[place] = _Answered(question, answer, version)
        return self._propose(place, decision_from(question, answer, version, self._snapshot))

    def _choose_type(self, place: int, views: Mapping[str, ClusterView]) -> Allocation | None:
        if place not in self._answered:
            return None
        plain, answer, version = self._answered[place]
        question = self._types.with_types(plain, self._history(place).request, self._on_types[place], views)
        on_types = self._asking.on_types(question, answer, version, self._config.objective.weights)
        return self._propose(place, typed_decision_from(question, answer, on_types, version, self._snapshot))

    def _propose(self, place: int, decision: Decision | None) -> Allocation | None:
        """The size of a decision, if the job may get it; it is noted for the case that it does."""
        size = None if decision is None else decision.allocation
        if decision is None or size is None or not _may_become(size, self._history(place), self._snapshot):
            return None
        self._proposed[place][size] = msgspec.structs.replace(decision, log_probability=None)
        return size

    def _accept(self, place: int, size: Allocation) -> None:
        """Count a size against the limits from now on."""
        self._snapshot.granted[self._queue[place].job_id] = size

    def _place_new_sizes(self) -> None:
        """Let the jobs start that this cycle has given a size and that are not in the queue yet."""
        for job in self._snapshot.jobs:
            size = self._snapshot.granted.get(job.job_id)
            if size is not None and not self._views.waiting.place_of(job)[1]:
                with contextlib.suppress(Skipped):
                    self._stock.take(self._views.pool(self._views.access_in_queue(job)), size)


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
        return msgspec.structs.replace(size_of(job), time_limit_s=job.most_s)
    except Skipped:
        return None
