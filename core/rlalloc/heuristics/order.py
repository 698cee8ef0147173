"""Who goes first, where the site lets urgency count.

Smallest area first (SAF), the baseline heuristic's order: jobs by the GPU time that they are expected to hold.
Carastan-Santos, de Camargo, Trystram and Zrigui, CCGRID 2019 (One Can Only Gain by Replacing EASY Backfilling).
Shortest first in a backfilled queue: Tsafrir, Etsion and Feitelson, 2007 (Backfilling Using System-Generated
Predictions Rather than User Runtime Estimates), SJBF. Here the order is not strict: what a job can lose is bounded
(``rlalloc.urgency``).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from rlalloc.allocation import size_for
from rlalloc.heuristics.offers import Offer, OfSizes
from rlalloc.heuristics.workable_sizes import Heuristic
from rlalloc.job import JobView, Shares
from rlalloc.urgency import urgency_of_area, urgency_of_run_time
from rlalloc.view import ClusterView, expected_run_time_s

UrgencyOf = Callable[[float, int], float]
"""From the expected run time [s] and the GPUs of a job to its urgency, 0 to 1."""

SMALLEST_AREA_FIRST: Final = "+smallest-area-first"
ORDERS: Final[dict[str, UrgencyOf]] = {SMALLEST_AREA_FIRST: urgency_of_area, "+shortest-first": urgency_of_run_time}
"""By what the name of a policy ends with that has them; one without is of one urgency, 1."""


@dataclass(frozen=True)
class Ordered:
    """A policy that also puts some jobs first: the sizes of ``policy``, and the urgency of each in its size."""

    policy: Heuristic
    urgency_of: UrgencyOf = urgency_of_area

    def __call__(self, job: JobView, view: ClusterView) -> Shares:
        """Return the policy's shares, and the urgency of the job in the size that they mean."""
        return self.order(self.policy(job, view), job, view)

    def order(self, shares: Shares, job: JobView, view: ClusterView) -> Shares:
        """Return shares with the urgency of a job in the size that they mean."""
        size = size_for(shares, job.request, job.bounds, view.shape)
        urgency = self.urgency_of(expected_run_time_s(job, size), size.gpus)
        return msgspec.structs.replace(shares, urgency=urgency)


def answers(heuristics: Mapping[str, Heuristic], offer: Offer) -> dict[str, Shares]:
    """What each heuristic answers one job. What several of them need is found once."""
    ordered: dict[tuple[Shares, UrgencyOf], Shares] = {}
    return {name: _answer(heuristic, offer, ordered) for name, heuristic in heuristics.items()}


def _answer(heuristic: Heuristic, offer: Offer, ordered: dict[tuple[Shares, UrgencyOf], Shares]) -> Shares:
    """One heuristic's answer; ``ordered`` keeps shares with the urgency of the job in them."""
    if not isinstance(heuristic, Ordered):
        return heuristic.answer(offer) if isinstance(heuristic, OfSizes) else heuristic(offer.job, offer.view)
    policy, urgency_of = heuristic.policy, heuristic.urgency_of
    if not isinstance(policy, OfSizes):
        shares = policy(offer.job, offer.view)
        found = ordered.get((shares, urgency_of))
        return found or heuristic.order(shares, offer.job, offer.view)
    place = policy.place(offer)
    shares = policy.sizes(offer).shares[place]
    if (shares, urgency_of) not in ordered:
        urgency = urgency_of(offer.run_s[place], offer.counts[place])
        ordered[shares, urgency_of] = msgspec.structs.replace(shares, urgency=urgency)
    return ordered[shares, urgency_of]
