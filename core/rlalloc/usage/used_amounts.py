"""What one past job tells of the memory and the CPUs that jobs like it need. Pure functions."""

import math
from typing import Final, NamedTuple

from rlalloc.past_job import PastJob

SHORTEST_S: Final = 120.0
"""Slurm looks at memory every 30 s (JobAcctGatherFrequency): of a shorter run it may have missed the peak."""
CPUS_ALL_USED: Final = 0.85
"""Of the CPUs that a job had: one that used more on average may have wanted more than it had."""
_WHOLE_RUNS: Final = frozenset({"COMPLETED", "TIMEOUT"})
"""Ends of runs that got as far as they could. One that failed or was cancelled may have ended before its peak."""
LONG_S: Final = 1800.0
"""A run that lasted so long is taken to have reached its peak however it ended."""


class Amounts(NamedTuple):
    """What a past job used, NaN where that is not known.

    ``node_mib`` bounds from above what it held on one node, ``cpus_per_gpu`` is its mean over the run (per node where
    it had no GPU). ``gpus_per_node`` is what it had then. ``requested_mib`` and ``requested_cpus_per_gpu`` is what
    its user asked for. ``whole`` says whether the run got as far as it could.
    """

    node_mib: float
    cpus_per_gpu: float
    gpus_per_node: int
    requested_mib: float
    requested_cpus_per_gpu: float
    whole: bool


def amounts_of(job: PastJob) -> Amounts:
    """What a past job used.

    One that ran out of memory, or whose CPUs were all at work, is taken to need what its user asked for: how much
    more than it had is not known.
    """
    had = job.allotted or job
    gpus_per_node = had.gpus // max(1, had.nodes)
    requested_mib = job.mem_mib / max(1, job.nodes)
    requested_cpus = job.cpus / (job.gpus or max(1, job.nodes))
    node_mib = cpus = math.nan
    if job.state == "OUT_OF_MEMORY":
        node_mib = max(requested_mib, job.node_rss_mib or 0.0)
    elif job.run_s >= SHORTEST_S:
        node_mib = job.node_rss_mib or math.nan
        if job.cpu_s_used:
            used = job.cpu_s_used / job.run_s
            cpus = used / (had.gpus or max(1, had.nodes))
            if used > CPUS_ALL_USED * had.cpus:
                cpus = max(cpus, requested_cpus)
    whole = job.state in _WHOLE_RUNS or job.state == "OUT_OF_MEMORY" or job.run_s >= LONG_S
    return Amounts(node_mib, cpus, gpus_per_node, requested_mib, requested_cpus, whole)
