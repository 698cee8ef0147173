"""Resizing running jobs: at every full hour, jobs that can resume are requeued where that clearly pays.

A reference for what resizing running jobs could win; rlalloc itself sizes pending jobs only. The rule:

* at most one requeue an hour for each job: a job that has run for less than an hour stays;
* only jobs with a checkpoint; what the job has done since its last one is lost, and counts as a cost;
* a job that was killed once, and was submitted again as requested, stays;
* the policy decides as if the job were pending and what it holds were free; its answer must fit what is then free;
* the job's expected cost in the new size, with the delay of the requeue, the restart and the lost work, must be less
  than PAYS times the cost of going on. Costs are price-EF's (own time plus the price to others) over the rest of the
  job, so that giving GPUs back while others wait can pay, and taking idle ones, too.

One job is requeued at a time; the next one sees the nodes as that left them.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from rlalloc.allocation import allocation_for
from rlalloc.heuristics import Heuristic, expected_cost_s
from rlalloc.job import Allocation, JobView
from rlalloc.run_time import EXPECTED_FRACTION_OF_LIMIT
from rlalloc.view import ClusterView, slowdown
from rlalloc_simulator.engine import SimulatedSite, Simulator, SubmittedJob, table_of
from rlalloc_simulator.engine.engine_records import NOBODY, RUNNING, Numbers
from rlalloc_simulator.engine.job_table import allocation_of, slowdown_of
from rlalloc_simulator.engine.policy_views import cluster_view, job_view, usable_by
from rlalloc_simulator.engine.view_arrays import remaining_s

EVERY_S: Final = 3600.0
PAYS: Final = 0.8
"""A requeue has to save a fifth of the expected cost: estimates of the remaining time are as far off as that."""


class ResizingSimulator(Simulator):
    """A Simulator in which ``policy`` also resizes running jobs, by the rule above. A clone does not."""

    def __init__(self, site: SimulatedSite, jobs: Sequence[SubmittedJob], policy: Heuristic) -> None:
        """Raise ValueError as Simulator and table_of do."""
        super().__init__(site, table_of(jobs, site))
        self._submitted = jobs
        self._policy = policy
        self._next_look_s = (math.floor(self.now_s / EVERY_S) + 1) * EVERY_S

    def run(self, until_s: float = math.inf) -> Numbers:
        """Like Simulator.run, with a look at the running jobs every hour."""
        while not self.finished:
            asked = super().run(min(until_s, self._next_look_s))
            if len(asked) or self.freed or self.finished or until_s < self._next_look_s:
                return asked
            self._look()
            self._next_look_s += EVERY_S
        return np.empty(0, dtype=np.int64)

    def _look(self) -> None:
        jobs = self.world.jobs
        long_enough = jobs["start_s"] <= self.now_s - EVERY_S
        never_killed = np.isnan(jobs["first_end_s"])
        may = (jobs["state"] == RUNNING) & jobs["managed"] & jobs["resumes"] & long_enough & never_killed
        for number in np.flatnonzero(may).tolist():
            allocation = self._better(number)
            if allocation is not None:
                self.requeue(number)
                self.resize({number: allocation})  # a requeued job has its turn: only its own nice is left

    def _better(self, number: int) -> Allocation | None:
        """Return the size that clearly pays for a running job, or None."""
        submitted, held = self._submitted[number], allocation_of(self.world.sizes[number])
        view = view_without(cluster_view(self, number), held, self._nodes_of(number))
        job = job_view(self, number, submitted)
        allocation = allocation_for(
            self._policy(job, view),
            job.request,
            job.bounds,
            view.shape,
            slowdown_of(job),
        )
        same = (allocation.gpus, allocation.nodes) == (held.gpus, held.nodes)
        if same or not view.fits_now(allocation):
            return None
        record = self.world.jobs[number]
        elapsed_s = self.now_s - float(record["start_s"])
        every_s = submitted.checkpoint_interval_s
        lost_s = elapsed_s % every_s if every_s > 0 else 0.0
        delay_s = self.site.interception.requeue_delay + submitted.restart_cost_s
        left_s = remaining_s(record, self.world.sizes[number], self.now_s)
        return allocation if pays(job, view, held, allocation, left_s, lost_s, delay_s) else None

    def _nodes_of(self, number: int) -> list[int]:
        """Places in ``cluster_view(...).free`` of the nodes that a running job is on."""
        world = self.world
        usable = usable_by(self, number)
        place_of = np.cumsum(usable) - 1
        nodes, link = [], int(world.jobs[number]["first_hold"])
        while link != NOBODY:
            nodes.append(int(place_of[world.holds[link]["node"]]))
            link = int(world.holds[link]["next"])
        return nodes


def view_without(view: ClusterView, held: Allocation, nodes: Sequence[int]) -> ClusterView:
    """Return the view as if a job that holds ``held`` on each of ``nodes`` (places in ``view.free``) were waiting."""
    free = view.free.copy()
    free[[*nodes]] += (held.gpus_per_node, held.cpus_per_node, held.mem_mib_per_node)
    holds = np.array((held.gpus, held.cpus, held.mem_mib))
    alike = np.flatnonzero((view.releases[:, 1:] == holds).all(axis=1))
    releases = np.delete(view.releases, alike[:1], axis=0)
    return dataclasses.replace(view, free=free, releases=releases)


def pays(
    job: JobView,
    view: ClusterView,
    held: Allocation,
    other: Allocation,
    left_s: float,
    lost_s: float,
    delay_s: float,
) -> bool:
    """Whether it clearly pays for a running job to go on in ``other`` instead of ``held``.

    ``left_s`` is how long it is expected to go on as it is, ``lost_s`` how much of its run is not in a checkpoint,
    ``delay_s`` the requeue and the restart, all in seconds. ``view`` is that of ``view_without``.
    """
    going_on_s = _cost_s(job, view, held, left_s)
    moved_s = _cost_s(job, view, other, left_s + lost_s, held) + delay_s
    return moved_s < PAYS * going_on_s


def _cost_s(
    job: JobView, view: ClusterView, allocation: Allocation, left_s: float, measured_in: Allocation | None = None
) -> float:
    """price-EF's cost of ``left_s`` seconds of run in ``measured_in`` (``allocation`` itself if None)."""
    as_requested_s = left_s / slowdown(job.request, measured_in or allocation)
    limit_s = max(1, round(as_requested_s / EXPECTED_FRACTION_OF_LIMIT))
    request = msgspec.structs.replace(job.request, time_limit_s=limit_s)
    rest = msgspec.structs.replace(job, request=request, run_time=None)
    return expected_cost_s(rest, allocation, view)
