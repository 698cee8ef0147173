"""Late decisions in the simulator: the rules of ``rlalloc.late_decisions`` on the engine's queue."""

import functools
from collections.abc import Sequence

import numpy as np

from rlalloc.allocation import allocation_for
from rlalloc.heuristics import Heuristic, Ordered, as_requested, repaired, smallest
from rlalloc.job import Allocation, Shares
from rlalloc.late_decisions import LateRules, Waiting, decide_pass, first_shares, left_by
from rlalloc.speed.longer_limits import slowdown_to_allow
from rlalloc.view import ClusterView, FloatArray, expected_run_time_s
from rlalloc_simulator.engine import Simulator, SubmittedJob
from rlalloc_simulator.engine.engine_records import RUNNING
from rlalloc_simulator.engine.policy_views import job_view, partition_view


def first_answer(simulator: Simulator, job: SubmittedJob, view: ClusterView, shares: Shares) -> Shares:
    """What a new job gets of a policy's answer on a site that decides late."""
    world, rules = simulator.world, simulator.site.interception.late_rules
    queue = world.queue[: world.clock[0]["queued"]][: rules.depth]
    mine = queue[world.sizes["partition"][queue] == job.partition]
    left = left_by((_size_now(simulator, int(number)) for number in mine), view.free)
    return first_shares(shares, _allocation(shares, job, view), job.request, job.bounds, left)


def looks(policy: Heuristic) -> bool:
    """Whether a pass can change anything: not where the answer is the same whatever is free."""
    return (policy.policy if isinstance(policy, Ordered) else policy) not in (as_requested, repaired)


def look(simulator: Simulator, jobs: Sequence[SubmittedJob], policy: Heuristic) -> list[int]:
    """Decide those waiting jobs of a site that could start now; return the jobs that got another size."""
    world = simulator.world
    queue = world.queue[: world.clock[0]["queued"]].copy()
    of_partition = world.sizes["partition"][queue]
    resized = []
    for partition in np.unique(of_partition).tolist():
        resized += _look_at(simulator, jobs, policy, partition, queue[of_partition == partition].tolist())
    return resized


def _look_at(
    simulator: Simulator, jobs: Sequence[SubmittedJob], policy: Heuristic, partition: int, numbers: list[int]
) -> list[int]:
    rules = simulator.site.interception.late_rules
    view = partition_view(simulator, partition)
    waiting = [_waiting(simulator, number, jobs[number], view, rules) for number in numbers[: rules.depth]]
    if all(each.least is None for each in waiting):
        return []

    def ask(place: int, seen: ClusterView) -> Allocation:
        number = numbers[place]
        job = jobs[number]
        return _allocation(policy(job_view(simulator, number, job), seen), job, seen)

    decided = decide_pass(waiting, len(numbers), view, limits_of(simulator, partition), ask, rules)
    for place, resized in decided.items():
        there = simulator.world.jobs[numbers[place]]
        patience_s = float(there["patience_s"]) if np.isfinite(there["patience_s"]) else 0.0
        simulator.resize(
            {numbers[place]: resized.size}, nice={numbers[place]: (int(there["added_nice"]), patience_s)}
        )
    return [numbers[place] for place in decided]


def _waiting(simulator: Simulator, number: int, job: SubmittedJob, view: ClusterView, rules: LateRules) -> Waiting:
    record, size = simulator.world.jobs[number], _size_now(simulator, number)
    run_s = expected_run_time_s(job, size)
    has_run = not np.isnan(record["first_start_s"])
    # A job of one GPU count has the answer's CPUs and memory since its first decision.
    is_fixed = len(job.bounds.gpu_counts) == 1
    if not job.managed or has_run or is_fixed or record["decisions"] > rules.max_updates:
        return Waiting(size, run_s)
    least = _allocation(smallest(job_view(simulator, number, job), view), job, view)
    return Waiting(size, run_s, job.request, job.run_time, least)


def _size_now(simulator: Simulator, number: int) -> Allocation:
    """What a job asks for now; the engine does not know its tasks."""
    there = simulator.world.sizes[number]
    return Allocation(
        nodes=int(there["nodes"]),
        gpus_per_node=int(there["gpus_per_node"]),
        tasks_per_node=1,
        cpus_per_task=int(there["cpus_per_node"]),
        mem_mib_per_node=int(there["mem_mib_per_node"]),
        time_limit_s=int(there["limit_s"]),
    )


def limits_of(simulator: Simulator, partition: int) -> FloatArray:
    """Seconds until each job that runs in a partition reaches its time limit, and its GPUs, shape (running, 2)."""
    jobs, sizes = simulator.world.jobs, simulator.world.sizes
    running = np.flatnonzero((jobs["state"] == RUNNING) & (sizes["partition"] == partition))
    there = sizes[running]
    left_s = np.maximum(0.0, jobs["start_s"][running] + there["limit_s"] - simulator.now_s)
    return np.stack([left_s, (there["nodes"] * there["gpus_per_node"]).astype(np.float64)], axis=1)


def _allocation(shares: Shares, job: SubmittedJob, view: ClusterView) -> Allocation:
    return allocation_for(
        shares, job.request, job.bounds, view.shape, functools.partial(slowdown_to_allow, job.request)
    )
