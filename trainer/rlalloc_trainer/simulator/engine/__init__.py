"""The engine: a Slurm cluster as compiled code runs it. docs/simulator.md says what it simulates and what not."""

from rlalloc_trainer.simulator.engine.jobs import JobTable, SubmittedJob, table_of
from rlalloc_trainer.simulator.engine.parameters import (
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
from rlalloc_trainer.simulator.engine.simulator import Simulator

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
