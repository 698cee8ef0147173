"""What jobs of a queue find free in pools, now and as time limits and the reservations of those ahead have it."""

import bisect
import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from rlalloc.job import Allocation
from rlalloc.pool import DEVICES, Pool, Stock, could_start
from rlalloc.view import FloatArray

_A_PART: Final = 1e-6
"""Parts of GPUs add up to whole ones but for this."""


class FreeGpus:
    """Devices of a pool that are free from now on, as time limits and reservations have it; nodes do not count.

    Plain lists: a pass asks some hundred times, about some hundred times of change.
    """

    def __init__(self, free: float, limits: FloatArray) -> None:
        """``limits`` (running, 2) has the seconds until each running job reaches its limit, and its GPUs."""
        from_s, place = np.unique(np.append(limits[:, 0], 0.0), return_inverse=True)
        freed = np.cumsum(np.bincount(place, weights=np.append(limits[:, 1], 0.0)))
        self._from_s: list[float] = from_s.tolist()
        self._free: list[float] = (free + freed).tolist()

    def start_s(self, gpus: int, limit_s: float) -> float:
        """Seconds until a job of so many GPUs can start and run to its limit; infinite if never."""
        start_s, is_free = 0.0, True
        for from_s, free in zip(self._from_s, self._free, strict=True):
            if is_free and from_s >= start_s + limit_s:
                return start_s
            if free < gpus - _A_PART:
                is_free = False
            elif not is_free:
                start_s, is_free = from_s, True
        return start_s if is_free else math.inf

    def take(self, start_s: float, gpus: float, limit_s: float) -> None:
        """Reserve GPUs, or a part of them, from ``start_s`` on for the time limit."""
        first, end = self._change_at(start_s), self._change_at(start_s + limit_s)
        for place in range(first, end):
            self._free[place] -= gpus

    def _change_at(self, time_s: float) -> int:
        """The place of a time, which is put in where it is none of a change."""
        place = bisect.bisect_left(self._from_s, time_s)
        if place == len(self._from_s) or self._from_s[place] != time_s:
            self._from_s.insert(place, time_s)
            self._free.insert(place, self._free[place - 1])
        return place


class Room:
    """What is free for the jobs of each pool, now and as time limits and reservations have it."""

    def __init__(self, pools: Sequence[Pool], limits: Sequence[FloatArray], shared: FloatArray, stock: Stock) -> None:
        """``limits``: for each pool, the limits of ``FreeGpus``; ``shared``: as in ``decide_pass``."""
        self._pools = pools
        self._shared = shared
        self._stock = stock
        self._gpus = [
            FreeGpus(float(stock.left(pool)[:, DEVICES].sum()), of_pool)
            for pool, of_pool in zip(pools, limits, strict=True)
        ]
        self._fits: dict[tuple[int, Allocation], bool] = {}
        self._overlapping = [np.flatnonzero(row > 0.0).tolist() for row in shared]

    def left(self, pool: int) -> FloatArray:
        """What its nodes have left, shape (nodes, 3)."""
        return self._stock.left(self._pools[pool])

    def starts(self, pool: int, size: Allocation) -> bool:
        """Whether a size has room and backfill would start it now."""
        key = pool, size
        if key not in self._fits:
            self._fits[key] = could_start(size, self.left(pool))
        return self._fits[key] and self._gpus[pool].start_s(size.gpus, size.time_limit_s) == 0.0

    def start(self, pool: int, size: Allocation) -> None:
        """A job starts: the nodes that it takes are missing in every pool that has them."""
        places = self._stock.take(self._pools[pool], size)
        self._fits.clear()
        for other in self._overlapping[pool]:
            nodes = size.nodes
            if other != pool:
                nodes = int(np.isin(places, self._pools[other].places, assume_unique=True).sum())
            if nodes:
                self._gpus[other].take(0.0, nodes * size.gpus_per_node, size.time_limit_s)

    def reserve(self, pool: int, size: Allocation, window_s: float) -> None:
        """A job has to wait: it holds a reservation, in each pool for the part that it shares with its own."""
        start_s = self._gpus[pool].start_s(size.gpus, size.time_limit_s)
        if start_s <= window_s and math.isfinite(start_s):
            for other in self._overlapping[pool]:
                part = float(self._shared[pool, other])
                self._gpus[other].take(start_s, part * size.gpus, size.time_limit_s)
