"""A first, simple simulator of a Slurm cluster: alike nodes, FIFO with EASY backfill, one decision a job.

It knows nothing of priorities, partitions, node failures or the scheduler's own pace; a job that is killed for the
size that it was given is submitted again as its user first asked, so that no policy profits from killing jobs.
"""

from rlalloc_trainer.simulator.job import KILLED_FOR_ITS_SIZE, JobRecord, SimulatedJob
from rlalloc_trainer.simulator.simulation import Cluster, Decide, Simulation, by_policy, fixed, simulate

__all__ = [
    "KILLED_FOR_ITS_SIZE",
    "Cluster",
    "Decide",
    "JobRecord",
    "SimulatedJob",
    "Simulation",
    "by_policy",
    "fixed",
    "simulate",
]
