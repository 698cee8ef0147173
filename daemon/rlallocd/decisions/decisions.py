"""Decides a batch of candidates: views of the cluster, one question to the agent, allocations.

Nothing here touches Slurm or the store.
"""

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence, Set
from functools import cached_property, partial
from typing import Final, NamedTuple

import msgspec

from rlalloc.allocation import allocation_for, shares_of
from rlalloc.config import Config
from rlalloc.job import Allocation, Shares
from rlalloc.messages import PolicyAnswer
from rlalloc.objective import Resources
from rlalloc.observation import SCHEMA_ID
from rlalloc.speed.family_speeds import FamilySpeed, FamilySpeeds
from rlalloc.speed.longer_limits import expected_slowdown, slowdown_to_allow
from rlalloc.speed.type_speeds import TypeSpeeds
from rlalloc.store import Circumstances, Decision
from rlalloc.urgency import UrgencyRules, nice_for
from rlalloc.view import expected_run_time_s
from rlallocd.cluster.cluster_views import ClusterViews, gpu_types_for
from rlallocd.cluster.licenses import require_licenses_read
from rlallocd.cluster.node_access import SiteFacts
from rlallocd.cluster.node_demands import open_to
from rlallocd.cluster.node_pools import NodePools
from rlallocd.cluster.unchecked_nodes import NodesToAvoid, require_checked
from rlallocd.decisions.agent_client import AgentClient, AgentUnavailable
from rlallocd.decisions.first_sizes import FirstSizes
from rlallocd.decisions.questions import (
    AnswersOnTypes,
    Question,
    Typed,
    answers_on_all_nodes,
    answers_on_types,
    question_for,
    with_chosen_type,
)
from rlallocd.knowledge.job_plans import plan_of_job
from rlallocd.knowledge.known_run_times import LIMITS_ONLY, KnownRunTimes
from rlallocd.knowledge.known_usage import Usage, no_usage
from rlallocd.limits import SiteView, obstacle, shares_towards_request
from rlallocd.slurm import GpuDefaults, JobRecord, NodeRecord, PartitionRecord, SchedulingRules, SiteLimits
from rlallocd.submissions.candidates import Candidate
from rlallocd.submissions.request_sizes import FORMS_SKIPPED, Skipped, check_form, size_of

_log = logging.getLogger(__name__)

LEAST_GRACE_LEFT_S = 2.0
"""A job that may start within this time is left alone: an update must not reach a job that is starting."""
_PASSING: Final = frozenset({"no-gpu-node", "licenses-unread", "request-unread"})
"""Reasons that may be gone before a job's grace is over."""
_GRACE_TO_WAIT_S: Final = 10.0
"""With more of its grace left, a job waits for what passes: just after slurmctld's start, nodes are not ready."""


class Snapshot(msgspec.Struct, frozen=True, dict=True):
    """What one cycle knows of the cluster.

    ``limits`` are those of the users whose jobs we decide, None if they could not be read; ``memory_limits`` are
    slurm.conf's MaxMemPerNode and MaxMemPerCPU (MiB). ``run_times`` is what is known of the jobs' run times,
    ``usage`` what like jobs used.
    ``granted`` collects the sizes that this cycle gives to jobs. ``speeds`` says how each family of jobs scales.
    ``gpu_defaults`` are those of slurm.conf.
    ``unchecked`` are nodes on which Slurm may not call the TaskProlog.
    ``read_s`` is when the reading of the jobs began (seconds of uptime), None if that is not known. ``new_jobs`` are
    the ids of the jobs that the reading before this one did not show.
    """

    taken_s: float
    jobs: tuple[JobRecord, ...]
    nodes: tuple[NodeRecord, ...]
    partitions: Mapping[str, PartitionRecord]
    limits: SiteLimits | None
    memory_limits: tuple[int | None, int | None] = (None, None)
    run_times: KnownRunTimes = LIMITS_ONLY
    usage: Usage = no_usage
    granted: dict[int, Allocation] = msgspec.field(default_factory=dict)
    speeds: FamilySpeeds = msgspec.field(default_factory=FamilySpeeds)
    unchecked: NodesToAvoid = NodesToAvoid()
    scheduling: SchedulingRules = SchedulingRules()
    gpu_defaults: GpuDefaults = GpuDefaults()
    read_s: float | None = None
    new_jobs: Set[int] = frozenset()

    @cached_property
    def site(self) -> SiteView:
        """The parts of it that the checks of limits need."""
        return SiteView(
            now_s=self.taken_s,
            nodes=self.nodes,
            partitions=self.partitions,
            limits=self.limits,
            memory_limits=self.memory_limits,
            jobs=self.jobs,
            granted=self.granted,
            pools=self.pools,
        )

    @cached_property
    def awaited(self) -> tuple[NodeRecord, ...]:
        """Its nodes of which slurmctld, just started, does not know the state yet."""
        return tuple(node for node in self.nodes if node.awaited)

    @cached_property
    def pools(self) -> NodePools:
        """Its nodes, by what jobs ask of them."""
        return NodePools(self.nodes)

    def views(self, config: Config) -> ClusterViews:
        """What jobs see of it, with all that is known of them; made once."""
        known = config.urgency, config.type_speeds
        if known not in self._views:
            limits = self.limits or SiteLimits(enforced=False)
            facts = SiteFacts(
                partitions=self.partitions,
                reservations=limits.reservations,
                preempts=limits.preempts,
                scheduling=self.scheduling,
                licenses=limits.licenses,
                gpu_defaults=self.gpu_defaults,
                type_speeds=config.type_speeds,
            )
            self._views[known] = ClusterViews(
                self.pools, self.jobs, self.taken_s, config.urgency, self.run_times, self.usage, self.speeds, facts
            )
        return self._views[known]

    @cached_property
    def _views(self) -> dict[tuple[UrgencyRules, TypeSpeeds], ClusterViews]:
        return {}


