"""Deciding pending jobs again: one question to the agent for all of them; only a size that pays becomes a decision.

Nothing here touches Slurm or the store.
"""

import logging
from collections.abc import Mapping, Sequence

import msgspec

from rlalloc.config import Config
from rlalloc.job import Allocation
from rlalloc.observation import encode
from rlalloc.store import Decision, JobHistory
from rlalloc.view import ClusterView
from rlallocd.agent_client import AgentClient
from rlallocd.candidates import Candidate, job_view
from rlallocd.cluster_views import ClusterViews, queue_of, seen_from
from rlallocd.decisions import Question, Snapshot, decision_from
from rlallocd.job_plans import gpu_memory_gib
from rlallocd.limits import obstacle
from rlallocd.redecision_rules import (
    Proposal,
    Situation,
    changed_enough,
    could_start_now,
    gains_that_pay,
    is_new,
    situation_at,
    situation_in,
    starts_within_s,
    takes_more,
    why_not_redecided,
)
from rlallocd.request_sizes import Skipped, check_form
from rlallocd.slurm import JobRecord

_log = logging.getLogger(__name__)

JobKey = tuple[int, int]
"""Job id and submit second, as in ``Candidate.key``."""


class Redecisions(msgspec.Struct, frozen=True):
    """The result of one round: the jobs asked about, and those for which another size pays."""

    asked: Mapping[JobKey, Situation]
    decided: tuple[tuple[Candidate, Decision], ...]


class _Partition(msgspec.Struct, frozen=True):
    """One partition as all its pending jobs see it."""

    queue: tuple[JobRecord, ...]
    view: ClusterView


def redecide(
    pending: Sequence[Candidate],
    histories: Mapping[JobKey, JobHistory],
    asked_before: Mapping[JobKey, Situation],
    snapshot: Snapshot,
    config: Config,
    agent: AgentClient,
) -> Redecisions:
    """Decisions for those pending jobs that another size serves better; the agent is asked about all in one batch.

    ``asked_before`` holds the situation of the last question about a job, if there was one after its decision. The
    policy answers with its mean: the predicted gain decides what is done, so these decisions have no probability.
    Raises AgentUnavailable.
    """
    views = ClusterViews(snapshot.nodes, snapshot.jobs, snapshot.taken_s, config.urgency, snapshot.run_times)
    partitions = _partitions(pending, snapshot, views)
    questions = {
        candidate.key: question
        for candidate in pending
        if (history := histories.get(candidate.key)) is not None
        and (partition := partitions.get(candidate.partition)) is not None
        and (question := _question(candidate, history, partition, views, asked_before, snapshot, config)) is not None
    }
    if not questions:
        return Redecisions({}, ())
    answers = agent.decide([each.encoded for each in questions.values()], sample=False)
    decisions = {
        key: msgspec.structs.replace(
            decision_from(question, answer, answers.policy_version, snapshot), log_probability=None
        )
        for (key, question), answer in zip(questions.items(), answers.answers, strict=True)
    }
    proposed = {
        key: decision.allocation
        for key, decision in decisions.items()
        if decision.allocation is not None and _may_become(decision.allocation, histories[key], snapshot)
    }
    decided = [
        (questions[key].candidate, msgspec.structs.replace(decisions[key], predicted_gain=gain))
        for name, partition in partitions.items()
        for key, gain in _gains(
            name, partition, questions, proposed, histories, snapshot, config.redecision.min_gain
        ).items()
    ]
    return Redecisions({key: situation_in(each.cluster) for key, each in questions.items()}, tuple(decided))


def _partitions(pending: Sequence[Candidate], snapshot: Snapshot, views: ClusterViews) -> dict[str, _Partition]:
    """The partitions of pending jobs, without those that have no usable node: no size could start there."""
    found = {}
    for name in sorted({candidate.partition for candidate in pending}):
        try:
            view = views.of(name)
        except Skipped:
            continue
        found[name] = _Partition(queue_of(name, snapshot.jobs, snapshot.taken_s), view)
    return found


def _question(
    candidate: Candidate,
    history: JobHistory,
    partition: _Partition,
    views: ClusterViews,
    asked_before: Mapping[JobKey, Situation],
    snapshot: Snapshot,
    config: Config,
) -> Question | None:
    """The question about one pending job, or None if there is nothing to ask now."""
    rule = config.rule(candidate.tag.rule)
    if rule is None:
        return None
    seen = seen_from(partition.queue.index(candidate.job), partition.queue, partition.view, snapshot.run_times)
    why = why_not_redecided(candidate.job, history, seen, config.redecision, snapshot.taken_s)
    then = asked_before.get(candidate.key) or situation_at(history.decisions[-1])
    if not why and not changed_enough(then, situation_in(seen), config.redecision.change):
        why = "nothing has changed enough"
    if why:
        _log.debug("job %d keeps its size: %s", candidate.job.job_id, why, extra={"job_id": candidate.job.job_id})
        return None
    try:
        check_form(candidate.job)
        view = job_view(candidate, history.request, rule, seen, views, config)
    except Skipped:
        return None  # the site, its rules or the job have changed since the first decision
    if len(seen.queued) >= config.redecision.head and not could_start_now(view, seen):
        return None
    memory_gib = gpu_memory_gib(candidate.job.gpu_type, seen, config)
    return Question(candidate, view, seen, encode(view, seen, config.objective.weights), memory_gib)


def _may_become(proposed: Allocation, history: JobHistory, snapshot: Snapshot) -> bool:
    """Whether a pending job may get this size, whatever it saves.

    slurmctld no longer checks group limits of a job that an operator has changed. So where limits are enforced, such
    a job never grows again.
    """
    if not is_new(proposed, history):
        return False
    unlimited = snapshot.limits is not None and not snapshot.limits.enforced
    return unlimited or not takes_more(proposed, history.size)


def _gains(
    name: str,
    partition: _Partition,
    questions: Mapping[JobKey, Question],
    proposed: Mapping[JobKey, Allocation],
    histories: Mapping[JobKey, JobHistory],
    snapshot: Snapshot,
    min_gain: float,
) -> dict[JobKey, float]:
    """The sizes proposed for one partition's jobs that pay, each with its predicted gain."""
    proposals = {}
    keys = {}
    for key, allocation in proposed.items():
        question = questions[key]
        if question.candidate.partition == name:
            place = len(question.cluster.queued)
            keys[place] = key
            proposals[place] = Proposal(
                request=question.view.request,
                present=histories[key].size,
                proposed=allocation,
                view=question.cluster,
                starts_within_s=starts_within_s(question.candidate.job, question.cluster.time_s),
                run_time=question.view.run_time,
            )
    gains = gains_that_pay(
        partition.queue,
        proposals,
        partition.view.free,
        min_gain,
        lambda place: _grant(questions[keys[place]], proposed[keys[place]], snapshot),
    )
    return {keys[place]: gain for place, gain in gains.items()}


def _grant(question: Question, allocation: Allocation, snapshot: Snapshot) -> bool:
    """Count a size against the limits from now on; refuse it if what other jobs were granted meanwhile forbids it."""
    job, wait_s = question.candidate.job, question.cluster.expected_wait_s(allocation)
    if obstacle(job, question.view.request, allocation, snapshot.site, wait_s):
        return False
    snapshot.granted[job.job_id] = allocation
    return True
