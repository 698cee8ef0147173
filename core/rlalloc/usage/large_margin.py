"""A large margin above the memory that like jobs used, where what it gives back is worth its risk.

A learned margin (``rlalloc.usage.learned_margin``) needs families whose use hardly ever jumps. In real families it
does, by factors. A job that uses a thirtieth of its request can be trimmed all the same, with room for such a jump.

The risk of each of FACTORS is counted on past jobs: of those that the factor would have trimmed, how many used more
than the factor times the most of their like jobs. Jobs are counted apart by how many like jobs they had, and by how
much these differed. A job gets the factor with the largest gain: the part of its request that is given back, less
PRICE times the risk.

No job gets a large margin while too many of the last jobs that would have got one would have gone beyond it. Jobs
that got none count, too, so the margin comes back once it has become safe.
"""

import bisect
import math
from collections import deque
from collections.abc import Sequence
from operator import itemgetter
from typing import Final

import numpy as np
from numpy.typing import NDArray

FACTORS: Final = (2.5, 3.0, 4.0, 6.0, 10.0, 20.0)
"""Smaller ones would be exceeded by many jobs in a row where needs change."""
PRICE: Final = 30.0
"""What a job beyond its floor costs, in whole requests: it is killed."""
ENOUGH: Final = 10
"""A group of so many like jobs counts before nearer groups of fewer."""
OUTCOMES: Final = 1000
_MORE_BEYOND: Final = 5 / 3
"""Of the last jobs that would have got a large margin, this many times ``exceeded`` may go beyond it."""
_FEWEST: Final = 20
"""So many past jobs are needed to count a risk. As many are added to those seen, _PRIOR of them beyond the margin."""
_PRIOR: Final = 0.5
_NUMBERS: Final = (2, 10, 20)
_SPREADS: Final = (0.02, 0.1, 0.3, 1.0)
"""Limits between cells: the number of a job's like jobs, and the standard deviation of the logarithm of their use."""

Cell = tuple[int, int]


class LargeMargin:
    """The counted risks, and whether the last jobs went beyond; at most 5/3 times the part ``exceeded`` may.

    ``least`` is the least margin (0.1: a tenth). All amounts of a call are in the same unit.
    """

    def __init__(self, least: float, exceeded: float) -> None:
        self._factors = tuple(factor for factor in FACTORS if factor >= 1.0 + least)
        self._logs = np.log(self._factors)
        self._exceeded = _MORE_BEYOND * exceeded
        self._trimmed: dict[Cell, NDArray[np.int64]] = {}
        self._beyond: dict[Cell, NDArray[np.int64]] = {}
        self._outcomes: deque[bool] = deque(maxlen=OUTCOMES)

    def learn(self, known: Sequence[float], used: float, asked: float, step: float) -> None:
        """Count a job that ``used`` so much, whose like jobs had used ``known``; sizes are multiples of ``step``."""
        floor = self._best(known, asked, step)
        if floor is not None:
            self._outcomes.append(used > floor)
        cell, most = _cell(known), math.log(max(known))
        zeros = np.zeros(len(self._logs), dtype=np.int64)
        would_trim = math.log(max(used, asked)) - most > self._logs
        self._trimmed[cell] = self._trimmed.get(cell, zeros) + would_trim
        self._beyond[cell] = self._beyond.get(cell, zeros) + (would_trim & (math.log(used) - most > self._logs))

    def floor(self, known: Sequence[float], asked: float, step: float) -> float | None:
        """The floor of a job; None if no margin is worth its risk, or if too many of the last jobs went beyond."""
        if sum(self._outcomes) + 1 > self._exceeded * (len(self._outcomes) + 1):
            return None
        return self._best(known, asked, step)

    def _best(self, known: Sequence[float], asked: float, step: float) -> float | None:
        trimmed = self._trimmed.get(cell := _cell(known))
        if trimmed is None or max(trimmed, default=0) < _FEWEST or asked <= 0.0:
            return None
        risks = (self._beyond[cell] + _PRIOR) / (trimmed + _FEWEST)
        floors = [_size(max(known) * factor, step) for factor in self._factors]
        gains = [1.0 - floor / asked - PRICE * risk for floor, risk in zip(floors, risks.tolist(), strict=True)]
        best, floor = max(zip(gains, floors, strict=True), key=itemgetter(0))
        return floor if best > 0.0 else None


def _size(amount: float, step: float) -> float:
    return math.ceil(amount / step - 1e-6) * step


def _cell(known: Sequence[float]) -> Cell:
    spread = float(np.log(known).std(ddof=1)) if len(known) > 1 else 0.0
    return bisect.bisect_right(_NUMBERS, len(known)), bisect.bisect_right(_SPREADS, spread)
