"""As many GPUs as are used well."""

from typing import Final

from rlalloc.heuristics.offers import Offer, OfSizes

THRESHOLD: Final = 0.89
"""Least efficiency, over that of the smallest size. Tuned (``rlalloc simulate tune efficiency``): on workloads that
it was not tuned on, mean JCT over that as requested is 0.76, with 0.6 it is 1.02."""
ADAPTIVE_THRESHOLD: Final = 0.95
"""The same of the adaptive one, for an empty queue. Mean JCT over price-EF's with it is 0.94 on validation weeks and
1.00 on training workloads, better than with the 0.86 that tuning had found on older workloads."""
JOBS_PER_NODE_FOR_HALF: Final = 0.45
"""Waiting jobs a node at which the adaptive threshold has come half of the way to 1. Tuned
(``rlalloc simulate tune efficiency-adaptive``)."""


def most_efficient(offer: Offer, threshold: float = THRESHOLD) -> int:
    """The most GPUs at which speed-up over the smallest size is at least ``threshold`` of linear.

    Eager, Zahorjan and Lazowska, 1989 (Speedup versus Efficiency in Parallel Systems); the curve is the prior's.
    """
    speeds_per_gpu = offer.kind.speeds_per_gpu
    least = threshold * speeds_per_gpu[0]
    return max((place for place, speed in enumerate(speeds_per_gpu) if speed >= least), default=0)


def most_efficient_by_queue(
    offer: Offer,
    threshold: float = ADAPTIVE_THRESHOLD,
    jobs_per_node_for_half: float = JOBS_PER_NODE_FOR_HALF,
) -> int:
    """The same with a threshold that rises to 1 as the queue grows: jobs shrink under load.

    Rosti et al., 1994 (Robust Partitioning Policies of Multiprocessor Systems): sizes that follow the queue.
    """
    crowd = offer.view.crowd
    pressure = crowd / (crowd + jobs_per_node_for_half * max(1, len(offer.view.free)))
    return most_efficient(offer, threshold + (1.0 - threshold) * pressure)


efficiency_threshold: Final = OfSizes(most_efficient)
adaptive_efficiency_threshold: Final = OfSizes(most_efficient_by_queue)
