"""Urgency on its log scale of run times, and what becomes of it inside a site's band."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlalloc.urgency import (
    GRADES,
    LONG_S,
    SHORT_S,
    STEPS,
    UrgencyRules,
    is_left_of,
    nice_for,
    nice_left,
    steps_taken,
    urgency_of_area,
    urgency_of_run_time,
)

WEEK_OF_64_S = 64 * LONG_S


@pytest.mark.parametrize(
    ("run_time_s", "gpus", "urgency"),
    [
        (0, 1, 1),
        (SHORT_S, 1, 1),
        (SHORT_S / 8, 8, 1),
        ((SHORT_S * WEEK_OF_64_S) ** 0.5, 1, 0.5),
        ((SHORT_S * WEEK_OF_64_S) ** 0.5 / 32, 32, 0.5),
        (LONG_S, 64, 0),
        (LONG_S, 4096, 0),
    ],
)
def test_urgency_by_area_is_even_on_a_log_scale(run_time_s: float, gpus: int, urgency: float) -> None:
    assert urgency_of_area(run_time_s, gpus) == pytest.approx(urgency)


@pytest.mark.parametrize(
    ("run_time_s", "urgency"), [(0, 1), (SHORT_S, 1), ((SHORT_S * LONG_S) ** 0.5, 0.5), (LONG_S, 0), (1e9, 0)]
)
def test_urgency_is_even_on_a_log_scale(run_time_s: float, urgency: float) -> None:
    assert urgency_of_run_time(run_time_s, 8) == pytest.approx(urgency)


@given(st.floats(0, 1e9), st.floats(0, 1e9))
def test_the_shorter_job_is_the_more_urgent(one_s: float, other_s: float) -> None:
    shorter, longer = sorted((one_s, other_s))
    for urgency_of in (urgency_of_run_time, urgency_of_area):
        assert 1 >= urgency_of(shorter, 4) >= urgency_of(longer, 4) >= 0


@given(st.floats(-1, 2), st.integers(0, 10**6))
def test_nice_stays_inside_the_band(urgency: float, band: int) -> None:
    assert 0 <= nice_for(urgency, UrgencyRules(nice_band=band)) <= band


def test_the_most_urgent_keep_their_place_and_the_least_get_the_whole_band() -> None:
    rules = UrgencyRules(nice_band=40)
    assert [nice_for(urgency, rules) for urgency in (1.0, 0.75, 0.5, 0.0)] == [0, 10, 20, 40]


def test_without_a_band_urgency_counts_for_nothing() -> None:
    assert nice_for(0.0, UrgencyRules()) == 0


def test_a_band_has_so_many_different_nices_at_most() -> None:
    rules = UrgencyRules(nice_band=10**6)
    assert len({nice_for(number / 1000, rules) for number in range(1001)}) == GRADES + 1


def test_patience_is_in_expected_run_times_up_to_the_limit() -> None:
    rules = UrgencyRules(patience=3, starvation_limit_s=7200)
    assert [rules.patience_s(run_s) for run_s in (0, 60, 600, 2400, 86_400)] == [180, 180, 1800, 7200, 7200]


@given(st.integers(0, 10**6), st.floats(60, 1e6), st.floats(0, 2), st.floats(0, 2))
def test_nice_falls_with_the_wait_and_is_nothing_when_patience_is_over(
    nice: int, patience_s: float, one: float, other: float
) -> None:
    shorter, longer = (nice_left(nice, steps_taken(part * patience_s, patience_s)) for part in sorted((one, other)))
    assert nice >= shorter >= longer >= 0
    assert nice_left(nice, steps_taken(patience_s, patience_s)) == 0
    assert nice_left(nice, steps_taken(0.0, patience_s)) == nice


@given(st.integers(1, STEPS), st.floats(60, 1e6), st.floats(0, 2e9))
def test_a_step_is_taken_at_the_very_time_that_it_is_planned_for(
    step: int, patience_s: float, since_s: float
) -> None:
    """Times since the epoch are told to a ten-millionth of a second; the simulator plans a step and looks then."""
    assert steps_taken(since_s + patience_s * step / STEPS - since_s, patience_s) == step


def test_what_some_step_leaves_is_ours_and_anything_else_somebody_elses() -> None:
    assert [nice for nice in range(-3, 50) if is_left_of(nice, 42)] == [10, 21, 31, 42]
    assert not is_left_of(0, 0)
