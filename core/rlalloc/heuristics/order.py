"""Shortest first, where the site lets decisions set ``nice``: a bounded one, from the predicted run time.

Shortest-first orders of a backfilled queue: Tsafrir, Etsion and Feitelson, 2007 (Backfilling Using System-Generated
Predictions Rather than User Runtime Estimates), SJBF. Here the order is not strict: what a job can lose is bounded.
"""

import math
from dataclasses import dataclass
from typing import Final

from rlalloc.heuristics.sizes import Heuristic
from rlalloc.job import Allocation, JobView, Shares
from rlalloc.view import ClusterView, expected_run_time_s

MOST_NICE: Final = 100
"""With priority/basic a job is passed by at most so many later ones; with multifactor, points of priority."""
SHORT_S: Final = 60.0
"""A job that is expected to run no longer than this gets no nice."""
LONG_S: Final = 7 * 86_400.0
"""A job that is expected to run at least this long gets all of it."""


@dataclass(frozen=True)
class Ordered:
    """A policy that also puts shorter jobs first: the shares of ``policy``, and a ``nice`` of 0 to ``most``."""

    policy: Heuristic
    most: int = MOST_NICE

    def __call__(self, job: JobView, view: ClusterView) -> Shares:
        """Return the shares of the policy itself."""
        return self.policy(job, view)

    def nice(self, job: JobView, allocation: Allocation) -> int:
        """What is added to a job's nice in ``allocation``: on a log scale of its expected run time.

        On a log scale, for twice as long is as much to a job of a minute as to one of a day. Never negative: only
        operators may raise a job above where it stands.
        """
        run_s = max(SHORT_S, expected_run_time_s(job.request, allocation))
        return round(self.most * min(1.0, math.log(run_s / SHORT_S) / math.log(LONG_S / SHORT_S)))
