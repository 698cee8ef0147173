"""A sum tree over priorities: rows are found by cumulative priority, and priorities change, in logarithmic time.

After Schaul et al. 2016 (Prioritized Experience Replay, appendix B.2.1): a complete binary tree in one array, its
root at 1, the children of a node at twice its number and one more, its leaves the priorities. A whole batch walks the
tree together, a level at a time, so numpy does the work. Where a level has no more nodes than a batch has rows, it is
cheaper to take all of it: the way down starts at level 8, from a cumulative sum, and the way up ends there.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]
Numbers = NDArray[np.float64]
_TOP: Final = 8
"""Levels that are taken whole: 256 nodes are in the last of them, as many as rows in a usual batch."""


class SumTree:
    """Priorities of up to ``capacity`` rows, 16 to 32 bytes a row; 0 for a row that was never set.

    Every node is always the sum of its two children, to the last bit: nothing drifts, and the leaves alone suffice to
    rebuild the tree.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"a sum tree of {capacity} rows: ask for at least one")
        self.capacity = capacity
        self._levels = (capacity - 1).bit_length()
        self._leaves = 1 << self._levels
        self._top = min(_TOP, self._levels)
        self._nodes = np.zeros(2 * self._leaves)
        self._rows = 0

    @property
    def total(self) -> float:
        """The sum of all priorities."""
        return float(self._nodes[1])

    @property
    def nbytes(self) -> int:
        """Memory that is held, in bytes."""
        return self._nodes.nbytes

    def priorities(self, rows: Rows) -> Numbers:
        """Priorities (count,) of ``rows`` (count,); copies."""
        return self._nodes.take(rows + self._leaves)

    def before(self, row: int) -> float:
        """Return the sum of the priorities of all rows before ``row``, itself at most ``capacity``."""
        node, total = row + self._leaves, 0.0
        if row == self._leaves:
            return self.total
        while node > 1:
            if node & 1:
                total += float(self._nodes[node - 1])
            node >>= 1
        return total

    def set(self, rows: Rows, priorities: Numbers) -> None:
        """Give ``rows`` (count,) new priorities (count,); of a row named twice the last counts.

        Raises ValueError if one is not finite and above 0: its row would never be drawn again, or nothing else.
        """
        if not len(rows):
            return
        if not (np.isfinite(priorities).all() and priorities.min() > 0.0):
            raise ValueError("a priority is not finite and above 0: add a small constant to errors, and look for NaN")
        self._rows = max(self._rows, int(rows.max()) + 1)
        nodes = rows + self._leaves
        self._nodes[nodes] = priorities
        for _ in range(self._levels - self._top):
            sums = self._nodes.take(nodes) + self._nodes.take(nodes ^ 1)
            nodes >>= 1
            self._nodes[nodes] = sums
        for level in reversed(range(self._top)):
            first, end = 2 << level, 4 << level
            np.add(self._nodes[first:end:2], self._nodes[first + 1 : end : 2], out=self._nodes[first // 2 : first])

    def find(self, targets: Numbers) -> Rows:
        """Return the rows (count,) whose part of the cumulative priorities holds ``targets`` (count,), in [0, total).

        A target that rounding carries past the last row that was ever set counts as that row's.
        """
        widths = self._nodes[1 << self._top : 2 << self._top]
        ends = widths.cumsum()
        starts = np.minimum(ends.searchsorted(targets, side="right"), len(ends) - 1)
        remaining = targets - (ends - widths).take(starts)
        nodes: Rows = starts + len(ends)
        for _ in range(self._levels - self._top):
            nodes <<= 1
            left = self._nodes.take(nodes)
            right = remaining >= left
            remaining -= left * right
            nodes += right
        return np.minimum(nodes - self._leaves, self._rows - 1)
