"""Workloads of jobs: one plain file that the simulator, the demo's real site and the benchmarks take.

``workload_file`` reads and writes it, ``readers`` turn published traces and sacct's output into it, ``model_fitting``
and ``generator`` fit a small model and draw new workloads from it, ``sbatch_scripts`` makes scripts for a real site.
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
