"""Late decisions in the simulator: the rules of ``rlalloc.late_decisions`` on the engine's queue."""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from rlalloc.allocation import allocation_for
from rlalloc.bounds import NodeShape
from rlalloc.heuristics import Heuristic
from rlalloc.heuristics.workable_sizes import repaired_shares
from rlalloc.job import Allocation, Bounds, Shares
from rlalloc.late_decisions import LateRules, Waiting, differs, gain_of, while_it_waits
from rlalloc.speed.longer_limits import slowdown_to_allow
from rlalloc.view import ClusterView
from rlalloc_simulator.engine import Simulator, SubmittedJob
from rlalloc_simulator.engine.engine_records import NOBODY, Numbers
from rlalloc_simulator.engine.job_table import allocation_of, size_of
from rlalloc_simulator.engine.late_pass import begin, empty_pass, go_on, newcomer_starts, starts
from rlalloc_simulator.engine.policy_views import job_view, partition_view
from rlalloc_simulator.engine.view_arrays import node_arrays


def first_answer(simulator: Simulator, job: SubmittedJob, view: ClusterView, shares: Shares) -> Shares:
    """What a new job gets of a policy's answer on a site that decides late."""
    depth = simulator.site.interception.late_rules.depth
    row = _row(_allocation(shares, job, view))
    can_start = newcomer_starts(simulator.world, job.partition, depth, view.free, row)
    if can_start:
        return shares
    return while_it_waits(shares, job.request, job.bounds, functools.partial(_allocation, job=job, view=view))


class LatePasses:
    """The passes of one policy through the queue of a simulator whose workload is ``jobs``."""

    def __init__(self, simulator: Simulator, jobs: Sequence[SubmittedJob], policy: Heuristic) -> None:
        self._simulator, self._jobs, self._policy = simulator, jobs, policy
        self._rules: LateRules = simulator.site.interception.late_rules
        self._pass = empty_pass(
            len(jobs), simulator.site.node_count, self._rules.head, self._rules.depth, self._rules.max_updates
        )
        self._leasts: dict[NodeShape, Numbers] = {}

    def look(self) -> list[int]:
        """Decide those waiting jobs that could start now; return the jobs that got another size."""
        partitions = range(len(self._simulator.site.partitions))
        return [number for partition in partitions for number in self._look_at(partition)]

    def _look_at(self, partition: int) -> list[int]:
        simulator, world, now = self._simulator, self._simulator.world, self._pass
        free, _, largest = node_arrays(world.nodes, world.in_partition[partition])
        leasts = self._least_sizes(NodeShape(*largest.tolist()))
        number = begin(world, now, leasts, partition, free)
        if number == NOBODY:
            return []
        view, decided = partition_view(simulator, partition), {}
        while number != NOBODY:
            size = self._better(number, self._seen(view, len(free)))
            if size is not None:
                decided[number] = size
            number = go_on(world, now, leasts, _row(size or allocation_of(world.sizes[number])))
        for number, size in decided.items():
            there = world.jobs[number]
            patience_s = float(there["patience_s"]) if np.isfinite(there["patience_s"]) else 0.0
            simulator.resize({number: size}, nice={number: (int(there["added_nice"]), patience_s)})
        return list(decided)

    def _seen(self, view: ClusterView, nodes: int) -> ClusterView:
        """The partition as the job that is asked about sees it."""
        at = self._pass.at[0]
        return dataclasses.replace(
            view,
            free=self._pass.left[:nodes].copy(),
            queued=self._pass.blocked[: at["blocked"]].copy(),
            behind=int(at["waiting"] - at["place"]) - 1,
        )

    def _better(self, number: int, seen: ClusterView) -> Allocation | None:
        """Another size for a job, if the policy answers one that starts now and pays."""
        job, present = self._jobs[number], allocation_of(self._simulator.world.sizes[number])
        proposed = _allocation(self._policy(job_view(self._simulator, number, job), seen), job, seen)
        if not differs(proposed, present) or not starts(self._pass, _row(proposed)):
            return None
        waiting = Waiting(present, 0.0, job.request, job.run_time)
        return proposed if gain_of(waiting, proposed, seen) >= self._rules.min_gain else None

    def _least_sizes(self, shape: NodeShape) -> Numbers:
        """The smallest size of each job on nodes of ``shape``; rows of 0 for those that no pass decides."""
        if shape not in self._leasts:
            rows = np.zeros((len(self._jobs), 5), dtype=np.int64)
            for number, job in enumerate(self._jobs):
                # A job of one GPU count has the answer's CPUs and memory since its first decision.
                if job.managed and len(job.bounds.gpu_counts) > 1:
                    rows[number] = _row(_least(job.request, job.bounds, shape))
            self._leasts[shape] = rows
        return self._leasts[shape]


@functools.lru_cache(maxsize=16384)
def _least(request: Allocation, bounds: Bounds, shape: NodeShape) -> Allocation:
    slowdown_of = functools.partial(slowdown_to_allow, request)
    return allocation_for(repaired_shares(0.0, bounds), request, bounds, shape, slowdown_of)


def _allocation(shares: Shares, job: SubmittedJob, view: ClusterView) -> Allocation:
    return allocation_for(
        shares, job.request, job.bounds, view.shape, functools.partial(slowdown_to_allow, job.request)
    )


def _row(size: Allocation) -> Numbers:
    return np.array(list(size_of(size).values()))
