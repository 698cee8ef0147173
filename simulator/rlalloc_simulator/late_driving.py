"""Late decisions in the simulator: the rules of ``rlalloc.late_decisions`` on the engine's queue."""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from rlalloc.allocation import allocation_for
from rlalloc.bounds import NodeShape
from rlalloc.heuristics import Heuristic
from rlalloc.heuristics.type_choice import Offered
from rlalloc.heuristics.workable_sizes import repaired_shares
from rlalloc.job import Allocation, Bounds, Shares
from rlalloc.late_decisions import Waiting, asks_for_more, differs, gain_of, while_it_waits
from rlalloc.speed.longer_limits import slowdown_to_allow
from rlalloc.speed.speed_belief import SpeedBelief
from rlalloc.speed.speed_prior import PRIOR_BELIEF
from rlalloc.view import ClusterView
from rlalloc_simulator.engine import Simulator, SubmittedJob
from rlalloc_simulator.engine.engine_records import NOBODY, Numbers
from rlalloc_simulator.engine.job_table import allocation_of, size_of, slowdown_of
from rlalloc_simulator.engine.late_pass import (
    Groups,
    ahead_of,
    begin,
    empty_pass,
    go_on,
    group_of,
    groups_of,
    left_of,
    newcomer_starts,
    starts,
)
from rlalloc_simulator.engine.policy_views import job_view, nodes_view

ChooseType = Callable[[int, Offered, Shares], Allocation | None]
"""Chooses a type of GPU for a job that waits, whose answer on all nodes is these shares; or None."""


