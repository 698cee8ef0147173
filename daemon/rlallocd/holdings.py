"""What running jobs hold on the nodes of one snapshot, and when they are expected to give it back."""

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rlalloc.devices import Device
from rlalloc.pool import CPUS, MEM_MIB, FloatArray, Pool
from rlallocd.known_run_times import KnownRunTimes
from rlallocd.node_demands import names_in
from rlallocd.node_pools import NodePools, column_of
from rlallocd.slurm import JobRecord, NodeRecord


class Holdings:
    """A row for each job and node: which job, which node, and what it holds there, in the columns of a stock."""

    def __init__(
        self, pools: NodePools, running: Sequence[JobRecord], now_s: float, run_times: KnownRunTimes
    ) -> None:
        self.jobs = tuple(running)
        self._pools = pools
        self._now_s = now_s
        self._run_times = run_times
        rows = [row for number, job in enumerate(self.jobs) for row in self._rows_of(number, job)]
        self._job = np.array([number for number, _, _ in rows], dtype=np.int64)
        self._node = np.array([place for _, place, _ in rows], dtype=np.int64)
        self._held = np.array([held for _, _, held in rows]).reshape(len(rows), pools.has.shape[1])

    def releases(self, pool: Pool, but: NDArray[np.bool_] | None = None) -> FloatArray:
        """Seconds until each job on nodes of a pool is expected to end, then what it holds there; ascending.

        Shape (jobs, 4). ``but`` (jobs,) is true for jobs that do not count.
        """
        jobs, held = self._on(pool, but)
        rows = np.column_stack((self._remaining_s[jobs], held))
        return rows[np.lexsort(rows.T[::-1])]

    def limits(self, pool: Pool, but: NDArray[np.bool_] | None = None) -> FloatArray:
        """Seconds until each job on nodes of a pool reaches its limit, and its devices there, shape (jobs, 2)."""
        jobs, held = self._on(pool, but)
        return np.column_stack((self._limit_s[jobs], held[:, 0]))

    def on_nodes(self, pool: Pool, of: NDArray[np.bool_]) -> FloatArray:
        """What jobs for which ``of`` (jobs,) is true hold on each node of a pool, shape (nodes, 3)."""
        held = np.zeros(self._pools.has.shape)
        rows = of[self._job]
        np.add.at(held, self._node[rows], self._held[rows])
        return pool.of(held)

    def chosen(self, which: Callable[[JobRecord], bool]) -> NDArray[np.bool_]:
        """For each job whether it is one of those."""
        return np.array([which(job) for job in self.jobs], dtype=np.bool_)

    def _on(self, pool: Pool, but: NDArray[np.bool_] | None) -> tuple[NDArray[np.int64], FloatArray]:
        """The jobs that have nodes of a pool open to its jobs, and what each holds on them, shape (jobs, 3)."""
        column = np.full(len(self._pools.nodes), -1, dtype=np.int64)
        column[pool.places] = 0 if pool.column is None else pool.column
        if pool.closed is not None:
            column[pool.places[pool.closed]] = -1
        counts = column[self._node] >= 0
        if but is not None:
            counts &= ~but[self._job]
        rows = np.flatnonzero(counts)
        of_job, held = self._job[rows], self._held[rows]
        devices = held[np.arange(len(rows)), column[self._node[rows]]]
        parts = [
            np.bincount(of_job, weights=each, minlength=len(self.jobs))
            for each in (devices, held[:, CPUS], held[:, MEM_MIB])
        ]
        jobs = np.unique(of_job)
        return jobs, np.column_stack(parts).astype(np.float64)[jobs]

    @cached_property
    def _remaining_s(self) -> FloatArray:
        return np.array([self._run_times.remaining_s(job, self._now_s) for job in self.jobs])

    @cached_property
    def _limit_s(self) -> FloatArray:
        return np.array([max(0.0, job.started_s + job.time_limit_s - self._now_s) for job in self.jobs])

    def _rows_of(self, number: int, job: JobRecord) -> list[tuple[int, int, list[float]]]:
        places = [self._pools.places[name] for name in names_in(job.held_nodes) or () if name in self._pools.places]
        if job.held_nodes:
            return [(number, place, self._held_by(job, place, 1.0 / job.nodes)) for place in places]
        # The reader does not say where it runs: its holdings are spread over its partition.
        places = self._in_partitions.get(job.partition, [])
        return [(number, place, self._held_by(job, place, 1.0 / len(places))) for place in places]

    @cached_property
    def _in_partitions(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for place, node in enumerate(self._pools.nodes):
            for partition in node.partitions if node.usable else ():
                found.setdefault(partition, []).append(place)
        return found

    def _held_by(self, job: JobRecord, place: int, part: float) -> list[float]:
        held = [0.0] * self._pools.has.shape[1]
        held[CPUS], held[MEM_MIB] = part * job.cpus, part * job.mem_mib
        for column, devices in _devices_held(self._pools.nodes[place], job.device, part * job.gpus):
            held[column] = devices
        return held


def _devices_held(node: NodeRecord, device: Device, count: float) -> list[tuple[int, float]]:
    """By the columns of a stock, what a job with ``count`` devices on a node holds of each kind there.

    A whole GPU is all its shards, and shards are a part of a GPU. Which of several types a job has that named none
    is not known: it counts for none.
    """
    alike = [
        (number, each)
        for number, each in enumerate(node.devices)
        if each.device.kind == device.kind and device.type in ("", each.device.type)
    ]
    if not alike and not device.type:  # slices, to a job that named no type
        alike = [(number, each) for number, each in enumerate(node.devices) if each.device.kind == "mig"]
    if len(alike) != 1:
        return []
    number, its = alike[0]
    held = [(column_of(number), count)]
    for other, each in enumerate(node.devices):
        if its.device.kind == "gpu" and each.device.kind == "shard":
            held.append((column_of(other), count * each.per_gpu))
        elif its.device.kind == "shard" and each.device.whole and each.device.type == its.device.type:
            held.append((column_of(other), count / its.per_gpu))
    return held
