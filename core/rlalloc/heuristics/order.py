"""Who goes first, where the site lets urgency count.

Smallest area first (SAF), the baseline heuristic's order: jobs by the GPU time that they are expected to hold.
Carastan-Santos, de Camargo, Trystram and Zrigui, CCGRID 2019 (One Can Only Gain by Replacing EASY Backfilling).
Shortest first in a backfilled queue: Tsafrir, Etsion and Feitelson, 2007 (Backfilling Using System-Generated
Predictions Rather than User Runtime Estimates), SJBF. Here the order is not strict: what a job can lose is bounded
(``rlalloc.urgency``).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from rlalloc.allocation import size_for
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
        shares = self.policy(job, view)
        size = size_for(shares, job.request, job.bounds, view.shape)
        urgency = self.urgency_of(expected_run_time_s(job, size), size.gpus)
        return msgspec.structs.replace(shares, urgency=urgency)
