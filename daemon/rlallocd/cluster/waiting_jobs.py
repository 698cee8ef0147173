"""The jobs that wait for GPUs, in the order in which Slurm tries them, and which compete for a pool's nodes."""

import bisect
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from rlalloc.constraint import is_simple
from rlalloc.pool import FloatArray, IntArray
from rlallocd.cluster.node_pools import Asked, NodePool, NodePools, asked_by
from rlallocd.cluster.queue_order import QueueOrder
from rlallocd.knowledge.known_run_times import KnownRunTimes
from rlallocd.slurm import JobRecord

MOST_POOLS: Final = 256
"""Of more, the jobs of further ones count as if they might use all nodes of their partition."""
_ROWS_OF_AN_ARRAY: Final = 100
"""An array of more tasks counts as so many jobs that run for longer."""
_TRIED: Final = frozenset({"", "None", "Resources", "Priority", "ReqNodeNotAvail", "BeginTime", "Cleaning"})
"""Reasons of jobs that Slurm would start if there were room: no others keep a later job waiting."""


class Competitors(NamedTuple):
    """The jobs that compete for the nodes of a pool, in the order of the queue.

    places     where they stand among all that wait
    demands    (rows, 2) the devices that each wants of the pool, by the part of its own nodes that are the pool's,
               and its expected run time [s]; tasks of an array are rows of their own
    first_row  the first row of each job, and the number of rows
    """

    places: IntArray
    demands: FloatArray
    first_row: IntArray

    def rows_at(self, place: int) -> tuple[int, int]:
        """How many rows stand before a place among all that wait, and how many at it."""
        first = int(self.places.searchsorted(place))
        before = int(self.first_row[first])
        is_there = first < len(self.places) and self.places[first] == place
        return before, int(self.first_row[first + 1]) - before if is_there else 0


class WaitingJobs:
    """All that wait for GPUs and that Slurm tries to start, at ``now_s``, in the order in which it tries them."""

    def __init__(
        self,
        pools: NodePools,
        jobs: Sequence[JobRecord],
        order: QueueOrder,
        now_s: float,
        run_times: KnownRunTimes,
    ) -> None:
        self._pools = pools
        self._order = order
        waiting = [job for job in jobs if waits(job, now_s)]
        ranks = [order.rank(job) for job in waiting]
        by_rank = sorted(range(len(ranks)), key=ranks.__getitem__)
        self.jobs = tuple([waiting[number] for number in by_rank])
        self._ranks = [ranks[number] for number in by_rank]
        self._devices = np.array([job.gpus for job in self.jobs], dtype=np.float64)
        self._tasks = np.array([job.waiting_tasks for job in self.jobs], dtype=np.int64)
        self._rows = np.minimum(self._tasks, _ROWS_OF_AN_ARRAY)
        run_s = np.array([run_times.expected_s(job) for job in self.jobs], dtype=np.float64)
        self._run_s = run_s * self._tasks / self._rows
        groups: dict[tuple[NodePool, ...], int] = {}
        self._group = np.array(self._groups_of(self.jobs, groups), dtype=np.int64)
        wanted = [np.maximum.reduce([pools.devices_of(pool) for pool in each]) for each in groups]
        self._wanted = np.array(wanted).reshape(len(groups), pools.has.size)
        self._competing: dict[NodePool, Competitors] = {}

    def place_of(self, job: JobRecord) -> tuple[int, bool]:
        """Where a job stands, or would stand by its priority if it came in now, and whether it is in the queue."""
        place = bisect.bisect_left(self._ranks, self._order.rank(job))
        return place, place < len(self.jobs) and self.jobs[place].job_id == job.job_id

    def competing_for(self, pool: NodePool) -> Competitors:
        """Those that may use nodes of a pool."""
        if pool not in self._competing:
            part = self.parts_in(pool)
            places = np.flatnonzero(part > 0.0)
            rows = self._rows[places]
            demands = np.column_stack((part[places] * self._devices[places], self._run_s[places]))
            first_row = np.concatenate(([0], np.cumsum(rows)))
            self._competing[pool] = Competitors(places, np.repeat(demands, rows, axis=0), first_row)
        return self._competing[pool]

    def parts_in(self, pool: NodePool) -> FloatArray:
        """For each job the part of the devices that it may use which a pool has, too."""
        here = self._pools.devices_of(pool) > 0.0
        of_group = self._wanted @ here / np.maximum(1.0, self._wanted.sum(axis=1))
        return np.asarray(of_group[self._group])

    def components(self) -> Iterator[IntArray]:
        """The queues of jobs that compete, directly or through others: places among all that wait, ascending."""
        has = (self._wanted > 0.0).astype(np.float32)
        overlaps = has @ has.T > 0.0
        left = set(range(len(overlaps)))
        while left:
            members, new = set[int](), {min(left)}
            while new:
                members |= new
                new = set(np.flatnonzero(overlaps[list(new)].any(axis=0)).tolist()) - members
            left -= members
            yield np.flatnonzero(np.isin(self._group, list(members)))

    def _groups_of(self, jobs: Sequence[JobRecord], groups: dict[tuple[NodePool, ...], int]) -> list[int]:
        known: dict[tuple[str, Asked], int] = {}
        found = []
        for job in jobs:
            key = job.partition, asked_by(job)
            group = known.get(key)
            if group is None:
                group = known[key] = self._group_of(job, groups)
            found.append(group)
        return found

    def _group_of(self, job: JobRecord, groups: dict[tuple[NodePool, ...], int]) -> int:
        pools = pools_of(job, self._pools)
        if pools not in groups and len(groups) >= MOST_POOLS:
            pools = pools_of(msgspec.structs.replace(job, features="", excluded_nodes=""), self._pools)
        return groups.setdefault(pools, len(groups))


def waits(job: JobRecord, now_s: float) -> bool:
    """Whether a job waits for GPUs, and for nothing else."""
    return (
        job.pending
        and job.gpus > 0
        and job.begin_s <= now_s
        and job.priority > 0
        and job.reason in _TRIED
        and not job.reservation
    )


def pools_of(job: JobRecord, pools: NodePools) -> tuple[NodePool, ...]:
    """The pools of a job, one for each of its partitions. A constraint that cannot be read excludes no node."""
    if not is_simple(job.features):
        job = msgspec.structs.replace(job, features="")
    return tuple(pools.for_job(job, partition) for partition in job.partition.split(","))
