"""A job and the nodes that it may use as numbers: one encoding for daemon, agent, trainer and simulator.

Every feature is declared once, in the tables below: its name, its meaning and its formula stand together; FEATURES
follows from them. To add a feature, add a line. Networks (``rlalloc.policy.policy_inputs``) and stored decisions
(``recalled``) know features by name, so a new one invalidates neither. A name keeps its meaning for ever: a feature
that is to mean something else gets a new name.

Features have no unit and lie near [-1, 1], so that one policy serves clusters of any size. The weights of the site's
objective are among them, so that one policy serves any objective. The heuristics' answers are no features: they stand
beside them in ``EncodedQuestion.alternatives``.
"""

import functools
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Final, Generic, NamedTuple, Self, TypeVar, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from rlalloc.allocation import share_in
from rlalloc.heuristics import SERVED_HEURISTICS
from rlalloc.heuristics.offers import Kind, Offer
from rlalloc.heuristics.order import answers
from rlalloc.job import JOB_CLASSES, SHARES, Allocation, Bounds, JobClass, JobView, Shares
from rlalloc.llm.gpu_types import memory_gib
from rlalloc.objective import DEFAULT_WEIGHTS, TERM_NAMES, Weights
from rlalloc.objective.weights import features_of
from rlalloc.speed.type_speeds import BUILT_IN, TypeSpeeds
from rlalloc.view import ClusterView

FloatArray = NDArray[np.float32]
Seen = TypeVar("Seen")

SHARE_NAMES: Final = ("gpu_share", "cpu_share", "mem_share", "urgency")
LARGEST_FEATURE: Final = 5.0
"""Features are clipped to ± this."""


class Feature(NamedTuple, Generic[Seen]):
    """One number that a policy sees: ``value`` computes it from what its table is about.

    ``default`` stands in for it where a decision was stored before the feature existed.
    """

    name: str
    meaning: str
    value: Callable[[Seen], float]
    default: float = 0.0


class _Request(NamedTuple):
    """What does not change while a job waits, but for its time limit."""

    job_class: JobClass
    request: Allocation
    bounds: Bounds
    node_cpus_per_gpu: float
    node_mem_per_gpu: float


class _Moment(NamedTuple):
    """A job and its nodes at the moment of the question; ``run_s`` is the expected run time as requested."""

    job: JobView
    view: ClusterView
    total_gpus: float
    run_s: float


class _Nodes(NamedTuple):
    """The nodes, and who waits for them."""

    view: ClusterView
    total_gpus: float
    total_cpus: float
    total_mem: float
    free_gpus: float
    free_cpus: float
    free_mem: float


class _Size(NamedTuple):
    """One size that a job may get; ``requested_s`` is the expected run time as requested."""

    wait_s: float
    run_s: float
    requested_s: float
    dominant_share: float


@functools.lru_cache(maxsize=256)
def type_features(gpu_types: tuple[str, ...], known: TypeSpeeds = BUILT_IN) -> tuple[float, float]:
    """The features of types of GPU: their speed over that of an A100, and their memory over 80 GiB.

    Each is a mean logarithm to the base of 8; 0 where it is not known of all types.
    """
    speeds = [known.over_a100(name) if known.knows(name) else None for name in gpu_types]
    memory = [None if (gib := memory_gib(name)) is None else gib / 80.0 for name in gpu_types]
    return _mean_log8(speeds), _mean_log8(memory)


