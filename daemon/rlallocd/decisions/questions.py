"""A job as a policy sees it, on all nodes that it may use; and on the nodes of each type, of which it may get one.

The policy is asked about the first, and about the others if it does not answer as known gain does. They tell whether
one type surely pays.
"""

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from rlalloc.config import Config, Rule
from rlalloc.heuristics import BASELINE_NAME
from rlalloc.heuristics.type_choice import Offered, chosen_type
from rlalloc.job import Allocation, ChosenType, JobView, Shares
from rlalloc.messages import PolicyAnswer
from rlalloc.objective import Weights
from rlalloc.observation import EncodedQuestion, encode
from rlalloc.scripts.script_rules import ScriptRules
from rlalloc.view import ClusterView
from rlallocd.cluster.cluster_views import ClusterViews
from rlallocd.cluster.node_access import Access, Preempts
from rlallocd.decisions.agent_client import AgentClient
from rlallocd.decisions.type_choices import may_get_a_type, on_each_type
from rlallocd.knowledge.job_plans import gpu_memory_gib
from rlallocd.submissions.candidates import Candidate, job_view
from rlallocd.submissions.request_sizes import Skipped, size_on

_log = logging.getLogger(__name__)

_ALIKE: Final = 1e-4

_MOST_AT_ONCE: Final = 1000
"""Questions in one call of the agent, which has a deadline."""

AnswersOnTypes = dict[str, Shares] | None
"""What a policy answers a job on the nodes of each type of GPU, as far as it was asked.

None if it answers on all nodes as known gain does: then the job may get any number of GPUs of a type.
"""


class Question(msgspec.Struct, frozen=True):
    """One job as the policy sees it, and what the answer is checked against.

    ``access`` is the nodes that it may use. ``gpu_memory_gib`` is that of a GPU that the job may get, None where its
    type is unknown. ``rules`` are those for reading its script. ``gpu_type`` is the type that was chosen for it.
    ``on_types`` is the same job on the nodes of each type, where the site lets rlalloc choose one; ``may_choose`` are
    the types that it may choose.
    """

    candidate: Candidate
    view: JobView
    cluster: ClusterView
    encoded: EncodedQuestion
    access: Access
    gpu_memory_gib: float | None
    rules: ScriptRules
    gpu_type: ChosenType | None = None
    on_types: Mapping[str, "Question"] = msgspec.field(default_factory=dict)
    may_choose: frozenset[str] = frozenset()


class Typed(msgspec.Struct, frozen=True):
    """A job with the type that was chosen for it, and the shares that it gets there."""

    question: Question
    shares: Shares


def question_for(candidate: Candidate, rule: Rule, views: ClusterViews, config: Config) -> Question:
    """What the policy is asked about a candidate. Raises Skipped, with the reason, if it is to run as submitted."""
    plain = _question(candidate, rule, views, config)
    on_types = {}
    for name, typed in candidate_on_types(candidate, rule, plain.cluster, plain.access, views).items():
        with contextlib.suppress(Skipped):  # its request cannot start there
            on_types[name] = _question(typed, rule, views, config, plain.encoded)
    return msgspec.structs.replace(plain, on_types=on_types, may_choose=frozenset(rule.choose_gpu_types))


def candidate_on_types(
    candidate: Candidate, rule: Rule, cluster: ClusterView, access: Access, views: ClusterViews
) -> Mapping[str, Candidate]:
    """The job on the nodes of each type, where rlalloc may choose one for it; else empty.

    ``access`` is the nodes that it may use, and ``cluster`` a view of them.
    """
    preempts = access.preempts != Preempts()  # what is free for it is held by others, on any type
    if preempts or len(cluster.gpu_types) == 1 or not may_get_a_type(candidate, views.now_s):
        return {}
    if frozenset(rule.choose_gpu_types).isdisjoint(cluster.gpu_types):
        return {}
    return on_each_type(candidate, cluster.gpu_types, views.pools.nodes)


def answers_on_types(
    answered: Sequence[tuple[Question, PolicyAnswer]],
    version: str,
    agent: AgentClient,
    objective: Weights,
    progress: Callable[[], None] = lambda: None,
) -> list[AnswersOnTypes]:
    """What the policy answers each job on the nodes of each type that may be chosen for it.

    ``version`` is that of the policy that answered before; another one does not count. ``progress`` is called after
    each call of the agent. Raises AgentUnavailable.
    """
    found = answers_on_all_nodes(answered)
    asked = []
    for (plain, _), on_types in zip(answered, found, strict=True):
        if on_types is not None and len(plain.on_types) > 1:
            asked += [(on_types, name, question) for name, question in _on_types(plain, objective).items()]
    for first in range(0, len(asked), _MOST_AT_ONCE):
        some = asked[first : first + _MOST_AT_ONCE]
        decided = agent.decide([question for _, _, question in some], sample=False)
        progress()
        if decided.policy_version == version:
            for (on_types, name, _), answer in zip(some, decided.answers, strict=True):
                on_types[name] = answer.shares
    return found


def answers_on_all_nodes(answered: Sequence[tuple[Question, PolicyAnswer]]) -> list[AnswersOnTypes]:
    """Likewise if the policy is not asked about single types: a job can only get as many GPUs of a type as of all."""
    return [
        # Shares come as float32.
        None if abs(answer.shares.gpu - plain.encoded.alternatives[BASELINE_NAME].gpu) < _ALIKE else {}
        for plain, answer in answered
    ]


def _on_types(plain: Question, objective: Weights) -> dict[str, EncodedQuestion]:
    """The questions about a job on the nodes of each type; none if rlalloc fails to encode one of them."""
    try:
        return {
            name: encode(plain.on_types[name].view, plain.on_types[name].cluster, objective)
            for name in sorted(plain.may_choose & plain.on_types.keys())
        }
    except Exception:  # noqa: BLE001 (one odd job must not keep the others from being decided)
        _log.exception("job %d: rlalloc failed to ask about single types of GPU", plain.candidate.job.job_id)
        return {}


def with_chosen_type(plain: Question, allocation: Allocation, on_types: AnswersOnTypes) -> Typed | None:
    """The job with the type that surely pays for it; None where it keeps its request for any type.

    ``allocation`` is what the policy's answer means on all nodes, ``on_types`` what it answers on those of each type.
    """
    if not plain.on_types:
        return None
    chosen = chosen_type(
        Offered(plain.view, plain.cluster),
        allocation,
        {name: Offered(each.view, each.cluster) for name, each in plain.on_types.items()},
        plain.may_choose,
        on_types,
    )
    if chosen is None:
        return None
    there = plain.on_types[chosen.name]
    nodes = there.candidate.job.excluded_nodes, plain.candidate.job.excluded_nodes
    gpu_type = ChosenType(chosen.name, *nodes, *chosen.speed_up)
    return Typed(msgspec.structs.replace(there, gpu_type=gpu_type), chosen.shares)


def _question(
    candidate: Candidate, rule: Rule, views: ClusterViews, config: Config, encoded: EncodedQuestion | None = None
) -> Question:
    job = candidate.job
    access = views.access_of(job)
    cluster = views.seen_with(access, job)
    view = job_view(candidate, size_on(job, cluster.shape), rule, cluster, views, config)
    memory_gib = gpu_memory_gib(job.gpu_type, cluster, config)
    encoded = encoded or encode(view, cluster, config.objective.weights)
    return Question(candidate, view, cluster, encoded, access, memory_gib, config.scripts)
