"""A job in the simulator: what its user asked, what nobody knows beforehand, and what became of it."""

from typing import Final

import msgspec

from rlalloc.heuristics import DEFAULT_PRICE, PriceConstants
from rlalloc.job import Allocation, Bounds, JobClass
from rlalloc.reward import Consequence, reward
from rlalloc.speed import SpeedCurve
from rlalloc.view import expected_run_time_s

KILLED_FOR_ITS_SIZE: Final = frozenset({"OUT_OF_MEMORY", "TIMEOUT"})


class SimulatedJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job of a stream. The last three are hidden from every policy.

    ``work_s`` is its run time on one GPU with all the CPUs it needs; ``curve`` says how much faster it is on more.
    """

    submit_s: float
    user: int
    job_class: JobClass
    request: Allocation
    bounds: Bounds
    work_s: float
    curve: SpeedCurve
    mem_mib_per_gpu_needed: float

    def run_time_s(self, allocation: Allocation) -> float:
        """Seconds from start to completion under ``allocation``, if nothing kills it."""
        return self.work_s / self.curve.at(max(1, allocation.gpus), allocation.cpus_per_gpu)


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a job under ``allocation``.

    ``start_s``, ``end_s`` and ``state`` are of the run that the decision led to. ``finished_s`` is when the user was
    done: later than ``end_s`` only if that run was killed for its size and the job ran again as requested.
    """

    job: SimulatedJob
    allocation: Allocation
    queued: int
    dominant_share: float
    start_s: float
    end_s: float
    state: str
    finished_s: float

    @property
    def jct_s(self) -> float:
        """Seconds from submission until the user had the result."""
        return self.finished_s - self.job.submit_s

    @property
    def gpu_s(self) -> float:
        """GPU-seconds that the decided run held."""
        return self.allocation.gpus * (self.end_s - self.start_s)

    @property
    def reference_s(self) -> float:
        """The run time expected as submitted: what rewards are measured in."""
        return expected_run_time_s(self.job.request, self.job.request)

    def reward(self, price: PriceConstants = DEFAULT_PRICE) -> float:
        """What the decision was worth, by the same function as on a real site."""
        consequence = Consequence(
            state=self.state,
            wait_s=self.start_s - self.job.submit_s,
            run_time_s=self.end_s - self.start_s,
            dominant_share=self.dominant_share,
            queued=self.queued,
            reference_s=self.reference_s,
        )
        return reward(consequence, price)