class LateDecisions:
    """The decisions of one policy on a simulator that decides late, whose workload is ``jobs``."""

    def __init__(self, simulator: Simulator, jobs: Sequence[SubmittedJob], policy: Heuristic) -> None:
        self._simulator, self._jobs, self._policy = simulator, jobs, policy
        rules = simulator.site.interception.late_rules
        window_s = min(rules.window_s, simulator.site.scheduler.bf_window)
        self._rules = msgspec.structs.replace(rules, window_s=window_s)
        self._pass = empty_pass(simulator.world, self._rules)
        self._groups_when: dict[bytes, Groups] = {}
        self._leasts_when: dict[bytes, Numbers] = {}

    def cannot_start_yet(self, number: int) -> bool:
        """Whether a job waits for another one or for its own begin time."""
        there = self._simulator.world.jobs[number]
        return bool(there["unmet"] > 0 or there["begin_s"] > self._simulator.now_s)

    def first_answer(self, number: int, view: ClusterView, shares: Shares) -> Shares:
        """What a new job gets of the policy's answer: it is sized after those that wait and could start."""
        job, world = self._jobs[number], self._simulator.world
        size = _allocation(shares, job, view)
        if self.cannot_start_yet(number):  # later, Slurm may start it before a pass
            stands = not asks_for_more(job.request, size)
        else:
            stands = newcomer_starts(world, self._pass, self._groups(), number, _row(size))
        if stands:
            return shares
        return while_it_waits(shares, job.request, job.bounds, functools.partial(_allocation, job=job, view=view))

    def starts_on_type(self, number: int, view: ClusterView, shares: Shares) -> bool:
        """Whether a new job has room in these shares on nodes of its type, beside those ahead that could start."""
        row = _row(_allocation(shares, self._jobs[number], view))
        return newcomer_starts(self._simulator.world, self._pass, self._groups(), number, row)

    def look(self, choose_type: ChooseType = lambda _number, _plain, _shares: None) -> list[int]:
        """Decide those waiting jobs that could start now; return the jobs that got another size.

        A size that ``choose_type`` returns starts now and pays; the engine knows its type.
        """
        simulator, world, now = self._simulator, self._simulator.world, self._pass
        groups, leasts = self._groups(), self._leasts()
        views: dict[int, ClusterView] = {}
        decided: dict[int, Allocation] = {}
        number = begin(world, now, groups, leasts)
        while number != NOBODY:
            group = group_of(world, groups, number)
            if group not in views:
                views[group] = nodes_view(simulator, int(groups.pool[group]))
            size = self._better(number, self._seen(views[group], group), choose_type)
            if size is not None:
                decided[number] = size
            number = go_on(world, now, groups, leasts, _row(size or allocation_of(world.sizes[number])))
        for number, size in decided.items():
            there = world.jobs[number]
            patience_s = float(there["patience_s"]) if np.isfinite(there["patience_s"]) else 0.0
            simulator.resize({number: size}, nice={number: (int(there["added_nice"]), patience_s)})
        return list(decided)

    def _seen(self, view: ClusterView, group: int) -> ClusterView:
        """The nodes of a group as the job that is asked about sees them."""
        groups = self._groups()
        there = self._pass.groups[group]
        return dataclasses.replace(
            view,
            free=left_of(self._simulator.world, self._pass, groups, group),
            queued=ahead_of(self._pass, groups, group),
            behind=max(0, int(there["waiting"] - there["ahead"]) - 1),
        )

    def seen_on(self, pool: int) -> ClusterView | None:
        """The nodes of a pool as the job that is asked about sees them; None if it may use none."""
        group = int(self._groups().of[pool])
        return None if group == NOBODY else self._seen(nodes_view(self._simulator, pool), group)

    def pays(self, number: int, pool: int, proposed: Allocation, seen: ClusterView) -> bool:
        """Whether a size that the job does not have starts now on nodes of a pool, and pays.

        ``seen`` is what it sees of all nodes that it may use.
        """
        world, groups = self._simulator.world, self._groups()
        job, present = self._jobs[number], allocation_of(world.sizes[number])
        group = int(groups.of[pool])
        if not differs(proposed, present) or not starts(world.pools, self._pass, groups, group, _row(proposed)):
            return False
        waiting = Waiting(present, 0.0, job.request, job.run_time, speed=job.speed)
        return gain_of(waiting, proposed, seen) >= self._rules.min_gain

    def _better(self, number: int, seen: ClusterView, choose_type: ChooseType) -> Allocation | None:
        """Another size for a job, if the policy answers one that starts now and pays."""
        job = self._jobs[number]
        offered = Offered(job_view(self._simulator, number, job), seen)
        shares = self._policy(*offered)
        on_type = choose_type(number, offered, shares)
        if on_type is not None:
            return on_type
        proposed = _allocation(shares, job, seen)
        pool = int(self._simulator.world.sizes[number]["pool"])
        return proposed if self.pays(number, pool, proposed, seen) else None

    def _groups(self) -> Groups:
        """The groups of jobs as the nodes are up now."""
        up = self._simulator.world.nodes["up"].tobytes()
        if up not in self._groups_when:
            self._groups_when[up] = groups_of(self._simulator.world)
        return self._groups_when[up]

    def _leasts(self) -> Numbers:
        """The smallest size of each job on the nodes of its group; rows of 0 for those that no pass decides."""
        world, groups = self._simulator.world, self._groups()
        up = world.nodes["up"].tobytes()
        if up not in self._leasts_when:
            shapes = [nodes_view(self._simulator, pool).shape for pool in groups.pool.tolist()]
            rows = np.zeros((len(self._jobs), 5), dtype=np.int64)
            for number, job in enumerate(self._jobs):
                group = group_of(world, groups, number)
                # A job of one GPU count has the answer's CPUs and memory since its first decision.
                if job.managed and len(job.bounds.gpu_counts) > 1 and group != NOBODY:
                    rows[number] = _row(_least(job.request, job.bounds, shapes[group], job.speed or PRIOR_BELIEF))
            self._leasts_when[up] = rows
        return self._leasts_when[up]


@functools.lru_cache(maxsize=16384)
def _least(request: Allocation, bounds: Bounds, shape: NodeShape, speed: SpeedBelief) -> Allocation:
    slower = functools.partial(slowdown_to_allow, request, belief=speed)
    return allocation_for(repaired_shares(0.0, bounds), request, bounds, shape, slower)


def _allocation(shares: Shares, job: SubmittedJob, view: ClusterView) -> Allocation:
    return allocation_for(shares, job.request, job.bounds, view.shape, slowdown_of(job))


def _row(size: Allocation) -> Numbers:
    return np.array(list(size_of(size).values()))
