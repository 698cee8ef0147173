"""Pending re-decisions: which jobs a pass of late decisions may ask about, and which sizes they may get.

Pure functions; ``rlalloc.late_decisions`` has the pass itself. A job gets only a size that it has not had, and only a
few times. Jobs that are about to start are left alone. docs/explanation/redecision.md has the rules for people.
"""

import msgspec
import numpy as np

from rlalloc.config import RedecisionSection
from rlalloc.job import Allocation
from rlalloc.observation import FEATURES, SCHEMA_ID
from rlalloc.store import Decision, JobHistory
from rlalloc.view import ClusterView
from rlallocd.slurm import JobRecord
from rlallocd.submissions.request_sizes import differences


class Situation(msgspec.Struct, frozen=True):
    """What a job's decision depended on, in three numbers: GPUs of the partition, free GPUs, and jobs ahead."""

    gpus: int
    free_gpus: int
    ahead: int


def situation_in(view: ClusterView) -> Situation:
    """The situation of the job that has this view."""
    return Situation(gpus=int(view.totals[0]), free_gpus=int(view.free[:, 0].sum()), ahead=len(view.queued))


def situation_at(decision: Decision) -> Situation | None:
    """The situation in which a decision was taken, from what the policy saw; None if that cannot be read."""
    if decision.observation is None or decision.queued is None or decision.observation_schema != SCHEMA_ID:
        return None
    saw = dict(zip(FEATURES, np.frombuffer(decision.observation, dtype="<f4").tolist(), strict=True))
    gpus = round(2 ** (saw["cluster_gpus"] * 10))
    return Situation(gpus=gpus, free_gpus=round(saw["free_gpus"] * gpus), ahead=decision.queued)


def changed_enough(then: Situation | None, now: Situation, change: float) -> bool:
    """Whether to ask again: the nodes have changed, or the free GPUs or jobs ahead by the fraction ``change``."""
    if then is None or then.gpus != now.gpus:
        return True
    return abs(now.free_gpus - then.free_gpus) >= max(1, change * now.gpus) or abs(now.ahead - then.ahead) >= max(
        1, change * then.ahead
    )


def why_not_redecided(
    job: JobRecord, history: JobHistory, section: RedecisionSection, now_s: float, *, fits_at_head: bool = False
) -> str:
    """Why the agent is not asked about a pending job again now; an empty string if it is.

    ``fits_at_head`` says that no other job waits ahead for its nodes, and that its present size fits there now.
    """
    changed_by_others = differences(job, history.size)
    soon = starts_within_s(job, now_s)
    reasons = (
        (history.decisions[0].bounds is None, "it was skipped"),
        (job.is_array, "an array is decided once, for all its tasks"),
        (history.is_open, "an update of it is not finished"),
        (history.further_updates >= section.max_updates, f"it was already updated {history.further_updates} times"),
        (bool(changed_by_others), f"somebody else changed it: {'; '.join(changed_by_others)}"),
        (soon is not None and soon <= section.leave_alone_s, "Slurm expects to start it soon"),
        (fits_at_head, "it is at the head of the queue and fits"),
    )
    return next((reason for applies, reason in reasons if applies), "")


def starts_within_s(job: JobRecord, now_s: float) -> float | None:
    """Seconds until Slurm expects a pending job to start; None if Slurm does not say, or that moment has passed."""
    return job.started_s - now_s if job.started_s >= now_s else None


def is_new(proposed: Allocation, history: JobHistory) -> bool:
    """Whether a job has not had a size yet: without this rule it could swing between two sizes."""
    if _layout(proposed) == _layout(history.size):
        return _resources(proposed) not in {_resources(size) for size in history.sizes_had}
    return _layout(proposed) not in {_layout(size) for size in history.sizes_had}


def takes_more(proposed: Allocation, present: Allocation) -> bool:
    """Whether a size takes more of any resource than the present one."""
    counts = ((size.nodes, size.gpus, size.cpus, size.mem_mib) for size in (proposed, present))
    return any(new > old for new, old in zip(*counts, strict=True))


def _layout(size: Allocation) -> tuple[int, int]:
    return size.nodes, size.gpus_per_node


def _resources(size: Allocation) -> tuple[Allocation, str]:
    """A size without its time limit, and the type of GPU that was chosen with it."""
    gpu_type = "" if size.gpu_type is None else size.gpu_type.name
    return msgspec.structs.replace(size, time_limit_s=0, gpu_type=None), gpu_type
