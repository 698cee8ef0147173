"""As many GPUs as are used well."""

from functools import partial
from typing import Final

from rlalloc.heuristics.workable_sizes import Heuristic, shares_for_count
from rlalloc.job import JobView, Shares
from rlalloc.speed import PRIOR
from rlalloc.view import ClusterView

THRESHOLD: Final = 0.89
"""Least efficiency, over that of the smallest size. Tuned (``rlalloc simulate tune efficiency``): on workloads that
it was not tuned on, mean JCT over that as requested is 0.76, with 0.6 it is 1.02."""
ADAPTIVE_THRESHOLD: Final = 0.95
"""The same of the adaptive one, for an empty queue. Mean JCT over price-EF's with it is 0.94 on validation weeks and
1.00 on training workloads, better than with the 0.86 that tuning had found on older workloads."""
JOBS_PER_NODE_FOR_HALF: Final = 0.45
"""Waiting jobs a node at which the adaptive threshold has come half of the way to 1. Tuned
(``rlalloc simulate tune efficiency-adaptive``)."""


def efficiency_threshold(job: JobView, _view: ClusterView, threshold: float = THRESHOLD) -> Shares:
    """The most GPUs at which speed-up over the smallest size is at least ``threshold`` of linear.

    Eager, Zahorjan and Lazowska, 1989 (Speedup versus Efficiency in Parallel Systems); the curve is the prior's.
    """
    counts = job.bounds.gpu_counts
    base = _speed(counts[0]) / counts[0]
    good = [count for count in counts if _speed(count) / count >= threshold * base]
    return shares_for_count(max(good, default=counts[0]), job.bounds)


def adaptive_efficiency_threshold(
    job: JobView,
    view: ClusterView,
    threshold: float = ADAPTIVE_THRESHOLD,
    jobs_per_node_for_half: float = JOBS_PER_NODE_FOR_HALF,
) -> Shares:
    """The same with a threshold that rises to 1 as the queue grows: jobs shrink under load.

    Rosti et al., 1994 (Robust Partitioning Policies of Multiprocessor Systems): sizes that follow the queue.
    """
    nodes = max(1, len(view.free))
    pressure = view.crowd / (view.crowd + jobs_per_node_for_half * nodes)
    return efficiency_threshold(job, view, threshold + (1.0 - threshold) * pressure)


def with_threshold(threshold: float, *, adaptive: bool = False) -> Heuristic:
    """Return one of the two with a threshold of one's own."""
    return partial(adaptive_efficiency_threshold if adaptive else efficiency_threshold, threshold=threshold)


def _speed(gpus: int) -> float:
    return PRIOR.at(gpus, PRIOR.cpus_per_gpu_needed)