def _mean_log8(values: Sequence[float | None]) -> float:
    known = [math.log2(value) / 3 for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else 0.0


def _is_of(name: JobClass, one: _Request) -> float:
    return one.job_class == name


_REQUEST: Final[tuple[Feature[_Request], ...]] = (
    *(
        Feature(f"class_{name}", f"1 for a job of class {name}", functools.partial(_is_of, name))
        for name in JOB_CLASSES
    ),
    Feature("requested_gpus", "GPUs of the request; log2 / 6", lambda one: math.log2(one.request.gpus) / 6),
    Feature(
        "least_gpus", "smallest workable GPU count; log2 / 6", lambda one: math.log2(one.bounds.gpu_counts[0]) / 6
    ),
    Feature(
        "most_gpus", "largest workable GPU count; log2 / 6", lambda one: math.log2(one.bounds.gpu_counts[-1]) / 6
    ),
    Feature("gpu_count_choices", "number of workable GPU counts / 8", lambda one: len(one.bounds.gpu_counts) / 8),
    Feature(
        "requested_gpu_share", "GPU share of the request", lambda one: share_in(one.request.gpus, one.bounds.gpus)
    ),
    Feature(
        "requested_cpus_per_gpu",
        "CPUs per GPU of the request, over those of a node",
        lambda one: one.request.cpus_per_gpu / one.node_cpus_per_gpu,
    ),
    Feature(
        "least_cpus_per_gpu",
        "fewest CPUs per GPU, over those of a node",
        lambda one: one.bounds.cpus_per_gpu.minimum / one.node_cpus_per_gpu,
    ),
    Feature(
        "requested_mem_per_gpu",
        "memory per GPU of the request, over that of a node",
        lambda one: one.request.mem_mib_per_gpu / one.node_mem_per_gpu,
    ),
    Feature(
        "least_mem_per_gpu",
        "least memory per GPU, over that of a node",
        lambda one: one.bounds.mem_mib_per_gpu.minimum / one.node_mem_per_gpu,
    ),
)
_MOMENT: Final[tuple[Feature[_Moment], ...]] = (
    Feature(
        "time_limit",
        "time limit in minutes; log10 / 4",
        lambda now: math.log10(max(1.0, now.job.request.time_limit_s / 60)) / 4,
    ),
    Feature(
        "waited", "minutes since submission; log1p / 8", lambda now: math.log1p(max(0.0, now.job.waited_s) / 60) / 8
    ),
    Feature(
        "task_per_gpu",
        "1 where tasks follow the GPUs (srun), 0 where they follow the nodes (torchrun)",
        lambda now: now.job.bounds.task_per_gpu,
    ),
    Feature(
        "user_running_gpus",
        "GPUs that the user's running jobs hold, over all GPUs",
        lambda now: now.job.user_running_gpus / now.total_gpus,
    ),
)
_NODES: Final[tuple[Feature[_Nodes], ...]] = (
    Feature("urgency_counts", "1 where the site lets urgency order its queue", lambda now: now.view.urgency_counts),
    Feature("cluster_gpus", "GPUs of the job's nodes; log2 / 10", lambda now: math.log2(now.total_gpus) / 10),
    Feature(
        "node_gpus", "GPUs of the largest node; log2 / 4", lambda now: math.log2(max(1, now.view.shape.gpus)) / 4
    ),
    Feature("free_gpus", "part of the GPUs that is free", lambda now: now.free_gpus / now.total_gpus),
    Feature("free_cpus", "part of the CPUs that is free", lambda now: now.free_cpus / now.total_cpus),
    Feature("free_mem", "part of the memory that is free", lambda now: now.free_mem / now.total_mem),
    Feature(
        "idle_nodes",
        "part of the nodes with as many free GPUs as the largest node has",
        lambda now: np.count_nonzero(now.view.free[:, 0] >= now.view.shape.gpus) / len(now.view.free),
    ),
    Feature(
        "largest_free_block",
        "most free GPUs on one node, over those of the largest node",
        lambda now: float(now.view.free[:, 0].max()) / max(1, now.view.shape.gpus),
    ),
    Feature("queue_length", "other jobs that wait; log1p / 6", lambda now: math.log1p(now.view.crowd) / 6),
    Feature(
        "queued_gpus",
        "GPUs that the jobs ahead ask for, over all GPUs; log1p",
        lambda now: math.log1p(now.view.queued_gpus / now.total_gpus),
    ),
    Feature(
        "gpu_speed",
        "known speed of the job's types of GPU over that of an A100; log2 / 3, mean of the types, 0 if unknown",
        lambda now: type_features(now.view.gpu_types, now.view.type_speeds)[0],
    ),
    Feature(
        "gpu_memory",
        "memory of the job's types of GPU over 80 GiB; log2 / 3, mean of the types, 0 if unknown",
        lambda now: type_features(now.view.gpu_types)[1],
    ),
    Feature(
        "cluster_part",
        "nodes that the job may use, over all usable nodes with GPUs; log2 / 8",
        lambda now: math.log2(max(1, len(now.view.free)) / max(1, now.view.cluster_nodes or len(now.view.free))) / 8,
    ),
    Feature(
        "part_of_gpu",
        "1 where the job's GPUs are slices (MIG) or shards, 0 where they are whole",
        lambda now: not now.view.device.whole,
    ),
)
_RUN: Final[tuple[Feature[_Moment], ...]] = (
    Feature(
        "backlog",
        "time to work off the jobs ahead, over the run time as requested; log1p",
        lambda now: math.log1p(now.view.backlog_s / now.run_s),
    ),
    Feature("running_jobs", "running jobs; log1p / 6", lambda now: math.log1p(len(now.view.releases)) / 6),
    Feature(
        "freed_within_run_time",
        "GPUs expected to become free within the run time as requested, over all GPUs",
        lambda now: now.view.freed_gpus_within(now.run_s) / now.total_gpus,
    ),
)
_SIZE: Final[tuple[Feature[_Size], ...]] = (
    Feature(
        "wait",
        "expected wait, over the run time as requested; log1p",
        lambda size: math.log1p(size.wait_s / size.requested_s),
    ),
    Feature(
        "run_time",
        "expected run time, over that as requested; log2 / 3",
        lambda size: math.log2(size.run_s / size.requested_s) / 3,
    ),
    Feature("dominant", "dominant share of the job's nodes", lambda size: size.dominant_share),
)
_SIZES: Final = ("least", "requested", "most")
"""The sizes that _SIZE describes: a feature each, such as ``wait_least``."""
_WEIGHTS: Final[tuple[Feature[Sequence[float]], ...]] = tuple(
    Feature(f"weight_{term}", f"weight of {term} in the site's objective", itemgetter(place))
    for place, term in enumerate(TERM_NAMES)
)

_Declared = Feature[_Request] | Feature[_Moment] | Feature[_Nodes] | Feature[_Size] | Feature[Sequence[float]]
DECLARED: Final[tuple[_Declared, ...]] = (
    *_REQUEST,
    *_MOMENT,
    *_NODES,
    *_RUN,
    *(
        one._replace(name=f"{one.name}_{size}", meaning=f"{one.meaning}; {size} GPUs")
        for size in _SIZES
        for one in _SIZE
    ),
    *_WEIGHTS,
)
"""All features, in the order of EncodedQuestion.features."""
FEATURES: Final = tuple(feature.name for feature in DECLARED)
POOL_FEATURES: Final = ("gpu_speed", "gpu_memory", "cluster_part", "part_of_gpu")
"""What the nodes are that the job may use; all are 0 on a cluster of one kind of nodes of which nothing is known."""
WEIGHT_FEATURES: Final = tuple(feature.name for feature in _WEIGHTS)
"""The features that describe the site's objective, in the order of TERM_NAMES."""


def schema_id(names: Sequence[str]) -> int:
    """Return the number, of 31 bits, under which the store keeps the names of a decision's features."""
    return int.from_bytes(hashlib.sha256("\n".join(names).encode()).digest()[:4]) >> 1


SCHEMA_ID: Final = schema_id(FEATURES)


class EncodedQuestion(NamedTuple):
    """One question to a policy: ``features`` (len(FEATURES),), and what each served heuristic answers, by name."""

    features: FloatArray
    alternatives: Mapping[str, Shares]

    def by_name(self) -> dict[str, float]:
        """Return the features by name."""
        return dict(zip(FEATURES, self.features.tolist(), strict=True))


class EncodedBatch(NamedTuple):
    """Questions side by side.

    ``features`` (jobs, len(feature_names)) and ``alternatives`` (jobs, len(heuristics), SHARES), both float32.
    """

    feature_names: tuple[str, ...]
    features: FloatArray
    heuristics: tuple[str, ...]
    alternatives: FloatArray

    @classmethod
    def of(cls, questions: Sequence[EncodedQuestion]) -> Self:
        """Put one or more questions of this program side by side, with the heuristics that answered all of them."""
        heuristics = tuple(questions[0].alternatives)
        if any(one.alternatives.keys() != questions[0].alternatives.keys() for one in questions):
            heuristics = tuple(name for name in heuristics if all(name in one.alternatives for one in questions))
        answers = [[msgspec.structs.astuple(one.alternatives[name]) for name in heuristics] for one in questions]
        return cls(
            FEATURES,
            np.stack([one.features for one in questions]),
            heuristics,
            np.array(answers, dtype=np.float32).reshape(len(questions), len(heuristics), SHARES),
        )


def encode(job: JobView, view: ClusterView, objective: Weights = DEFAULT_WEIGHTS) -> EncodedQuestion:
    """Encode a pending job on a cluster, for a site of that objective. Features are finite."""
    shared = _shared(job, view, objective)
    now = _Moment(job, view, max(1.0, float(view.totals[0])), shared.requested_s)
    features = shared.features.copy()
    features[_OF_THE_MOMENT] = _clipped([feature.value(now) for feature in _MOMENT])
    return EncodedQuestion(features, dict(shared.answers))


def recalled(
    names: Sequence[str], features: bytes, alternatives: Mapping[str, Shares] | None
) -> EncodedQuestion | None:
    """Encode anew what a decision stored (``as_stored``), maybe under other features and heuristics than today's.

    Features are matched by name: one that is newer than the decision has its default, one that is gone is dropped. A
    heuristic that was not asked has no answer. Return None if the decision cannot be read, or if none of today's
    heuristics answered.
    """
    stored, answers = as_stored(names, features, alternatives)
    known = {name: answers[name] for name in SERVED_HEURISTICS if name in answers}
    if not known:
        return None
    values = [stored.get(feature.name, feature.default) for feature in DECLARED]
    return EncodedQuestion(np.array(values, dtype=np.float32), known)


def as_stored(
    names: Sequence[str], features: bytes, alternatives: Mapping[str, Shares] | None
) -> tuple[dict[str, float], Mapping[str, Shares]]:
    """Return the features of a stored decision and what the heuristics answered, both by the names of then.

    ``features`` are float32, little endian, called ``names``. Nothing comes back if that is not so.
    """
    if len(features) != 4 * len(names):
        return {}, {}
    stored = dict(zip(names, np.frombuffer(features, dtype="<f4").tolist(), strict=True))
    answers = alternatives or _answers_among(stored)
    return {name: value for name, value in stored.items() if ":" not in name}, answers


def answer_columns(heuristic: str) -> tuple[str, ...]:
    """Return what the four shares that a heuristic answers are called where they are inputs of a network."""
    return tuple(f"{heuristic}:{share}" for share in SHARE_NAMES)


def _answers_among(stored: Mapping[str, float]) -> dict[str, Shares]:
    """Return the heuristics' answers that rlalloc 0.1 stored among the features: of some two of four shares only.

    The baseline's are whole, and the CPU and memory shares of the others were the baseline's.
    """
    heuristics = list(dict.fromkeys(name.rpartition(":")[0] for name in stored if ":" in name))
    whole = next((name for name in heuristics if set(answer_columns(name)) <= stored.keys()), None)
    if whole is None:
        return {}
    return {
        name: Shares(
            *(
                stored.get(mine, stored[its])
                for mine, its in zip(answer_columns(name), answer_columns(whole), strict=True)
            )
        )
        for name in heuristics
    }


@functools.lru_cache(maxsize=4096)
def _request_values(job_class: JobClass, kind: Kind) -> tuple[float, ...]:
    gpus = max(1, kind.shape.gpus)
    one = _Request(job_class, kind.request, kind.bounds, kind.shape.cpus / gpus, kind.shape.mem_mib / gpus)
    return tuple(feature.value(one) for feature in _REQUEST)


@functools.lru_cache(maxsize=256)
def _weight_values(objective: Weights) -> tuple[float, ...]:
    """Kept: a site has one objective at a time."""
    weights = features_of(objective.array).tolist()
    return tuple(feature.value(weights) for feature in _WEIGHTS)


@functools.lru_cache(maxsize=8)
def _nodes_values(view: ClusterView) -> tuple[float, ...]:
    """Kept: all new jobs of a cycle see the same."""
    total_gpus, total_cpus, total_mem = (max(1.0, total) for total in view.totals.tolist())
    now = _Nodes(view, total_gpus, total_cpus, total_mem, *view.free_in_all.tolist())
    return tuple(feature.value(now) for feature in _NODES)


_OF_THE_MOMENT: Final = slice(len(_REQUEST), len(_REQUEST) + len(_MOMENT))
_OF_THE_RUN: Final = slice(_OF_THE_MOMENT.stop + len(_NODES), len(DECLARED) - len(_WEIGHTS))


class _Shared(NamedTuple):
    """What is the same for all jobs that are alike to every heuristic, whoever waits for how long.

    ``features`` has zeros for those of the moment.
    """

    requested_s: float
    features: FloatArray
    answers: Mapping[str, Shares]


def _shared(job: JobView, view: ClusterView, objective: Weights) -> _Shared:
    """Kept with the view: many new jobs of a cycle are alike."""
    key = msgspec.structs.replace(job, waited_s=0.0, user_running_gpus=0), objective
    known = view.encoded.get(key)
    if known is None:
        known = view.encoded[key] = _found(Offer(job, view), objective)
    return cast(_Shared, known)


def _found(offer: Offer, objective: Weights) -> _Shared:
    view, requested_s = offer.view, max(1.0, offer.as_requested_s)
    now = _Moment(offer.job, view, max(1.0, float(view.totals[0])), requested_s)
    there, as_requested = offer.there, view.sizes_there((offer.kind.request,))
    features = _of_its_kind(offer, objective).copy()
    sizes = (
        _Size(there.wait_s[0], offer.run_s[0], requested_s, there.dominant[0]),
        _Size(as_requested.wait_s[0], offer.as_requested_s, requested_s, as_requested.dominant[0]),
        _Size(there.wait_s[-1], offer.run_s[-1], requested_s, there.dominant[-1]),
    )
    of_the_run = [*[feature.value(now) for feature in _RUN], *[one.value(size) for size in sizes for one in _SIZE]]
    features[_OF_THE_RUN] = _clipped(of_the_run)
    return _Shared(requested_s, features, answers(SERVED_HEURISTICS, offer))


def _of_its_kind(offer: Offer, objective: Weights) -> FloatArray:
    """The features of all jobs of this class and kind, with zeros for those of the run and the moment; kept, too."""
    view, key = offer.view, (offer.job.job_class, offer.kind, objective)
    if key not in view.encoded:
        values = [
            *_request_values(offer.job.job_class, offer.kind),
            *[0.0] * len(_MOMENT),
            *_nodes_values(view),
            *[0.0] * (len(_RUN) + len(_SIZES) * len(_SIZE)),
            *_weight_values(objective),
        ]
        features = np.array(values, dtype=np.float32)
        view.encoded[key] = np.minimum(np.maximum(features, -LARGEST_FEATURE), LARGEST_FEATURE)
    return cast(FloatArray, view.encoded[key])


def _clipped(values: Sequence[float]) -> list[float]:
    most = LARGEST_FEATURE
    return [min(most, max(-most, value)) for value in values]
