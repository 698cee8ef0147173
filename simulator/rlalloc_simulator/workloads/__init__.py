"""Workloads of jobs: one plain file that the simulator, the demo's real site and the benchmarks take.

``file`` reads and writes it, ``readers`` turn published traces and sacct's output into it, ``fit`` and ``generate``
learn a small model of a workload and draw new ones from it, ``sbatch`` makes scripts for a real site.
"""

from rlalloc_simulator.workloads.workload_errors import WorkloadError
from rlalloc_simulator.workloads.workload_file import open_workload, read_workload, write_workload
from rlalloc_simulator.workloads.workload_job import (
    Checkpoint,
    ClusterDescription,
    Dependency,
    End,
    Header,
    Needs,
    NodeGroup,
    Partition,
    Request,
    Speed,
    WorkloadJob,
)

__all__ = [
    "Checkpoint",
    "ClusterDescription",
    "Dependency",
    "End",
    "Header",
    "Needs",
    "NodeGroup",
    "Partition",
    "Request",
    "Speed",
    "WorkloadError",
    "WorkloadJob",
    "open_workload",
    "read_workload",
    "write_workload",
]
