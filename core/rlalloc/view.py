"""The cluster at one moment, as far as a decision depends on it.

The daemon makes a view from Slurm's snapshot and the simulator from its own state; all that policies and the
observation encoding know of the cluster is in it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlalloc.bounds import NodeShape
from rlalloc.job import Allocation
from rlalloc.speed import PRIOR, SpeedCurve, run_time_s

FloatArray = NDArray[np.float64]

EXPECTED_FRACTION_OF_LIMIT = 0.44
"""A job's expected run time over its time limit, before anything is known of its user (LEARNING: Philly)."""


@dataclass(frozen=True, eq=False)
class ClusterView:
    """One partition at ``time_s``; arrays hold GPUs, CPUs and MiB in this order.

    free      (nodes, 3)  what each usable node has left
    totals    (3,)        what the usable nodes have in all
    releases  (running, 4)  seconds until a running job is expected to end, then what it holds; ascending
    queued    (pending, 2)  GPUs demanded and expected run time [s] of each job waiting ahead
    behind    jobs waiting behind: none for a job that comes in, those of lower priority for one that waits already
    """

    time_s: float
    shape: NodeShape
    free: FloatArray
    totals: FloatArray
    releases: FloatArray
    queued: FloatArray
    behind: int = 0

    @property
    def crowd(self) -> int:
        """How many other jobs wait, ahead or behind: what a job takes, all of them have to do without."""
        return len(self.queued) + self.behind

    @property
    def backlog_s(self) -> float:
        """Seconds that the whole partition would need to work off the queue."""
        if self.queued.size == 0:
            return 0.0
        return float((self.queued[:, 0] * self.queued[:, 1]).sum() / max(1.0, self.totals[0]))

    def fits_now(self, allocation: Allocation) -> bool:
        """Whether enough nodes have room for ``allocation`` at this moment."""
        need = (allocation.gpus_per_node, allocation.cpus_per_node, allocation.mem_mib_per_node)
        return int((self.free >= np.array(need)).all(axis=1).sum()) >= allocation.nodes

    def expected_wait_s(self, allocation: Allocation) -> float:
        """Seconds until ``allocation`` could start: none if it fits, else releases and the queue before it.

        An estimate: fragmentation and backfill are left out. If running jobs never free enough, the limit of
        the last one stands in for the unknown.
        """
        if self.fits_now(allocation):
            return 0.0
        need = np.array([allocation.gpus, allocation.cpus, allocation.mem_mib], dtype=np.float64)
        available = self.free.sum(axis=0) + np.cumsum(self.releases[:, 1:], axis=0)
        enough = (available >= need).all(axis=1)
        if enough.any():
            return float(self.releases[int(enough.argmax()), 0]) + self.backlog_s
        last = float(self.releases[-1, 0]) if len(self.releases) else 0.0
        return last + self.backlog_s

    def dominant_share(self, allocation: Allocation) -> float:
        """The largest part of the partition's GPUs, CPUs or memory that ``allocation`` takes (Ghodsi 2011)."""
        need = np.array([allocation.gpus, allocation.cpus, allocation.mem_mib], dtype=np.float64)
        return float((need / np.maximum(self.totals, 1.0)).max())


def expected_run_time_s(request: Allocation, allocation: Allocation, curve: SpeedCurve = PRIOR) -> float:
    """Expected run time [s] under ``allocation``, from the user's time limit and a speed curve."""
    return run_time_s(request, allocation, EXPECTED_FRACTION_OF_LIMIT * request.time_limit_s, curve)


def expected_remaining_s(time_limit_s: float, elapsed_s: float) -> float:
    """Seconds that a running job is expected to go on: the usual part of its limit, then half of what is left."""
    expected_s = EXPECTED_FRACTION_OF_LIMIT * time_limit_s
    return max(0.0, expected_s - elapsed_s if elapsed_s < expected_s else (time_limit_s - elapsed_s) / 2)


def slowdown(request: Allocation, allocation: Allocation, curve: SpeedCurve = PRIOR) -> float:
    """Predicted run time under ``allocation`` over that as submitted."""
    return run_time_s(request, allocation, 1.0, curve)
