"""A job and the cluster as numbers for the policy network: one encoding for daemon, agent, trainer and simulator.

Every feature is without a unit and near [-1, 1], so that one policy serves clusters of any size. The last SHARES are
the base heuristic's answer: the actor is a residual around it.
"""

import math
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from rlalloc.allocation import allocation_for, share_in
from rlalloc.heuristics import BASE
from rlalloc.job import JOB_CLASSES, SHARES, Allocation, JobView, Shares
from rlalloc.view import ClusterView, expected_run_time_s

SCHEMA_VERSION: Final = 2
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
    "heuristic_gpu_share",
    "heuristic_cpu_share",
    "heuristic_mem_share",
    "heuristic_urgency",
)
Observation = NDArray[np.float32]
"""Shape (len(FEATURES),)."""


def encode(job: JobView, view: ClusterView) -> Observation:
    """Encode one pending job on one cluster; shape (len(FEATURES),), float32, finite."""
    heuristic = BASE(job, view)
    values = (
        *_job_features(job, view),
        *_cluster_features(job, view),
        *_trade_off_features(job, view, heuristic),
        *msgspec.structs.astuple(heuristic),
    )
    return np.clip(np.array(values, dtype=np.float32), -5.0, 5.0)


def heuristic_shares(observation: Observation) -> Shares:
    """Return the base heuristic's shares that ``observation`` ends with."""
    return Shares(*observation[-SHARES:].tolist())


def _job_features(job: JobView, view: ClusterView) -> tuple[float, ...]:
    request, bounds = job.request, job.bounds
    node_cpus_per_gpu = view.shape.cpus / max(1, view.shape.gpus)
    node_mem_per_gpu = view.shape.mem_mib / max(1, view.shape.gpus)
    return (
        *(float(job.job_class == name) for name in JOB_CLASSES),
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
        math.log1p(max(0.0, job.waited_s) / 60) / 8,
        float(bounds.task_per_gpu),
        job.user_running_gpus / max(1.0, view.totals[0]),
    )


def _cluster_features(job: JobView, view: ClusterView) -> tuple[float, ...]:
    total_gpus = max(1.0, float(view.totals[0]))
    free_fraction = view.free.sum(axis=0) / np.maximum(view.totals, 1.0)
    run_s = max(1.0, expected_run_time_s(job.request, job.request))
    soon = view.releases[view.releases[:, 0] <= run_s, 1].sum()
    return (
        math.log2(total_gpus) / 10,
        math.log2(max(1, view.shape.gpus)) / 4,
        *(float(part) for part in free_fraction),
        float((view.free[:, 0] >= view.shape.gpus).mean()),
        float(view.free[:, 0].max()) / max(1, view.shape.gpus),
        math.log1p(view.crowd) / 6,
        math.log1p(float(view.queued[:, 0].sum()) / total_gpus),
        math.log1p(view.backlog_s / run_s),
        math.log1p(len(view.releases)) / 6,
        float(soon) / total_gpus,
    )


def _trade_off_features(job: JobView, view: ClusterView, heuristic: Shares) -> tuple[float, ...]:
    """Wait, run time and dominant share at the least, the requested and the most GPUs."""
    run_as_requested_s = max(1.0, expected_run_time_s(job.request, job.request))

    def at(allocation: Allocation) -> tuple[float, float, float]:
        return (
            math.log1p(view.expected_wait_s(allocation) / run_as_requested_s),
            math.log2(expected_run_time_s(job.request, allocation) / run_as_requested_s) / 3,
            view.dominant_share(allocation),
        )

    least, most = (
        allocation_for(
            Shares(gpu_share, heuristic.cpu, heuristic.mem),
            job.request,
            job.bounds,
            view.shape,
            lambda _: 1.0,
        )
        for gpu_share in (0.0, 1.0)
    )
    return (*at(least), *at(job.request), *at(most))