class _Allowed(NamedTuple):
    """A size within the limits, or in ``reason`` why there is none; ``speed`` is how the job scales."""

    size: Allocation
    reason: str
    speed: FamilySpeed


def decide(
    candidates: Sequence[Candidate],
    snapshot: Snapshot,
    config: Config,
    agent: AgentClient,
    progress: Callable[[], None] = lambda: None,
) -> tuple[tuple[Candidate, Decision], ...]:
    """One decision for each candidate: an allocation, or the reason why the job is left as submitted.

    There is none yet for a job whose partition has no usable node, whose nodes have not all reported since slurmctld
    has started, or whose licences could not be read, as long as it can wait for them.
    ``progress`` is called for each job, before and after the agent is asked.
    """
    views = snapshot.views(config)
    questions: list[Question] = []
    decisions: list[tuple[Candidate, Decision]] = []
    for candidate in candidates:
        if _may_wait(candidate, snapshot) and open_to(candidate.job, snapshot.awaited):
            continue  # the nodes that have reported so far are not all that it may get
        try:
            questions.append(_question(candidate, views, snapshot, config))
        except Skipped as err:
            if not (err.name in _PASSING and _may_wait(candidate, snapshot)):
                decisions.append((candidate, left_as_submitted(candidate, snapshot, f"{err.name}: {err}")))
        except Exception as err:  # noqa: BLE001 (one odd job must not keep the others from being decided)
            decisions.append((candidate, _after_an_error(candidate, snapshot, err)))
        progress()
    questions.sort(key=lambda question: views.rank(question.candidate.job))
    return (*decisions, *_ask(questions, snapshot, views, config, agent, progress))


def _after_an_error(candidate: Candidate, snapshot: Snapshot, err: Exception) -> Decision:
    job_id = candidate.job.job_id
    _log.error("job %d runs as submitted because of an error in rlalloc: %r", job_id, err, exc_info=err)
    return left_as_submitted(candidate, snapshot, f"internal-error: {err!r}")


def executed_shares(decision: Decision, *, applied: bool) -> Shares | None:
    """The shares that were in effect: the decided ones where they were applied, else those of the request.

    An urgency that did not count is 1: the job kept its place.
    """
    if decision.bounds is None:
        return None
    if not applied or decision.shares is None:
        return shares_of(decision.request, decision.bounds)
    return decision.shares if decision.nice is not None else msgspec.structs.replace(decision.shares, urgency=1.0)


def _may_wait(candidate: Candidate, snapshot: Snapshot) -> bool:
    return candidate.deferred_by_us and candidate.tag.begin - snapshot.taken_s > _GRACE_TO_WAIT_S


def _question(candidate: Candidate, views: ClusterViews, snapshot: Snapshot, config: Config) -> Question:
    job = candidate.job
    check_form(job, skipped_at_submission=candidate.tag.skip)
    # A held job waits for its user or an admin: it is resized and stays held.
    if candidate.mode == "enforce" and not job.held:
        if not candidate.deferred_by_us:
            raise Skipped(
                "it no longer waits for rlalloc: its grace is over, or somebody changed its begin time", "late"
            )
        if candidate.tag.begin - snapshot.taken_s < LEAST_GRACE_LEFT_S:
            raise Skipped("its grace was nearly over", "late")
    if candidate.mode == "enforce" and candidate.split:
        raise Skipped(FORMS_SKIPPED["split-array"], "split-array")
    require_licenses_read(job, snapshot.limits)
    if candidate.mode == "enforce":
        require_checked(job, snapshot.unchecked)
    rule = config.rule(candidate.tag.rule)
    if rule is None:
        raise Skipped(f"the configuration no longer has the rule {candidate.tag.rule}", "no-rule")
    return question_for(candidate, rule, views, config)


