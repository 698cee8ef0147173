"""What running jobs hold on the nodes of one snapshot, and when they are expected to give it back."""

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rlalloc.devices import Device
from rlalloc.pool import CPUS, DEVICES, MEM_MIB, FloatArray, Pool
from rlallocd.cluster.node_demands import names_in
from rlallocd.cluster.node_pools import NodePools, column_of
from rlallocd.knowledge.known_run_times import KnownRunTimes
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
        places = [self._places_of(job) for job in self.jobs]
        on_nodes = np.array([len(each) for each in places], dtype=np.int64)
        self._job = np.repeat(np.arange(len(self.jobs)), on_nodes)
        self._node = np.array([place for each in places for place in each], dtype=np.int64)
        self._held = self._held_in_rows(on_nodes)

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
        of_job, kind = self._job[rows], DEVICES if pool.column is None else column[self._node[rows]]
        devices, cpus, mem_mib = self._held[rows, kind], self._held[:, CPUS][rows], self._held[:, MEM_MIB][rows]
        if pool.threads is not None:
            cpus = cpus / pool.threads[pool.places.searchsorted(self._node[rows])]
        parts = [np.bincount(of_job, weights=each, minlength=len(self.jobs)) for each in (devices, cpus, mem_mib)]
        jobs = np.flatnonzero(np.bincount(of_job))
        return jobs, np.column_stack(parts).astype(np.float64)[jobs]

    @cached_property
    def _remaining_s(self) -> FloatArray:
        return np.array([self._run_times.remaining_s(job, self._now_s) for job in self.jobs])

    @cached_property
    def _limit_s(self) -> FloatArray:
        return np.array([max(0.0, job.started_s + job.most_s - self._now_s) for job in self.jobs])

    def _places_of(self, job: JobRecord) -> list[int]:
        if job.held_nodes:
            names = names_in(job.held_nodes) or ()
            return [self._pools.places[name] for name in names if name in self._pools.places]
        # The reader does not say where it runs: its holdings are spread over its partition.
        return self._in_partitions.get(job.partition, [])

    @cached_property
    def _in_partitions(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for place, node in enumerate(self._pools.nodes):
            for partition in node.partitions if node.usable else ():
                found.setdefault(partition, []).append(place)
        return found

    def _held_in_rows(self, on_nodes: NDArray[np.int64]) -> FloatArray:
        """What each job holds on each of its ``on_nodes`` (jobs,) nodes."""
        layouts: dict[_Layout, int] = {}
        layout = [layouts.setdefault(_layout(node), len(layouts)) for node in self._pools.nodes]
        asked: dict[Device, int] = {}
        device = [asked.setdefault(job.device, len(asked)) for job in self.jobs]
        held_with_one = np.zeros((len(asked), len(layouts), self._pools.has.shape[1]))
        for its, row in asked.items():
            for devices, place in layouts.items():
                for column, count in _held_with_one(devices, its):
                    held_with_one[row, place, column] = count
        nodes = [job.nodes if job.held_nodes else count for job, count in zip(self.jobs, on_nodes, strict=True)]
        of_all = np.array([(job.gpus, job.cpus, job.mem_mib) for job in self.jobs], dtype=np.float64).reshape(-1, 3)
        gpus, cpus, mem_mib = (of_all / np.maximum(1, nodes)[:, None])[self._job].T
        kinds = np.array(device, dtype=np.int64)[self._job], np.array(layout, dtype=np.int64)[self._node]
        held = np.asfortranarray(held_with_one[kinds] * gpus[:, None])  # columns are read one by one
        held[:, CPUS], held[:, MEM_MIB] = cpus, mem_mib
        return held


_Layout = tuple[tuple[Device, int], ...]
"""The devices of a node, each with how many of them one GPU has."""


def _layout(node: NodeRecord) -> _Layout:
    return tuple((each.device, each.per_gpu) for each in node.devices)


def _held_with_one(devices: _Layout, asked: Device) -> list[tuple[int, float]]:
    """By the columns of a stock, what a job with one device on a node holds of each kind there.

    A whole GPU is all its shards, and shards are a part of a GPU. Which of several types a job has that named none
    is not known: it counts for none.
    """
    alike = [
        number
        for number, (device, _) in enumerate(devices)
        if device.kind == asked.kind and asked.type in ("", device.type)
    ]
    if not alike and not asked.type:  # slices, to a job that named no type
        alike = [number for number, (device, _) in enumerate(devices) if device.kind == "mig"]
    if len(alike) != 1:
        return []
    its, its_per_gpu = devices[alike[0]]
    held = [(column_of(alike[0]), 1.0)]
    for other, (device, per_gpu) in enumerate(devices):
        if its.kind == "gpu" and device.kind == "shard":
            held.append((column_of(other), float(per_gpu)))
        elif its.kind == "shard" and device.whole and its.type in ("", device.type):
            held.append((column_of(other), 1.0 / its_per_gpu))
    return held
