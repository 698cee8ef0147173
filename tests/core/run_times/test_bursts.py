"""A job of a burst counts one over the square root of its number in it, or of all that ended."""

import pytest

from rlalloc.run_times import bursts
from rlalloc.run_times.bursts import GAP_S, Bursts, burst_weights

ONE, OTHER = ("one",), ("other",)


def test_ended_jobs_of_a_burst_count_less_and_less() -> None:
    ended = Bursts()
    assert [ended.weight(ONE, 0.0) ** -2 for _ in range(3)] == pytest.approx([1, 2, 3])
    assert ended.weight(OTHER, 0.0) == 1.0
    assert ended.weight(ONE, GAP_S) ** -2 == pytest.approx(4), "the burst goes on"
    assert ended.weight(ONE, 2 * GAP_S) ** -2 == pytest.approx(5)
    assert ended.weight(ONE, -GAP_S) ** -2 == pytest.approx(6), "an earlier submission ends later"
    assert ended.weight(ONE, 4 * GAP_S) == 1.0, "the next burst"
    assert ended.weight(ONE, 0.0) ** -2 == pytest.approx(7), "of which a job ends before the last of this one"
    assert ended.weight(ONE, 3 * GAP_S) ** -2 == pytest.approx(9), "a job between the two makes them one"


def test_jobs_that_a_model_learns_from_share_the_weight_of_their_burst() -> None:
    submitted_s = [0.0, 1.0, GAP_S, 2 * GAP_S, 4 * GAP_S]
    weights = burst_weights([ONE, OTHER, ONE, ONE, ONE], submitted_s)
    assert (weights**-2).tolist() == pytest.approx([3, 1, 3, 3, 1])


def test_only_the_bursts_that_changed_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bursts, "MOST_GROUPS", 1)
    ended = Bursts()
    assert [ended.weight(key, 0.0) for key in (ONE, OTHER, ONE)] == [1.0, 1.0, 1.0]
