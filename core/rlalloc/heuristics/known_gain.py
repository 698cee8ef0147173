"""Another size than the requested one only where its gain is known: run time, start, and what the others wait for it.

The cost of a size is what the job itself takes, and what the others wait because it holds its share of the cluster::

    cost(k) = wait(k) + T(k) + share(k)·T(k)·(waiting + COMING)

``wait`` is 0 for a size that fits now, else the time until running jobs have left enough. A job that holds a share s
for T seconds takes s·T seconds of the whole cluster from each job that waits now, and from those that come meanwhile.
T is the mean of what is known of the run time, and of scaling the 95% quantile where GPUs are added: so a larger
size has to pay at the lower bound of its speed-up. A departure has to save LEAST_GAIN of the cost. Memory is not cut
below a GPU's part of the node.

docs/explanation/policy.md derives it, docs/results/known-gain.md has the figures.
"""

import functools
import math
from collections.abc import Sequence
from typing import Final

from rlalloc.allocation import without_limit
from rlalloc.heuristics.workable_sizes import sizes_with_memory
from rlalloc.job import Allocation, JobView, Shares
from rlalloc.speed.longer_limits import median_slowdown, slowdown_to_allow
from rlalloc.speed.speed_belief import SpeedBelief
from rlalloc.speed.speed_prior import PRIOR_BELIEF
from rlalloc.view import ClusterView, ExpectedJob, mean_as_requested_s

COMING: Final = 10.0
"""Jobs that come while a job runs and are delayed by it, beyond those that wait now. On a cluster that is .75 to .8
busy, an M/M/c queue with 16 servers (Sakasegawa, 1977) loses 7 to 13 job-seconds for each second of the whole cluster
that is taken away. Chosen of 3, 10 and 20 on training seeds."""
LEAST_GAIN: Final = 0.05
"""The part of the request's cost that another size has to save. Validation workloads do not tell 0 from 0.15."""


def known_gain(job: JobView, view: ClusterView) -> Shares:
    """The size of the least expected cost, the request unless another one surely saves something.

    A size larger than the request counts with the lower bound of its speed-up: it is at least that, 19 times in 20. A
    smaller one counts with the median: that it takes longer than expected costs its own job time, which scaling in
    proportion bounds, while the GPUs that it leaves are certain. The price of a share is the number of
    jobs that wait, and of those expected to come (docs/explanation/policy.md).
    """
    sizes = sizes_with_memory(job.request, job.bounds, view.shape)
    if len(sizes.counts) == 1:
        return sizes.shares[0]
    costs_s = known_costs_s(job, sizes.allocations, view, job.speed)
    requested = job.request.gpus
    ranked = [
        (cost_s * (1.0 - LEAST_GAIN) if count == requested else cost_s, count != requested, -count, place)
        for place, (cost_s, count) in enumerate(zip(costs_s, sizes.counts, strict=True))
    ]
    return sizes.shares[min(ranked)[-1]]


def known_costs_s(
    job: ExpectedJob,
    allocations: Sequence[Allocation],
    view: ClusterView,
    speed: SpeedBelief | None = None,
    speed_up: float = 1.0,
) -> list[float]:
    """What a job costs itself and the others in each of ``allocations``, in seconds.

    ``speed`` is what is believed of its scaling; None is the prior. What is larger than the cluster costs infinity.
    On GPUs of a type on which it runs ``speed_up`` times as fast, it takes as much from the others.
    """
    as_requested_s = mean_as_requested_s(job)
    others = view.crowd + COMING
    there = view.sizes_there(allocations)
    slower = counted_slowdowns(without_limit(job.request), tuple(allocations), speed or PRIOR_BELIEF)
    costs_s = []
    for wait_s, share, slowdown in zip(there.freed_s, there.dominant, slower, strict=True):
        run_s = as_requested_s * slowdown
        costs_s.append(wait_s + run_s * (1.0 / speed_up + share * others) if share <= 1.0 else math.inf)
    return costs_s


@functools.lru_cache(maxsize=8192)
def counted_slowdowns(
    request: Allocation, allocations: tuple[Allocation, ...], speed: SpeedBelief
) -> tuple[float, ...]:
    """Run time in each of some sizes over that as requested, as it counts; kept, for many jobs ask for the same."""
    return tuple(_slowdown(request, allocation, speed) for allocation in allocations)


def _slowdown(request: Allocation, allocation: Allocation, speed: SpeedBelief) -> float:
    """Run time over that as requested: the median, or for more GPUs an upper quantile."""
    if allocation.gpus == request.gpus:
        return 1.0
    if allocation.gpus > request.gpus:
        return slowdown_to_allow(request, allocation, speed)
    return median_slowdown(request, allocation, speed)
