"""Policies that need no learning, on one interface: a job and a cluster in, an allocation out.

They are the baselines that a learned policy has to beat, the base that the actor is a residual around, and what
the agent can serve where learning does not win.
"""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Final

import msgspec

from rlalloc.allocation import allocation_for, share_in, shares_of
from rlalloc.job import Allocation, Bounds, JobView, Shares
from rlalloc.view import ClusterView, expected_run_time_s

Heuristic = Callable[[JobView, ClusterView], Shares]

CPUS_PER_GPU_ENOUGH: Final = 4.0
"""Language models keep their speed from 1 CPU a GPU on, others from 3 (Synergy, OSDI 2022); one to spare."""


NotNegative = Annotated[float, msgspec.Meta(ge=0)]


class PriceConstants(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Constants of the price of a share of the cluster; times in seconds."""

    wait_weight: NotNegative = 1.0
    own_price: NotNegative = 1.0
    queue_price: NotNegative = 0.5
    queue_power: NotNegative = 0.7
    horizon_s: NotNegative = 14400.0

    def price_s(self, dominant_share: float, run_time_s: float, queued: int) -> float:
        """What others wait for a job that holds ``dominant_share`` of the cluster for ``run_time_s``."""
        crowd = self.queue_price * queued**self.queue_power * min(run_time_s, self.horizon_s)
        return float(dominant_share * (self.own_price * run_time_s + crowd))


DEFAULT_PRICE: Final = PriceConstants()
"""What rewards charge."""
TUNED_PRICE: Final = PriceConstants(own_price=15.0, queue_price=8.0, queue_power=0.78)
"""What price-EF charges: found in the simulator by the cross-entropy method (``rlalloc train heuristics``). On
streams that it was not tuned on, mean JCT over that as requested is 0.69, with DEFAULT_PRICE 0.77. Much dearer than
what one decision costs the jobs that wait, for it stands in for those that are yet to come."""


def as_requested(job: JobView, _view: ClusterView) -> Shares:
    """Give what was asked."""
    return shares_of(job.request, job.bounds)


def repaired(job: JobView, _view: ClusterView) -> Shares:
    """Give the GPUs that were asked, and CPUs and memory cut to what they need."""
    return _repair(shares_of(job.request, job.bounds).gpu, job.bounds)


def smallest(job: JobView, _view: ClusterView) -> Shares:
    """Give the lower bounds."""
    return _repair(0.0, job.bounds)


def largest(job: JobView, _view: ClusterView) -> Shares:
    """Give the most GPUs that the bounds allow."""
    return _repair(1.0, job.bounds)


def expected_cost_s(
    request: Allocation, allocation: Allocation, view: ClusterView, constants: PriceConstants = TUNED_PRICE
) -> float:
    """What a job that asked for ``request`` is expected to cost in ``allocation``, in seconds.

    w·wait(k) + T(k) + share(k)·[n0·T + λ·q^p·min(T, τ)],  share(k) the dominant share of the cluster that size k
    takes, q the number of other jobs that wait.
    """
    run_s = expected_run_time_s(request, allocation)
    price_s = constants.price_s(view.dominant_share(allocation), run_s, view.crowd)
    return constants.wait_weight * view.expected_wait_s(allocation) + run_s + price_s


def price_ef(job: JobView, view: ClusterView, constants: PriceConstants = TUNED_PRICE) -> Shares:
    """Earliest finish with a price for what a size takes from others: the size of the least expected cost."""
    cost_s = partial(expected_cost_s, job.request, view=view, constants=constants)
    return _repair(_cheapest_gpu_share(job, view, cost_s), job.bounds)


HEURISTICS: Final[dict[str, Heuristic]] = {
    "as-requested": as_requested,
    "repaired": repaired,
    "smallest": smallest,
    "largest": largest,
    "price-ef": price_ef,
}


def _cheapest_gpu_share(job: JobView, view: ClusterView, cost_s: Callable[[Allocation], float]) -> float:
    """Share of the cheapest workable GPU count, its CPUs and memory repaired; the larger one at a tie."""
    candidates = []
    for count in job.bounds.gpu_counts:
        gpu_share = share_in(count, job.bounds.gpus)
        allocation = allocation_for(
            _repair(gpu_share, job.bounds), job.request, job.bounds, view.shape, lambda _: 1.0
        )
        candidates.append((cost_s(allocation), -count, gpu_share))
    return min(candidates)[2]


def _repair(gpu_share: float, bounds: Bounds) -> Shares:
    """CPUs cut to what a GPU needs, memory to the lower bound (that the user or the site declared enough)."""
    cpus = bounds.cpus_per_gpu
    enough = min(cpus.maximum, max(cpus.minimum, CPUS_PER_GPU_ENOUGH))
    return Shares(gpu=gpu_share, cpu=share_in(enough, cpus), mem=0.0)
