"""The fixed policy: a plan for each size of model, whatever the cluster looks like."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from rlalloc_research.parallelism.performance_model import FloatArray

SIZES: Final = 6


class FixedPlans:
    """What an experienced site would write into its documentation.

    For each sixth of the model sizes, the plan that is worth most on average over ``situations`` (n, 4), by the true
    worth of all plans (n, plans): no table without a look at the cluster can be better there.
    """

    def __init__(self, situations: FloatArray, worth: FloatArray) -> None:
        sizes = _size_of(situations)
        self._plans = np.array([worth[sizes == size].mean(axis=0).argmax() for size in range(SIZES)])

    def choose(self, situations: FloatArray) -> NDArray[np.int64]:
        """Return the number of the plan for each of ``situations`` (n, 4)."""
        return self._plans[_size_of(situations)]


def _size_of(situations: FloatArray) -> NDArray[np.int64]:
    return np.minimum((situations[..., 3] * SIZES).astype(np.int64), SIZES - 1)
