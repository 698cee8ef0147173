"""A job and the cluster as numbers for the policy network: one encoding for daemon, agent, trainer and simulator.

Every feature is without a unit and near [-1, 1], so that one policy serves clusters of any size. The weights of the
site's objective are among them, so that one policy serves whatever a site wants. What other good heuristics would
answer is among them too, so that the agent can serve one of these. The last SHARES are the base heuristic's answer:
the actor is a residual around it.
"""

import functools
import math
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from rlalloc.allocation import share_in
from rlalloc.bounds import NodeShape
from rlalloc.heuristics import ALTERNATIVES, BASELINE, BASELINE_NAME
from rlalloc.heuristics.workable_sizes import sizes_of
from rlalloc.job import JOB_CLASSES, SHARES, Allocation, Bounds, JobClass, JobView, Shares
from rlalloc.objective import DEFAULT_WEIGHTS, TERM_NAMES, Weights
from rlalloc.objective.weights import features_of
from rlalloc.view import ClusterView, expected_run_time_s

SCHEMA_VERSION: Final = 7
"""Raised whenever a feature changes its place or meaning; policies name the schema that they were trained on."""

FEATURES: Final = (
    *(f"class_{name}" for name in JOB_CLASSES),
    "requested_gpus",
    "least_gpus",
    "most_gpus",
    "gpu_count_choices",
    "requested_gpu_share",
    "requested_cpus_per_gpu",
    "least_cpus_per_gpu",
    "requested_mem_per_gpu",
    "least_mem_per_gpu",
    "time_limit",
    "waited",
    "task_per_gpu",
    "user_running_gpus",
    "urgency_counts",
    "cluster_gpus",
    "node_gpus",
    "free_gpus",
    "free_cpus",
    "free_mem",
    "idle_nodes",
    "largest_free_block",
    "queue_length",
    "queued_gpus",
    "backlog",
    "running_jobs",
    "freed_within_run_time",
    *(f"{what}_{size}" for size in ("least", "requested", "most") for what in ("wait", "run_time", "dominant")),
    *(f"weight_{name}" for name in TERM_NAMES),
    *(f"{name}:{what}" for name in ALTERNATIVES for what in ("gpu_share", "urgency")),
    "heuristic_gpu_share",
    "heuristic_cpu_share",
    "heuristic_mem_share",
    "heuristic_urgency",
)
Observation = NDArray[np.float32]
"""Shape (len(FEATURES),)."""


_FIRST_WEIGHT: Final = FEATURES.index(f"weight_{TERM_NAMES[0]}")
WEIGHT_FEATURES: Final = slice(_FIRST_WEIGHT, _FIRST_WEIGHT + len(TERM_NAMES))
"""Where an observation has the objective's weights (``rlalloc.objective.weights.features_of``)."""


def encode(job: JobView, view: ClusterView, objective: Weights = DEFAULT_WEIGHTS) -> Observation:
    """Encode a pending job on a cluster for a site of that objective; shape (len(FEATURES),), float32, finite."""
    heuristic = BASELINE(job, view)
    values = (
        *_request_features(job.job_class, job.request, job.bounds, view.shape),
        *_job_features(job, view),
        *_cluster_features(job, view),
        *_trade_off_features(job, view),
        *_weight_features(objective),
        *_stand_in_features(job, view),
        *msgspec.structs.astuple(heuristic),
    )
    return np.clip(np.array(values, dtype=np.float32), -5.0, 5.0)


def heuristic_shares(observation: Observation) -> Shares:
    """Return the base heuristic's shares that ``observation`` ends with."""
    return Shares(*observation[-SHARES:].tolist())


def heuristic_gpu_shares(observation: Observation) -> dict[str, float]:
    """Return the GPU share that each heuristic which the agent can serve answers there, by name, the base first."""
    stand_ins = {name: float(observation[FEATURES.index(f"{name}:gpu_share")]) for name in ALTERNATIVES}
    return {BASELINE_NAME: heuristic_shares(observation).gpu, **stand_ins}


