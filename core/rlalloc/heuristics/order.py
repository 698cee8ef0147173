"""Shortest first, where the site lets urgency count.

Shortest-first orders of a backfilled queue: Tsafrir, Etsion and Feitelson, 2007 (Backfilling Using System-Generated
Predictions Rather than User Runtime Estimates), SJBF. Here the order is not strict: what a job can lose is bounded
(``rlalloc.urgency``).
"""

from dataclasses import dataclass

import msgspec

from rlalloc.allocation import size_for
from rlalloc.heuristics.sizes import Heuristic
from rlalloc.job import JobView, Shares
from rlalloc.urgency import urgency_of_run_time
from rlalloc.view import ClusterView, expected_run_time_s


@dataclass(frozen=True)
class Ordered:
    """A policy that also puts shorter jobs first: the sizes of ``policy``, and the urgency of each in its size."""

    policy: Heuristic

    def __call__(self, job: JobView, view: ClusterView) -> Shares:
        """Return the policy's shares with an urgency on a log scale of the run time that is expected with them."""
        shares = self.policy(job, view)
        size = size_for(shares, job.request, job.bounds, view.shape)
        return msgspec.structs.replace(shares, urgency=urgency_of_run_time(expected_run_time_s(job.request, size)))
