"""A margin above what like jobs used, learned from how far later jobs went beyond them.

Each past job has a score: how far the logarithm of what it used lay above what was known of like jobs when it was
submitted; and a room, likewise of what it had asked for: with a margin below it the job would have been trimmed. The
margin is the least one which at most a stated part of the jobs *that it would have trimmed* went beyond, with one
more on either side for the job to come. That is split conformal prediction (Vovk, Gammerman and Shafer, *Algorithmic
learning in a random world*, 2005), held on the jobs that are selected and not on all: most jobs that are trimmed have
like jobs who used little. Jobs are no random draw from their past, so the last LATELY count by themselves, too.
"""

import math
from collections import deque
from typing import Final

import numpy as np
from numpy.typing import NDArray

ALL: Final = 5000
"""Scores that are kept."""
LATELY: Final = 500
_LATELY_EXCEEDED: Final = 2.0
"""Of so few, so many times the stated part may go beyond it."""
_AGAIN_AFTER: Final = 50
"""Further scores after which the margin is computed anew; one beyond it does so at once."""


class LearnedMargin:
    """The scores and rooms of the last jobs."""

    def __init__(self) -> None:
        self._scores: deque[float] = deque(maxlen=ALL)
        self._rooms: deque[float] = deque(maxlen=ALL)
        self._known = math.inf
        self._known_for = 0.0
        self._new = _AGAIN_AFTER

    def add(self, score: float, room: float) -> None:
        """Add a job's score, and that of its request."""
        self._scores.append(min(score, room))
        self._rooms.append(room)
        self._new += _AGAIN_AFTER if score > self._known else 1

    def bound(self, exceeded: float) -> float:
        """The margin that at most the part ``exceeded`` goes beyond; infinite where too few jobs tell."""
        if self._new >= _AGAIN_AFTER or exceeded != self._known_for:
            self._new, self._known_for = 0, exceeded
            self._known = self._computed(exceeded)
        return self._known

    def _computed(self, exceeded: float) -> float:
        if len(self._scores) < 1.0 / exceeded - 1.0:
            return math.inf
        scores, rooms = np.array(self._scores), np.array(self._rooms)
        least = _least_margin(scores, rooms, exceeded)
        if len(scores) <= LATELY or math.isinf(least):
            return least
        return max(least, _least_margin(scores[-LATELY:], rooms[-LATELY:], _LATELY_EXCEEDED * exceeded))


def _least_margin(scores: NDArray[np.float64], rooms: NDArray[np.float64], exceeded: float) -> float:
    margins = np.sort(scores)
    beyond = len(margins) - np.searchsorted(margins, margins, side="right")
    trimmed = len(rooms) - np.searchsorted(np.sort(rooms), margins, side="right")
    kept = np.flatnonzero(beyond + 1 <= exceeded * (trimmed + 1))
    return float(margins[kept[0]]) if len(kept) else math.inf
