"""The sum tree finds what a plain cumulative sum finds, whatever was set and overwritten before."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlalloc_trainer.sac.sum_tree import SumTree

PRIORITY = st.integers(1, 1000).map(float)
"""Whole numbers: their sums are exact, so that tree and cumulative sum must agree to the bit."""
PRIORITIES = st.lists(PRIORITY, min_size=1, max_size=70)
SPARE = st.sampled_from([0, 1, 40, 3000])
"""Rows that were never set: with the most of them the tree is deeper than what it takes whole."""


def filled(priorities: list[float], capacity: int | None = None) -> SumTree:
    tree = SumTree(capacity or len(priorities))
    tree.set(np.arange(len(priorities)), np.array(priorities))
    return tree


@settings(deadline=None)
@given(PRIORITIES, SPARE, st.data())
def test_finds_what_a_cumulative_sum_finds(priorities: list[float], spare: int, data: st.DataObject) -> None:
    tree, plain = filled(priorities, len(priorities) + spare), np.array(priorities)
    for _ in range(data.draw(st.integers(0, 3))):
        rows = np.array(data.draw(st.lists(st.integers(0, len(plain) - 1), max_size=10)), dtype=np.int64)
        changed = np.array(data.draw(st.lists(PRIORITY, min_size=len(rows), max_size=len(rows))))
        tree.set(rows, changed)
        for row, priority in zip(rows, changed, strict=True):  # of a row named twice the last counts
            plain[row] = priority
    cumulative = np.cumsum(plain)
    assert tree.total == cumulative[-1]
    before = [tree.before(row) for row in (*range(len(plain)), len(plain) + spare)]
    assert before == [0.0, *cumulative]
    targets = np.arange(0.0, cumulative[-1], 0.5)
    assert (tree.find(targets) == np.searchsorted(cumulative, targets, side="right")).all()
    assert (tree.priorities(np.arange(len(plain))) == plain).all()


@settings(deadline=None)
@given(st.lists(st.floats(1e-12, 1e12), min_size=1, max_size=70), SPARE, st.integers(0, 2**32 - 1))
def test_never_finds_a_row_that_was_not_set(priorities: list[float], spare: int, seed: int) -> None:
    """Up to the last number below the total, where rounding could lead past the last row."""
    tree = filled(priorities, len(priorities) + spare)
    targets = np.append(np.random.default_rng(seed).random(50) * tree.total, np.nextafter(tree.total, 0.0))
    assert tree.find(targets).max() < len(priorities)


@settings(deadline=None)
@pytest.mark.parametrize("spread", [1, 97])
@given(changes=st.lists(st.tuples(st.integers(0, 20), st.floats(1e-9, 1e9)), min_size=1, max_size=100))
def test_every_order_of_changes_ends_in_the_same_bits(changes: list[tuple[int, float]], spread: int) -> None:
    """So a restored tree, made from its leaves at once, goes on exactly."""
    changes = [(row * spread, priority) for row, priority in changes]
    stepwise, last = SumTree(21 * spread), {}
    for row, priority in changes:
        stepwise.set(np.array([row]), np.array([priority]))
        last[row] = priority
    at_once = SumTree(21 * spread)
    at_once.set(np.array(list(last)), np.array(list(last.values())))
    assert (stepwise._nodes == at_once._nodes).all()


def test_a_large_tree_finds_what_a_cumulative_sum_finds() -> None:
    """Rows all over 12 levels, more than are taken whole."""
    generator = np.random.default_rng(0)
    plain = generator.integers(1, 1000, 3000).astype(float)
    tree = filled(plain.tolist())
    rows = np.unique(generator.integers(3000, size=500))
    plain[rows] = generator.integers(1, 1000, len(rows))
    tree.set(rows, plain[rows])
    targets = generator.random(5000) * tree.total
    assert (tree.find(targets) == np.searchsorted(plain.cumsum(), targets, side="right")).all()
    assert [tree.before(row) for row in (1, 2048, 2999)] == plain.cumsum()[[0, 2047, 2998]].tolist()


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_priorities_that_would_break_the_drawing_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        filled([1.0, bad])


def test_a_tree_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="ask for at least one"):
        SumTree(0)
