"""The optimal choice, unknown in practice: value iteration over the model that the jobs follow."""

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import RegularGridInterpolator

from rlalloc_research.parallelism.parallelism_environment import GAPS_S, MOST_IN_USE, NEIGHBOURS, in_use_next, rewards
from rlalloc_research.parallelism.performance_model import Consequences, FloatArray, consequences

DISCOUNT: Final = 0.8
"""The discount of all learners: about five jobs ahead count."""
_SIZES: Final = 12


class Oracle:
    """Action values by value iteration on a grid of what is in use, linear in between.

    The size of the next job and the time until it comes are averaged over their distributions (sizes at the middles
    of 12 equal parts). The value of an optimal decision is off by at most ``tolerance / (1 - discount)``, apart from
    the grid.
    """

    def __init__(self, places: int = 7, tolerance: float = 1e-3) -> None:
        axis = np.linspace(0.0, MOST_IN_USE, places)
        in_use = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1)
        sizes = (np.arange(_SIZES) + 0.5) / _SIZES
        situations = np.empty((places, places, places, _SIZES, 4))
        situations[..., :3], situations[..., 3] = in_use[..., None, :], sizes
        seen = consequences(situations)
        reward, following = rewards(seen), _followers(situations, seen)
        self._value = RegularGridInterpolator((axis,) * 3, np.zeros((places,) * 3))
        change = np.inf
        while change > tolerance:
            value = (reward + DISCOUNT * self._value(following).mean(axis=0)).max(axis=-1).mean(axis=-1)
            change = float(np.abs(value - self._value.values).max())
            self._value = RegularGridInterpolator((axis,) * 3, value)

    def values(self, situations: FloatArray) -> FloatArray:
        """Return the value of each plan (..., plans) in ``situations`` (..., 4) with optimal decisions afterwards."""
        seen = consequences(situations)
        worth: FloatArray = rewards(seen) + DISCOUNT * self._value(_followers(situations, seen)).mean(axis=0)
        return worth

    def choose(self, situations: FloatArray) -> NDArray[np.int64]:
        """Return the number of the best plan for each of ``situations``."""
        best: NDArray[np.int64] = self.values(situations).argmax(axis=-1)
        return best


def _followers(situations: FloatArray, seen: Consequences) -> FloatArray:
    """What is in use when the next job comes, (cases, ..., plans, 3)."""
    return np.stack([in_use_next(situations, seen, gap_s, other) for gap_s in GAPS_S for other in NEIGHBOURS])
