"""Bursts: jobs with the same user, limit and size, submitted soon after each other.

Run times within a burst are mostly similar, and those of the next burst differ. So a burst of n jobs says less than n
single jobs: each of them counts 1 / sqrt(n).
"""

import math
from collections.abc import Iterable, Sequence
from typing import Annotated, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from rlalloc.run_times.recent_runs import Key

GAP_S: Final = 600.0
MOST_GROUPS: Final = 20_000
_KEPT: Final = 10


class Burst(NamedTuple):
    """How many of its jobs ended, and when the first and the last of them were submitted [s]."""

    ended: Annotated[int, msgspec.Meta(ge=1)]
    first_s: float
    last_s: float

    def joined_with(self, other: "Burst") -> "Burst":
        """Return the burst that both are parts of."""
        first_s, last_s = min(self.first_s, other.first_s), max(self.last_s, other.last_s)
        return Burst(self.ended + other.ended, first_s, last_s)


class Bursts:
    """Counts the ended jobs of each burst: those of a burst may end after some of the next one.

    Memory is bounded: of MOST_GROUPS groups of jobs alike that changed last, the last _KEPT bursts each.
    """

    def __init__(self, latest: Iterable[tuple[Key, list[Burst]]] = ()) -> None:
        self._latest = dict(latest)

    def weight(self, alike: Key, submitted_s: float) -> float:
        """Count a job that ended, and return its weight: one over the square root of its number in its burst."""
        burst, others = Burst(1, submitted_s, submitted_s), []
        for known in self._latest.pop(alike, []):
            if known.first_s - GAP_S <= submitted_s <= known.last_s + GAP_S:
                burst = burst.joined_with(known)  # more than one, if the job lies between two
            else:
                others.append(known)
        self._latest[alike] = [*others[1 - _KEPT :], burst]
        if len(self._latest) > MOST_GROUPS:
            del self._latest[next(iter(self._latest))]
        return 1.0 / math.sqrt(burst.ended)

    def table(self) -> list[tuple[Key, list[Burst]]]:
        """Return all that is known, the most recently changed last; a Bursts made of it goes on."""
        return list(self._latest.items())


def burst_weights(alike: Sequence[Key], submitted_s: Sequence[float]) -> NDArray[np.float64]:
    """Return the weight of each job, in the order of submission: one over the square root of its burst's jobs."""
    latest: dict[Key, tuple[float, int]] = {}
    first: list[int] = []  # of the burst of each job, the number of the first job
    for number, (key, now_s) in enumerate(zip(alike, submitted_s, strict=True)):
        before_s, burst = latest.get(key, (-math.inf, number))
        first.append(burst if now_s - before_s <= GAP_S else number)
        latest[key] = now_s, first[-1]
    return np.asarray(np.bincount(first)[first] ** -0.5)