def _ask(
    questions: Sequence[Question],
    snapshot: Snapshot,
    views: ClusterViews,
    config: Config,
    agent: AgentClient,
    progress: Callable[[], None],
) -> list[tuple[Candidate, Decision]]:
    if not questions:
        return []
    try:
        is_sampled = config.policy.exploration == "sample"
        decided = agent.decide([question.encoded for question in questions], sample=is_sampled)
    except AgentUnavailable as err:
        _log.warning("%d jobs run as submitted: %s", len(questions), err)
        return [(question.candidate, _unanswered(question, snapshot, f"no-agent: {err}")) for question in questions]
    first = FirstSizes(views, late=config.redecision.max_updates > 0)
    decisions = []
    answered = list(zip(questions, decided.answers, strict=True))
    on_types = answers_on_all_nodes(answered)
    if not is_sampled:  # else the drawn sizes stay
        try:
            on_types = answers_on_types(answered, decided.policy_version, agent, config.objective.weights, progress)
        except AgentUnavailable as err:
            _log.warning("no answers for single GPU types, the answer for all nodes sets the number of GPUs: %s", err)
    for (question, answer), on_its_types in zip(answered, on_types, strict=True):
        candidate = question.candidate
        try:
            decision = _first_decision(question, answer, on_its_types, decided.policy_version, snapshot, first)
        except Exception as err:  # noqa: BLE001 (as where the questions are made)
            decision = _after_an_error(candidate, snapshot, err)
        if decision.allocation is not None and candidate.mode == "enforce":
            snapshot.granted[candidate.job.job_id] = decision.allocation
        decisions.append((candidate, with_nice(decision, candidate.job, config.urgency)))
        progress()
    return decisions


def _first_decision(
    question: Question,
    answer: PolicyAnswer,
    on_types: AnswersOnTypes,
    version: str,
    snapshot: Snapshot,
    first: FirstSizes,
) -> Decision:
    allowed = _allowed(question, answer.shares, snapshot)
    typed = with_chosen_type(question, allowed.size, on_types)
    if typed is not None and (decision := _typed_decision(typed, answer, version, snapshot, first)) is not None:
        return decision
    if allowed.reason:
        return _as_allowed(question, answer, version, snapshot, allowed)
    shares = first.shares(question.candidate, question.view, question.access, allowed.size, answer.shares)
    if shares == answer.shares:
        return _as_allowed(question, answer, version, snapshot, allowed)
    waiting = decision_from(question, msgspec.structs.replace(answer, shares=shares), version, snapshot)
    return msgspec.structs.replace(waiting, log_probability=None)  # it is not what the policy drew


def _typed_decision(
    typed: Typed, answer: PolicyAnswer, version: str, snapshot: Snapshot, first: FirstSizes
) -> Decision | None:
    """The decision with a type that pays for the job; None if the job could not start at once."""
    allowed = _allowed(typed.question, typed.shares, snapshot)
    if allowed.reason or not first.starts(typed.question.candidate, typed.question.access, allowed.size):
        return None
    return _as_typed(typed, answer, version, snapshot, allowed)


def typed_decision_from(
    question: Question, answer: PolicyAnswer, on_types: AnswersOnTypes, version: str, snapshot: Snapshot
) -> Decision | None:
    """Likewise for a pending job; whether it could start at once is not looked at."""
    typed = with_chosen_type(question, _allowed(question, answer.shares, snapshot).size, on_types)
    if typed is None:
        return None
    allowed = _allowed(typed.question, typed.shares, snapshot)
    return None if allowed.reason else _as_typed(typed, answer, version, snapshot, allowed)


def _as_typed(typed: Typed, answer: PolicyAnswer, version: str, snapshot: Snapshot, allowed: _Allowed) -> Decision:
    chosen = PolicyAnswer(
        msgspec.structs.replace(typed.shares, urgency=answer.shares.urgency), answer.log_probability
    )
    decision = _as_allowed(typed.question, chosen, version, snapshot, allowed)
    return msgspec.structs.replace(decision, log_probability=None)  # it is not what the policy drew


def decision_from(question: Question, answer: PolicyAnswer, version: str, snapshot: Snapshot) -> Decision:
    """The decision that follows from a policy's answer: an allocation, or the reason why the job cannot have it.

    The caller notes in ``snapshot.granted`` what it gives to the job.
    """
    return _as_allowed(question, answer, version, snapshot, _allowed(question, answer.shares, snapshot))


