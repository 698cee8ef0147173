"""The event loop: arrivals are decided, the queue is FIFO with EASY backfill, run times follow from what was given.

EASY backfill (Lifka 1995; Mu'alem and Feitelson 2001): the first job of the queue holds a reservation at the time
when running jobs, at their time limits, will have freed enough; a later job may start before it if it ends by then
or takes nothing that the reservation needs. Slurm's sched/backfill does the same for its first pending job.
"""

import heapq
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec
import numpy as np

from rlalloc.allocation import allocation_for
from rlalloc.bounds import NodeShape
from rlalloc.heuristics import Heuristic
from rlalloc.job import Allocation, JobView
from rlalloc.view import EXPECTED_FRACTION_OF_LIMIT, ClusterView, expected_remaining_s, slowdown
from rlalloc_trainer.simulator.job import KILLED_FOR_ITS_SIZE, JobRecord, SimulatedJob
from rlalloc_trainer.simulator.nodes import FloatArray, IntArray, Nodes

Decide = Callable[[int, "Simulation"], Allocation]
"""From a job's number in the stream and the simulation at its arrival to its allocation."""

BACKFILL_DEPTH: Final = 100
"""Jobs behind the head that are tried (Slurm: bf_max_job_test)."""
OOM_AFTER: Final = 0.2
"""Part of its run time after which a job with too little memory is killed; an assumption."""


