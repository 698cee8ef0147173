"""Nodes that jobs may use, and what is free there while jobs are placed one after the other.

A pool is the set of nodes that a job may use, by partition, type of GPU, features and reservations. Pools overlap:
what a job of one pool takes is missing in all others that have these nodes. So there is one stock of free resources
for all nodes of a site, and each pool is a view of it.
"""

import dataclasses
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlalloc.job import Allocation

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

DEVICES, CPUS, MEM_MIB, FURTHER = range(4)
"""Columns of what a node has: devices of its first kind, CPUs, MiB, then devices of further kinds."""


@dataclass(frozen=True, eq=False)
class Pool:
    """Nodes that some jobs may use.

    places  where they stand among all nodes of the site, ascending, shape (nodes,)
    column  in which column of the stock each one's devices are, shape (nodes,); None: in the first, on all nodes
    closed  True for nodes that these jobs may use later only: reserved for others, or powered down; None: none
    lent    what these jobs may take from running ones that they preempt, shape (nodes, 3); None: nothing
    threads  CPUs of each node that one CPU of these jobs takes, shape (nodes,): they leave threads idle; None: one
    """

    places: IntArray
    column: IntArray | None = None
    closed: NDArray[np.bool_] | None = None
    lent: FloatArray | None = None
    threads: FloatArray | None = None

    def all_closed(self) -> "Pool":
        """The same nodes, none of which these jobs may use now."""
        return dataclasses.replace(self, closed=np.ones(len(self.places), dtype=np.bool_))

    def of(self, stock: FloatArray) -> FloatArray:
        """Its rows of an array over all nodes: devices that count for its jobs, CPUs and MiB, shape (nodes, 3)."""
        rows = stock[self.places, :FURTHER]
        if self.column is not None:
            rows[:, DEVICES] = stock[self.places, self.column]
        if self.threads is not None:
            rows[:, CPUS] = np.floor(rows[:, CPUS] / self.threads + 1e-9)  # takes are not exact
        return rows

    def open(self, free: FloatArray) -> FloatArray:
        """What its jobs may take at this moment of what is ``free`` on all nodes, shape (nodes, 3)."""
        rows = self.of(free)
        if self.lent is not None:
            rows += self.lent
        if self.closed is not None:
            rows[self.closed] = 0.0
        return rows


class Stock:
    """What is free on all nodes of a site, and what jobs that are placed leave of it."""

    def __init__(self, free: FloatArray) -> None:
        """``free`` has the columns named above, shape (nodes, 3 or more); it is not changed."""
        self._free = free.copy()
        self._left: dict[int, tuple[Pool, FloatArray]] = {}
        self._full: set[tuple[Pool, int, int, int, int]] = set()

    def left(self, pool: Pool) -> FloatArray:
        """What the nodes of a pool have left for its jobs, shape (nodes, 3)."""
        known = self._left.get(id(pool))
        if known is None:
            # The pool is kept, so that no other one gets its id.
            known = self._left[id(pool)] = pool, pool.open(self._free)
        return known[1]

    def has_room(self, pool: Pool, size: Allocation, tasks: int = 1) -> bool:
        """Whether a job of ``pool``, or this number of tasks of an array, could start.

        Where there is no room there will be none, as jobs only take.
        """
        key = pool, size.nodes, *_of_node(size)
        if key not in self._full and not could_start(size, self.left(pool)):
            self._full.add(key)
        if key in self._full:
            return False
        return tasks == 1 or int(_tasks_on(self.left(pool), size, tasks).sum()) >= tasks * size.nodes

    def take(self, pool: Pool, size: Allocation) -> IntArray:
        """Place a job of ``pool`` on the fullest of its nodes; return their places, none if they have no room."""
        if not self.has_room(pool, size):
            return pool.places[:0]
        nodes = nodes_for(self.left(pool), size)
        self._take(pool, size, nodes, np.ones(len(nodes), dtype=np.int64))
        return pool.places[nodes]

    def take_tasks(self, pool: Pool, size: Allocation, tasks: int) -> None:
        """Place up to ``tasks`` tasks of an array, as many as have room, each as a job."""
        while tasks > 0 and self.has_room(pool, size):
            left = self.left(pool)
            if size.nodes == 1:  # one after the other fills the fullest node, then the next one
                nodes = nodes_for(left, size, tasks)
                on_each = _tasks_on(left[nodes], size, tasks)
                on_each = np.diff(np.minimum(on_each.cumsum(), tasks), prepend=0)
                placed = int(on_each.sum())
            else:
                nodes = nodes_for(left, size)
                placed = int(_tasks_on(left[nodes], size, tasks).min())
                on_each = np.full(len(nodes), placed)
            self._take(pool, size, nodes, on_each)
            tasks -= placed

    def _take(self, pool: Pool, size: Allocation, nodes: IntArray, jobs: IntArray) -> None:
        """Take on each of the pool's rows ``nodes`` what this number of ``jobs`` of a size needs there."""
        left = self.left(pool).copy()  # callers of left() keep their array as it was
        places = pool.places[nodes]
        column = DEVICES if pool.column is None else pool.column[nodes]
        threads = 1.0 if pool.threads is None else pool.threads[nodes]
        self._free[places, column] -= jobs * size.gpus_per_node
        self._free[places, CPUS] -= jobs * size.cpus_per_node * threads
        self._free[places, MEM_MIB] -= jobs * size.mem_mib_per_node
        left[nodes] -= np.outer(jobs, _of_node(size))
        self._left = {id(pool): (pool, left)}


def nodes_for(free: FloatArray, size: Allocation, jobs: int = 1) -> IntArray:
    """The rows of the fullest nodes that hold a job of this size, up to those of ``jobs`` jobs on nodes of their own.

    None where there are too few for one.
    """
    fitting = np.flatnonzero(holding(free, size))
    if len(fitting) < size.nodes:
        return fitting[:0]
    return fitting[np.argsort(free[fitting, DEVICES], kind="stable")][: size.nodes * jobs]


def holding(free: FloatArray, size: Allocation) -> NDArray[np.bool_]:
    """Which nodes have room for their part of a job of this size, shape (nodes,)."""
    fits = free[:, DEVICES] >= size.gpus_per_node
    fits &= free[:, CPUS] >= size.cpus_per_node
    fits &= free[:, MEM_MIB] >= size.mem_mib_per_node
    return np.asarray(fits)


def could_start(size: Allocation, left: FloatArray) -> bool:
    """Whether enough nodes have room for a size."""
    return int(np.count_nonzero(holding(left, size))) >= size.nodes


def without(free: FloatArray, size: Allocation) -> FloatArray:
    """What stays free when a job of this size starts on the fullest nodes that hold it; everything if none do."""
    nodes = nodes_for(free, size)
    if not len(nodes):
        return free
    left = free.copy()
    left[nodes] -= _of_node(size)
    return left


def _tasks_on(free: FloatArray, size: Allocation, most: int) -> IntArray:
    """For each node, how many tasks of an array can have their part on it, at most ``most``, shape (nodes,)."""
    part = np.array(_of_node(size), dtype=np.float64)
    asked = part > 0.0
    fitting = np.floor(free[:, asked] / part[asked]).min(axis=1, initial=most)
    return np.asarray(np.maximum(0.0, fitting), dtype=np.int64)


def _of_node(size: Allocation) -> tuple[int, int, int]:
    return size.gpus_per_node, size.cpus_per_node, size.mem_mib_per_node
