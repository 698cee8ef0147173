"""Earliest finish, without and with a price for what a job takes from others.

From a prototype before this project: a size is worth its own wait and run time plus what the others wait for it.
Constants are found in the simulator by the cross-entropy method (``rlalloc simulate tune``).
"""

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from rlalloc.heuristics.offers import Offer, OfSizes
from rlalloc.heuristics.sharing import equal_part
from rlalloc.job import Allocation
from rlalloc.view import ClusterView, ExpectedJob, expected_run_time_s

NotNegative = Annotated[float, msgspec.Meta(ge=0, le=1e6)]


class PriceConstants(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Constants of the price of a share of the cluster; times in seconds.

    With a ``share_power`` above 1 the price grows faster than the share: what is large fits into no gap.
    """

    wait_weight: NotNegative = 1.0
    own_price: NotNegative = 1.0
    queue_price: NotNegative = 0.5
    queue_power: NotNegative = 0.7
    horizon_s: NotNegative = 14400.0
    share_power: NotNegative = 1.0

    def price_s(self, dominant_share: float, run_time_s: float, queued: int) -> float:
        """What others wait for a job that holds ``dominant_share`` of the cluster for ``run_time_s``."""
        return self.prices_s((dominant_share,), (run_time_s,), queued)[0]

    def prices_s(self, dominant: Sequence[float], run_s: Sequence[float], queued: int) -> list[float]:
        """Likewise, for several sizes of one job."""
        crowd_price = self.queue_price * queued**self.queue_power
        return [
            share**self.share_power * (self.own_price * each_s + crowd_price * min(each_s, self.horizon_s))
            for share, each_s in zip(dominant, run_s, strict=True)
        ]


class SteepConstants(PriceConstants, frozen=True, forbid_unknown_fields=True):
    """Of a price whose own part rises by ``full_price`` as the cluster fills: most of it where hardly a GPU is free.

    It stands in for jobs that are yet to come, and who comes to a full cluster waits.
    """

    full_price: NotNegative = 80.0

    def where(self, in_use: float) -> "SteepConstants":
        """Return the constants where that part of the GPUs is in use."""
        return msgspec.structs.replace(self, own_price=self.own_price + self.full_price * in_use**FULL_POWER)


FULL_POWER: Final = 3.0
DEFAULT_PRICE: Final = PriceConstants()
"""What rewards charge."""
TUNED_PRICE: Final = PriceConstants(own_price=15.0, queue_price=8.0, queue_power=0.78)
"""What price-EF charges. Much dearer than what one decision costs the jobs that wait, for it stands in for those that
are yet to come."""
STEEP_PRICE: Final = SteepConstants(
    wait_weight=0.66, own_price=15.0, queue_price=24.0, queue_power=0.85, horizon_s=14_400.0, share_power=1.15
)
"""What steep-price charges: found where the queue keeps its own order, on training workloads and validation weeks."""
EQUAL_PARTS: Final = 1.25
"""So many equal parts of all GPUs are the most that capped-price gives a job."""
NO_PRICE: Final = PriceConstants(own_price=0.0, queue_price=0.0)


def expected_cost_s(job: ExpectedJob, allocation: Allocation, view: ClusterView) -> float:
    """What a job is expected to cost in ``allocation`` by price-EF's constants, in seconds.

    w·wait(k) + T(k) + share(k)^β·[n0·T + λ·q^p·min(T, τ)],  share(k) the dominant share of the cluster that size k
    takes, q the number of other jobs that wait.
    """
    run_s = expected_run_time_s(job, allocation)
    price_s = TUNED_PRICE.price_s(view.dominant_share(allocation), run_s, view.crowd)
    return float(TUNED_PRICE.wait_weight * view.expected_wait_s(allocation) + run_s + price_s)


def of_least_cost(offer: Offer, constants: PriceConstants = TUNED_PRICE) -> int:
    """Earliest finish with a price for what a size takes from others: the size of the least expected cost."""
    there, run_s, weight = offer.there, offer.run_s, constants.wait_weight
    prices_s = constants.prices_s(there.dominant, run_s, offer.view.crowd)
    return offer.of_least(
        [weight * row[0] + row[1] + row[2] for row in zip(there.wait_s, run_s, prices_s, strict=True)]
    )


def of_least_steep_cost(offer: Offer, constants: SteepConstants = STEEP_PRICE) -> int:
    """price-EF with a dearer price, which grows faster than the share and rises as the cluster fills."""
    return of_least_cost(offer, constants.where(offer.view.gpus_in_use))


def of_least_cost_by_order(offer: Offer) -> int:
    """steep-price where the queue keeps its own order, price-EF where smaller jobs go first.

    Small sizes pay where a long job holds up all that came after it.
    """
    return price_ef.place(offer) if offer.view.urgency_counts else steep_price.place(offer)


def of_least_cost_capped(offer: Offer) -> int:
    """price-by-order, but no more than EQUAL_PARTS equal parts of all GPUs.

    A price knows of jobs that wait. That many run says too that many will come, on a site that is always as busy; on
    one that will soon be empty it says nothing.
    """
    return min(price_by_order.place(offer), offer.at_most(EQUAL_PARTS * equal_part(offer.view)))


def of_earliest_finish(offer: Offer) -> int:
    """The size with which the job itself is done first, whatever it takes from others.

    The greedy choice of processors for moldable jobs of Cirne and Berman, 2002 (Using Moldability to Improve the
    Performance of Supercomputer Jobs), here on expected waits and run times.
    """
    return of_least_cost(offer, NO_PRICE)


price_ef: Final = OfSizes(of_least_cost)
steep_price: Final = OfSizes(of_least_steep_cost)
price_by_order: Final = OfSizes(of_least_cost_by_order)
capped_price: Final = OfSizes(of_least_cost_capped)
earliest_finish: Final = OfSizes(of_earliest_finish)
