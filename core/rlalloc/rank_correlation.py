"""Spearman's rank correlation, by NumPy alone: SciPy is part of an extra."""

import numpy as np
from numpy.typing import NDArray


def rank_correlation(one: NDArray[np.float64], other: NDArray[np.float64]) -> float | None:
    """Spearman's, with the mean rank for ties; None of fewer than two pairs, or where one side is constant."""
    if len(one) < 2:
        return None
    ranks, others = _ranks(one), _ranks(other)
    return float(np.corrcoef(ranks, others)[0, 1]) if ranks.std() and others.std() else None


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    mean: NDArray[np.float64] = (np.cumsum(counts) - (counts - 1) / 2)[places]
    return mean