def _as_allowed(
    question: Question, answer: PolicyAnswer, version: str, snapshot: Snapshot, allowed: _Allowed
) -> Decision:
    allocation, reason, speed = allowed
    allocation = msgspec.structs.replace(allocation, gpu_type=question.gpu_type)
    view = question.view
    return msgspec.structs.replace(
        _unanswered(question, snapshot, reason, None if reason else allocation),
        shares=answer.shares,
        log_probability=answer.log_probability,
        policy_version=version,
        allocation=allocation if not reason else None,
        dominant_share_allocated=question.cluster.dominant_share(allocation) if not reason else None,
        slowdown=expected_slowdown(view.request, allocation, speed.belief, speed.source) if not reason else None,
    )


def with_nice(decision: Decision, job: JobRecord, rules: UrgencyRules) -> Decision:
    """The same decision with what its urgency adds to the job's nice, where the site lets urgency count.

    Arrays get no nice: once some tasks have started, the rest cannot be updated as a whole and would keep it.
    """
    size = decision.allocation
    if not rules.nice_band or size is None or decision.shares is None or job.is_array:
        return decision
    return msgspec.structs.replace(
        decision,
        nice=nice_for(decision.shares.urgency, rules),
        patience_s=rules.patience_s(expected_run_time_s(decision, size)),
    )


def _allowed(question: Question, shares: Shares, snapshot: Snapshot) -> _Allowed:
    """The allocation of the decided shares or, where a limit forbids it, the nearest one towards the request."""
    view, cluster, job = question.view, question.cluster, question.candidate.job
    site = snapshot.site
    speed = snapshot.speeds.of(job.user, job.name, view.request, gpu_types_for(job, cluster))

    to_allow = partial(slowdown_to_allow, view.request, belief=speed.belief)

    def allocate(each: Shares) -> Allocation:
        return allocation_for(each, view.request, view.bounds, cluster.shape, to_allow)

    def why_not(allocation: Allocation) -> str:
        return obstacle(job, view.request, allocation, site, cluster.expected_wait_s(allocation))

    decided = allocate(shares)
    reason = why_not(decided)
    if not reason:
        return _Allowed(decided, "", speed)
    for nearer in map(allocate, shares_towards_request(shares, decided, view.request, view.bounds)):
        if nearer != view.request and not why_not(nearer):
            _log.info("job %d: cannot have %s: %s", job.job_id, decided.describe(), reason)
            return _Allowed(nearer, "", speed)
    return _Allowed(decided, f"limit: {reason}", speed)


def _unanswered(
    question: Question, snapshot: Snapshot, reason: str, allocation: Allocation | None = None
) -> Decision:
    """The decision with everything that is known before the policy answers; its plan is for ``allocation``."""
    view, cluster, job, tag = question.view, question.cluster, question.candidate.job, question.candidate.tag
    size = allocation or view.request
    device = cluster.device._replace(type=job.gpu_type or next(iter(cluster.gpu_types), ""))
    return msgspec.structs.replace(
        left_as_submitted(question.candidate, snapshot, reason, view.request),
        job_class=view.job_class,
        bounds=view.bounds,
        observation_schema=SCHEMA_ID,
        observation=question.encoded.features.astype("<f4").tobytes(),
        alternatives=dict(question.encoded.alternatives),
        queued=cluster.crowd,
        dominant_share_requested=cluster.dominant_share(view.request),
        reference_s=expected_run_time_s(view, view.request),
        circumstances=Circumstances(
            cluster=Resources(*cluster.totals.tolist()),
            node_gpus=cluster.shape.gpus,
            user_running_gpus=view.user_running_gpus,
            plan=plan_of_job(tag, view.job_class, question.rules, size, question.gpu_memory_gib, device),
        ),
    )


def left_as_submitted(
    candidate: Candidate, snapshot: Snapshot, reason: str, request: Allocation | None = None
) -> Decision:
    """A decision to leave a job as submitted; ``request`` is the size that it asks for, where that is known."""
    job = candidate.job
    return Decision(
        id=str(uuid.uuid4()),
        job_id=job.job_id,
        submitted_s=job.submitted_s,
        decided_s=snapshot.taken_s,
        user=job.user,
        account=job.account,
        partition=job.partition,
        job_name=job.name,
        job_class=candidate.tag.job_class,
        rule=candidate.tag.rule,
        mode=candidate.mode,
        reason=reason,
        request=request or _size_or_total(job),
        run_time=snapshot.run_times.as_requested(job),
    )


def _size_or_total(job: JobRecord) -> Allocation:
    """The request of a job; as if on one node where its nodes differ, for display only."""
    try:
        return size_of(job)
    except Skipped:
        return Allocation(
            nodes=1,
            gpus_per_node=job.gpus,
            tasks_per_node=1,
            cpus_per_task=job.cpus,
            mem_mib_per_node=round(job.mem_mib),
            time_limit_s=job.time_limit_s,
        )