class Cluster(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``nodes`` alike nodes."""

    nodes: int
    shape: NodeShape

    @property
    def gpus(self) -> int:
        """GPUs on all nodes."""
        return self.nodes * self.shape.gpus


class _Run(msgspec.Struct, frozen=True):
    """A job that runs, on which nodes, and how it will end."""

    number: int
    allocation: Allocation
    nodes: IntArray
    need: FloatArray
    start_s: float
    end_s: float
    state: str

    @property
    def limit_s(self) -> float:
        """When it ends at the latest."""
        return self.start_s + self.allocation.time_limit_s


class Simulation:
    """A stream of jobs, ascending in submission, on a cluster. ``run_until`` may be called again to go on.

    The queue holds job numbers; ``observer`` hears of every start and end, for tests and pictures.
    """

    def __init__(
        self,
        cluster: Cluster,
        jobs: Sequence[SimulatedJob],
        decide: Decide,
        observer: Callable[["Simulation"], None] | None = None,
    ) -> None:
        self.cluster = cluster
        self.jobs = jobs
        self.decide = decide
        self.observer = observer
        self.time_s = 0.0
        self.arrived = 0
        self.nodes = Nodes(cluster.nodes, cluster.shape)
        self.queue: list[int] = []
        self.running: dict[int, _Run] = {}
        self.allocations: list[Allocation] = []
        self._ends: list[tuple[float, int]] = []
        self._need = np.zeros((len(jobs), 3))
        self._count = np.zeros(len(jobs), dtype=np.intp)
        self._queued_at_decision: list[int] = []
        self._waiting: dict[int, Allocation] = {}
        self._first_run: dict[int, _Run] = {}
        self._finished_s = [math.inf] * len(jobs)

    def clone(self, decide: Decide, jobs: int | None = None) -> "Simulation":
        """Return a simulation that goes on from this very state, with decisions of its own.

        With ``jobs`` only that many of the stream ever arrive; not fewer than have already.
        """
        stop = len(self.jobs) if jobs is None else max(jobs, self.arrived)
        twin = Simulation(self.cluster, self.jobs[:stop], decide)
        twin.time_s, twin.arrived = self.time_s, self.arrived
        twin.nodes = self.nodes.copy()
        twin.queue, twin.running = self.queue.copy(), self.running.copy()
        twin.allocations, twin._ends = self.allocations.copy(), self._ends.copy()
        twin._need, twin._count = self._need[:stop].copy(), self._count[:stop].copy()
        twin._queued_at_decision = self._queued_at_decision.copy()
        twin._waiting, twin._first_run = self._waiting.copy(), self._first_run.copy()
        twin._finished_s = self._finished_s[:stop]
        return twin

    def run_until(self, arrivals: int | None = None) -> None:
        """Run until job number ``arrivals`` is the next to be decided, or until all is done."""
        stop = len(self.jobs) if arrivals is None else arrivals
        while self.arrived < stop or (arrivals is None and self._ends):
            next_arrival = self.jobs[self.arrived].submit_s if self.arrived < len(self.jobs) else math.inf
            if self._ends and self._ends[0][0] <= next_arrival:
                self._end_all_until(self._ends[0][0])
            else:
                self.time_s = next_arrival
                self._arrive()
            self._schedule()
            if self.observer is not None:
                self.observer(self)

    def records(self) -> list[JobRecord]:
        """What became of every job, in the stream's order, once all is done."""
        totals = self.nodes.capacity * self.cluster.nodes
        records = []
        for number, job in enumerate(self.jobs):
            run = self._first_run[number]
            held = np.array((run.allocation.gpus, run.allocation.cpus, run.allocation.mem_mib))
            records.append(
                JobRecord(
                    job=job,
                    allocation=run.allocation,
                    queued=self._queued_at_decision[number],
                    dominant_share=float((held / totals).max()),
                    start_s=run.start_s,
                    end_s=run.end_s,
                    state=run.state,
                    finished_s=self._finished_s[number],
                )
            )
        return records

    def total_jct_s(self) -> float:
        """Summed JCT of all jobs, once all is done."""
        return sum(finished_s - job.submit_s for finished_s, job in zip(self._finished_s, self.jobs, strict=True))

    def job_view(self, number: int) -> JobView:
        """The job that arrives now, as policies see it."""
        job = self.jobs[number]
        held = sum(run.allocation.gpus for run in self.running.values() if self.jobs[run.number].user == job.user)
        return JobView(job.job_class, job.request, job.bounds, self.time_s - job.submit_s, held)

    def cluster_view(self) -> ClusterView:
        """The cluster at this moment, as policies see it."""
        return ClusterView(
            time_s=self.time_s,
            shape=self.cluster.shape,
            free=self.nodes.free.copy(),
            totals=self.nodes.capacity * self.cluster.nodes,
            releases=self._expected_releases(),
            queued=np.array(
                [
                    (self._waiting[number].gpus, EXPECTED_FRACTION_OF_LIMIT * self._waiting[number].time_limit_s)
                    for number in self.queue
                ],
                dtype=np.float64,
            ).reshape(-1, 2),
        )

    def _expected_releases(self) -> FloatArray:
        rows = []
        for run in self.running.values():
            held = run.allocation
            remaining_s = expected_remaining_s(held.time_limit_s, self.time_s - run.start_s)
            rows.append((remaining_s, held.gpus, held.cpus, held.mem_mib))
        return np.array(sorted(rows), dtype=np.float64).reshape(-1, 4)

    def _arrive(self) -> None:
        number = self.arrived
        self._queued_at_decision.append(len(self.queue))
        allocation = self.decide(number, self)
        self.allocations.append(allocation)
        self.arrived += 1
        self._submit(number, allocation)

    def _submit(self, number: int, allocation: Allocation) -> None:
        self._need[number] = (allocation.gpus_per_node, allocation.cpus_per_node, allocation.mem_mib_per_node)
        self._count[number] = allocation.nodes
        if allocation.nodes > self.cluster.nodes or (self._need[number] > self.nodes.capacity).any():
            raise ValueError(f"job {number} can never run on {self.cluster}: {allocation.describe()}")
        self._waiting[number] = allocation
        self.queue.append(number)

    def _end_all_until(self, time_s: float) -> None:
        self.time_s = time_s
        while self._ends and self._ends[0][0] <= time_s:
            _, number = heapq.heappop(self._ends)
            run = self.running.pop(number)
            self.nodes.give_back(run.nodes, run.need)
            request = self.jobs[number].request
            if run.state in KILLED_FOR_ITS_SIZE and run.allocation != request:
                self._submit(number, request)
            else:
                self._finished_s[number] = time_s

    def _schedule(self) -> None:
        while self.queue:
            number = self.queue[0]
            nodes = self.nodes.fit(self._need[number], int(self._count[number]))
            if nodes is None:
                self._backfill()
                return
            del self.queue[0]
            self._start(number, nodes)

    def _backfill(self) -> None:
        behind = np.array(self.queue[1 : 1 + BACKFILL_DEPTH], dtype=np.intp)
        if not len(behind):
            return
        candidates = behind[self.nodes.fits_now(self._need[behind], self._count[behind])]
        if not len(candidates):
            return
        head = self.queue[0]
        by_limit = sorted(self.running.values(), key=lambda run: run.limit_s)
        reserved_s, spare = self.nodes.reservation(
            self._need[head],
            int(self._count[head]),
            ((run.limit_s, run.nodes, run.need) for run in by_limit),
        )
        for number in candidates.tolist():
            need, count = self._need[number], int(self._count[number])
            in_time = self.time_s + self._waiting[number].time_limit_s <= reserved_s
            nodes = self.nodes.fit(need, count, None if in_time else spare)
            if nodes is None:
                continue
            if not in_time:
                spare[nodes] -= need
            self.queue.remove(number)
            self._start(number, nodes)

    def _start(self, number: int, nodes: IntArray) -> None:
        allocation = self._waiting.pop(number)
        need = self._need[number].copy()
        duration_s, state = _fate(self.jobs[number], allocation)
        run = _Run(number, allocation, nodes, need, self.time_s, self.time_s + duration_s, state)
        self.nodes.take(nodes, need)
        self.running[number] = run
        self._first_run.setdefault(number, run)
        heapq.heappush(self._ends, (run.end_s, number))


def simulate(cluster: Cluster, jobs: Sequence[SimulatedJob], decide: Decide) -> list[JobRecord]:
    """Run a whole stream and return what became of each job. Deterministic."""
    simulation = Simulation(cluster, jobs, decide)
    simulation.run_until()
    return simulation.records()


def by_policy(policy: Heuristic) -> Decide:
    """Let ``policy`` decide, through the same share-to-allocation function as on a real site."""

    def decide(number: int, simulation: Simulation) -> Allocation:
        job = simulation.job_view(number)
        shares = policy(job, simulation.cluster_view())
        return allocation_for(
            shares, job.request, job.bounds, simulation.cluster.shape, partial(slowdown, job.request)
        )

    return decide


def fixed(allocations: Sequence[Allocation]) -> Decide:
    """Give each job of the stream the allocation that was decided before."""
    return lambda number, _: allocations[number]


def _fate(job: SimulatedJob, allocation: Allocation) -> tuple[float, str]:
    """Seconds that the job runs, and the state in which it ends."""
    run_time_s = job.run_time_s(allocation)
    if allocation.mem_mib_per_gpu < job.mem_mib_per_gpu_needed:
        return min(OOM_AFTER * run_time_s, float(allocation.time_limit_s)), "OUT_OF_MEMORY"
    if run_time_s > allocation.time_limit_s:
        return float(allocation.time_limit_s), "TIMEOUT"
    return run_time_s, "COMPLETED"