def as_if_based_on(heuristic: str, observations: Observation) -> Observation:
    """Return observations, shape (…, len(FEATURES)), that end with the answer of an alternative or the baseline."""
    if heuristic not in ALTERNATIVES:
        return observations
    answered = observations.copy()
    for what in ("gpu_share", "urgency"):
        answered[..., FEATURES.index(f"heuristic_{what}")] = observations[..., FEATURES.index(f"{heuristic}:{what}")]
    return answered


@functools.lru_cache(maxsize=4096)
def _request_features(
    job_class: JobClass, request: Allocation, bounds: Bounds, shape: NodeShape
) -> tuple[float, ...]:
    """What does not change while a job waits."""
    node_cpus_per_gpu = shape.cpus / max(1, shape.gpus)
    node_mem_per_gpu = shape.mem_mib / max(1, shape.gpus)
    return (
        *(float(job_class == name) for name in JOB_CLASSES),
        math.log2(request.gpus) / 6,
        math.log2(bounds.gpu_counts[0]) / 6,
        math.log2(bounds.gpu_counts[-1]) / 6,
        len(bounds.gpu_counts) / 8,
        share_in(request.gpus, bounds.gpus),
        request.cpus_per_gpu / node_cpus_per_gpu,
        bounds.cpus_per_gpu.minimum / node_cpus_per_gpu,
        request.mem_mib_per_gpu / node_mem_per_gpu,
        bounds.mem_mib_per_gpu.minimum / node_mem_per_gpu,
        math.log10(max(1.0, request.time_limit_s / 60)) / 4,
    )


@functools.lru_cache(maxsize=256)
def _weight_features(objective: Weights) -> tuple[float, ...]:
    """A site has one objective at a time."""
    return tuple(features_of(objective.array).tolist())


def _stand_in_features(job: JobView, view: ClusterView) -> tuple[float, ...]:
    answers = [heuristic(job, view) for heuristic in ALTERNATIVES.values()]
    return tuple(value for shares in answers for value in (shares.gpu, shares.urgency))


def _job_features(job: JobView, view: ClusterView) -> tuple[float, ...]:
    return (
        math.log1p(max(0.0, job.waited_s) / 60) / 8,
        float(job.bounds.task_per_gpu),
        job.user_running_gpus / max(1.0, float(view.totals[0])),
        float(view.urgency_counts),
    )


def _cluster_features(job: JobView, view: ClusterView) -> tuple[float, ...]:
    total_gpus, total_cpus, total_mem = (max(1.0, total) for total in view.totals.tolist())
    free_gpus, free_cpus, free_mem = view.free_in_all.tolist()
    free_by_node, node_gpus = view.free[:, 0], view.shape.gpus
    run_s = max(1.0, expected_run_time_s(job.request, job.request))
    return (
        math.log2(total_gpus) / 10,
        math.log2(max(1, node_gpus)) / 4,
        free_gpus / total_gpus,
        free_cpus / total_cpus,
        free_mem / total_mem,
        np.count_nonzero(free_by_node >= node_gpus) / len(free_by_node),
        float(free_by_node.max()) / max(1, node_gpus),
        math.log1p(view.crowd) / 6,
        math.log1p(view.queued_gpus / total_gpus),
        math.log1p(view.backlog_s / run_s),
        math.log1p(len(view.releases)) / 6,
        view.freed_gpus_within(run_s) / total_gpus,
    )


def _trade_off_features(job: JobView, view: ClusterView) -> tuple[float, ...]:
    """Wait, run time and dominant share at the least, the requested and the most GPUs."""
    run_as_requested_s = max(1.0, expected_run_time_s(job.request, job.request))
    sizes = sizes_of(job.request, job.bounds, view.shape).allocations
    features: list[float] = []
    compared = (sizes[0], job.request, sizes[-1])
    for allocation, wait_s in zip(compared, view.expected_waits_s(compared), strict=True):
        features += (
            math.log1p(wait_s / run_as_requested_s),
            math.log2(expected_run_time_s(job.request, allocation) / run_as_requested_s) / 3,
            view.dominant_share(allocation),
        )
    return tuple(features)
