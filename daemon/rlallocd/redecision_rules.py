"""Pending re-decisions: which jobs the agent is asked about again, when, and whether another size pays.

Pure functions. The agent is asked about a job again once the cluster or the queue has changed enough since the last
question. The job gets another size only if that is expected to save enough; never a size that it had before, and only
a few times. Jobs that are about to start are left alone. docs/explanation/redecision.md has the rules for people.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np

from rlalloc.allocation import allocation_for
from rlalloc.config import RedecisionSection
from rlalloc.heuristics import TUNED_PRICE, expected_cost_s, smallest
from rlalloc.job import Allocation, JobView
from rlalloc.observation import FEATURES, SCHEMA_ID
from rlalloc.run_time import RunTimeEstimate
from rlalloc.store import Decision, JobHistory
from rlalloc.view import ClusterView, FloatArray
from rlallocd.candidates import WAITS_FOR_RESOURCES
from rlallocd.request_sizes import Skipped, differences, size_of
from rlallocd.slurm import JobRecord


class Situation(msgspec.Struct, frozen=True):
    """What a job's decision depended on, in three numbers: GPUs of the partition, free GPUs, and jobs ahead."""

    gpus: int
    free_gpus: int
    ahead: int


class Proposal(msgspec.Struct, frozen=True):
    """Another size for a job, and the view of the cluster from the job's place in the queue.

    ``starts_within_s`` is when Slurm expects the job to start in its present size, None if Slurm does not say.
    ``run_time`` is expected in the size of the request; None where only its time limit is known.
    """

    request: Allocation
    present: Allocation
    proposed: Allocation
    view: ClusterView
    starts_within_s: float | None = None
    run_time: RunTimeEstimate | None = None


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
    job: JobRecord, history: JobHistory, view: ClusterView, section: RedecisionSection, now_s: float
) -> str:
    """Why the agent is not asked about a pending job again now; an empty string if it is."""
    changed_by_others = differences(job, history.size)
    soon = starts_within_s(job, now_s)
    reasons = (
        (history.decisions[0].bounds is None, "it was skipped"),
        (job.is_array, "an array is decided once, for all its tasks"),
        (history.is_open, "an update of it is not finished"),
        (history.further_updates >= section.max_updates, f"it was already updated {history.further_updates} times"),
        # A decision in the future: the clock has been set back since.
        (0 <= now_s - history.decisions[-1].decided_s < section.every_s, "it was decided just now"),
        (bool(changed_by_others), f"somebody else changed it: {'; '.join(changed_by_others)}"),
        (soon is not None and soon <= section.leave_alone_s, "Slurm expects to start it soon"),
        (not len(view.queued) and view.fits_now(history.size), "it is at the head of the queue and fits"),
    )
    return next((reason for applies, reason in reasons if applies), "")


def starts_within_s(job: JobRecord, now_s: float) -> float | None:
    """Seconds until Slurm expects a pending job to start; None if Slurm does not say, or that moment has passed."""
    return job.started_s - now_s if job.started_s >= now_s else None


def could_start_now(job: JobView, view: ClusterView) -> bool:
    """Whether the smallest size inside a job's bounds fits into the free resources."""
    least = allocation_for(smallest(job, view), job.request, job.bounds, view.shape, lambda _: 1.0)
    return view.fits_now(least)


def is_new(proposed: Allocation, history: JobHistory) -> bool:
    """Whether a job has not had a size yet: without this rule it could swing between two sizes."""
    if _layout(proposed) == _layout(history.size):
        return _resources(proposed) not in {_resources(size) for size in history.sizes_had}
    return _layout(proposed) not in {_layout(size) for size in history.sizes_had}


def takes_more(proposed: Allocation, present: Allocation) -> bool:
    """Whether a size takes more of any resource than the present one."""
    counts = ((size.nodes, size.gpus, size.cpus, size.mem_mib) for size in (proposed, present))
    return any(new > old for new, old in zip(*counts, strict=True))


def predicted_gain(proposal: Proposal, view: ClusterView) -> float:
    """The fraction of the present size's expected cost that the proposed size saves; negative if it costs more.

    Slurm's own estimate of the start assumes whole time limits, so it is the better one where it is earlier than
    ours.
    """
    present_s = expected_cost_s(proposal, proposal.present, view)
    if proposal.starts_within_s is not None:
        sooner_s = max(0.0, view.expected_wait_s(proposal.present) - proposal.starts_within_s)
        present_s -= TUNED_PRICE.wait_weight * sooner_s
    return 1.0 - expected_cost_s(proposal, proposal.proposed, view) / max(1e-9, present_s)


def gains_that_pay(
    queue: Sequence[JobRecord],
    proposals: Mapping[int, Proposal],
    free: FloatArray,
    min_gain: float,
    grant: Callable[[int], bool] = lambda _: True,
) -> dict[int, float]:
    """The proposals that pay, by place in the queue, each with its predicted gain.

    Free resources are given away in the order of the queue: a job that fits takes its part, in its present or its
    proposed size, before the next job is judged. Else all jobs of a batch would shrink into the same gap.
    ``grant`` is called with the place of each proposal that pays, in the same order, and may refuse it.
    """
    gains: dict[int, float] = {}
    for place in range(max(proposals, default=-1) + 1):
        proposal = proposals.get(place)
        size = _size_if_it_waits_for_resources(queue[place])
        if proposal is not None:
            gain = predicted_gain(proposal, dataclasses.replace(proposal.view, free=free))
            if gain >= min_gain and grant(place):
                gains[place] = gain
                size = proposal.proposed
        if size is not None:
            free = _without(free, size)
    return gains


def _without(free: FloatArray, size: Allocation) -> FloatArray:
    """What stays free when a job of this size starts on the fullest nodes that hold it; everything if none do."""
    need = np.array((size.gpus_per_node, size.cpus_per_node, size.mem_mib_per_node), dtype=np.float64)
    fitting = np.flatnonzero((free >= need).all(axis=1))
    if len(fitting) < size.nodes:
        return free
    fullest = fitting[np.argsort(free[fitting, 0], kind="stable")][: size.nodes]
    left = free.copy()
    left[fullest] -= need
    return left


def _size_if_it_waits_for_resources(job: JobRecord) -> Allocation | None:
    if job.reason not in WAITS_FOR_RESOURCES:
        return None
    try:
        return size_of(job)
    except Skipped:
        return None


def _layout(size: Allocation) -> tuple[int, int]:
    return size.nodes, size.gpus_per_node


def _resources(size: Allocation) -> Allocation:
    """A size without its time limit."""
    return msgspec.structs.replace(size, time_limit_s=0)
