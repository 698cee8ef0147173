"""The engine: a Slurm cluster simulated by compiled code. What it simulates: docs/explanation/simulator.md."""

from rlalloc_simulator.engine.job_table import JobTable, SubmittedJob, table_of
from rlalloc_simulator.engine.simulator import Simulator
from rlalloc_simulator.engine.site_parameters import (
    Interception,
    NodeFailure,
    NodeKind,
    NodeOverhead,
    PartitionKind,
    PriorityParameters,
    SchedulerParameters,
    SimulatedSite,
    UserKind,
)

__all__ = [
    "Interception",
    "JobTable",
    "NodeFailure",
    "NodeKind",
    "NodeOverhead",
    "PartitionKind",
    "PriorityParameters",
    "SchedulerParameters",
    "SimulatedSite",
    "Simulator",
    "SubmittedJob",
    "UserKind",
    "table_of",
]
