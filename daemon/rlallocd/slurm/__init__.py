"""Slurm, behind one package: nothing else in rlalloc runs its commands or imports pyslurm."""

from rlallocd.slurm.accounted_runs import AccountedRun, RunFilter, runs_in
from rlallocd.slurm.accounting import JOBS_PER_CALL
from rlallocd.slurm.batch_jobs import ENDED, BatchJobs, BatchState
from rlallocd.slurm.connection import Slurm, connect
from rlallocd.slurm.controllers import ControllerPing, host_of_this_machine, why_not_in_control
from rlallocd.slurm.ended_jobs import FIRST_SPAN_S, EndedJobs, ended_jobs, in_spans, next_span_s, shorter_span_s
from rlallocd.slurm.license_text import license_counts
from rlallocd.slurm.limit_reader import Holder
from rlallocd.slurm.limit_records import (
    AssociationRecord,
    LicenseRecord,
    Limits,
    Pool,
    QosRecord,
    ReservationRecord,
    SiteLimits,
)
from rlallocd.slurm.pace import BackOff, Budget
from rlallocd.slurm.sacct_windows import Span, span_of
from rlallocd.slurm.scheduling_rules import SchedulingRules
from rlallocd.slurm.slurm_commands import OTHER_CLUSTERS, Commands
from rlallocd.slurm.slurm_errors import (
    AnswerTooLong,
    CommandDied,
    JobChanged,
    SlurmError,
    SlurmUnavailable,
    UnexpectedAnswer,
    UpdateRefused,
)
from rlallocd.slurm.slurm_records import (
    WITHOUT_GPU_UPDATES,
    AccountingRecord,
    ControllerConfig,
    GpuDefaults,
    JobRecord,
    NodeNeeds,
    NodeRecord,
    PartitionRecord,
    RequestFields,
    UpdatePlan,
)
from rlallocd.slurm.submitted_job import SubmittedJob, batch_script, submitted_job

__all__ = [
    "ENDED",
    "FIRST_SPAN_S",
    "JOBS_PER_CALL",
    "OTHER_CLUSTERS",
    "WITHOUT_GPU_UPDATES",
    "AccountedRun",
    "AccountingRecord",
    "AnswerTooLong",
    "AssociationRecord",
    "BackOff",
    "BatchJobs",
    "BatchState",
    "Budget",
    "CommandDied",
    "Commands",
    "ControllerConfig",
    "ControllerPing",
    "EndedJobs",
    "GpuDefaults",
    "Holder",
    "JobChanged",
    "JobRecord",
    "LicenseRecord",
    "Limits",
    "NodeNeeds",
    "NodeRecord",
    "PartitionRecord",
    "Pool",
    "QosRecord",
    "RequestFields",
    "ReservationRecord",
    "RunFilter",
    "SchedulingRules",
    "SiteLimits",
    "Slurm",
    "SlurmError",
    "SlurmUnavailable",
    "Span",
    "SubmittedJob",
    "UnexpectedAnswer",
    "UpdatePlan",
    "UpdateRefused",
    "batch_script",
    "connect",
    "ended_jobs",
    "host_of_this_machine",
    "in_spans",
    "license_counts",
    "next_span_s",
    "runs_in",
    "shorter_span_s",
    "span_of",
    "submitted_job",
    "why_not_in_control",
]
