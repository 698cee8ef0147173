"""Spearman's rank correlation."""

import numpy as np
import pytest

from rlalloc.rank_correlation import rank_correlation


def test_ranks_of_ties_are_their_mean() -> None:
    assert rank_correlation(np.array([1.0, 2.0, 3.0]), np.array([1.0, 4.0, 9.0])) == pytest.approx(1.0)
    assert rank_correlation(np.array([1.0, 1.0, 2.0]), np.array([5.0, 7.0, 9.0])) == pytest.approx(0.75**0.5)


def test_without_a_spread_there_is_none() -> None:
    assert rank_correlation(np.array([1.0, 1.0]), np.array([1.0, 2.0])) is None
    assert rank_correlation(np.array([1.0]), np.array([1.0])) is None
