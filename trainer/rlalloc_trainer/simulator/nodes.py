"""Alike nodes and what is free on them: GPUs, CPUs and MiB, in this order."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from rlalloc.bounds import NodeShape

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]


class Nodes:
    """Free resources by node, shape (nodes, 3)."""

    def __init__(self, count: int, shape: NodeShape) -> None:
        self.capacity = np.array((shape.gpus, shape.cpus, shape.mem_mib), dtype=np.float64)
        self.free: FloatArray = np.tile(self.capacity, (count, 1))

    def copy(self) -> "Nodes":
        """Return the same state, independent of this one."""
        twin = Nodes.__new__(Nodes)
        twin.capacity = self.capacity
        twin.free = self.free.copy()
        return twin

    def fit(self, need: FloatArray, count: int, spare: FloatArray | None = None) -> IntArray | None:
        """Return ``count`` nodes with room for ``need`` each, the fullest first, or None.

        With ``spare`` (nodes, 3) they must have that much room there too.
        """
        room = np.logical_and.reduce(self.free >= need, axis=1)
        if spare is not None:
            room &= np.logical_and.reduce(spare >= need, axis=1)
        nodes = room.nonzero()[0]
        if len(nodes) < count:
            return None
        chosen: IntArray = nodes[self.free[nodes, 0].argsort(kind="stable")[:count]]
        return chosen

    def fits_now(self, needs: FloatArray, counts: IntArray) -> NDArray[np.bool_]:
        """Say for each of many needs (jobs, 3) whether enough nodes (jobs,) have room."""
        room = np.logical_and.reduce(self.free[None, :, :] >= needs[:, None, :], axis=2)
        enough: NDArray[np.bool_] = room.sum(axis=1) >= counts
        return enough

    def take(self, nodes: IntArray, need: FloatArray) -> None:
        """Give ``need`` on each of ``nodes`` to somebody."""
        self.free[nodes] -= need

    def give_back(self, nodes: IntArray, need: FloatArray) -> None:
        """Free ``need`` on each of ``nodes``."""
        self.free[nodes] += need

    def reservation(
        self, need: FloatArray, count: int, releases: Iterable[tuple[float, IntArray, FloatArray]]
    ) -> tuple[float, FloatArray]:
        """Return when ``count`` nodes will have room for ``need``, and what is then left on every node.

        ``releases`` are (time, nodes, what each gives back), ascending in time: running jobs at their time limits.
        """
        ordered = list(releases)
        later = np.zeros((len(ordered) + 1, *self.free.shape))
        later[0] = self.free
        for row, (_, nodes, held) in enumerate(ordered, start=1):
            later[row, nodes] = held
        later = later.cumsum(axis=0)
        room = np.logical_and.reduce(later >= need, axis=2)
        row = int((room.sum(axis=1) >= count).argmax())
        left: FloatArray = later[row]
        nodes = np.flatnonzero(room[row])
        chosen = nodes[np.argsort(left[nodes, 0], kind="stable")[:count]]
        left[chosen] -= need
        return (ordered[row - 1][0] if row else 0.0), left
