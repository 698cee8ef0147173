"""Urgency on its log scale of run times, and what becomes of it inside a site's band."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlalloc.urgency import LONG_S, SHORT_S, UrgencyRules, nice_for, urgency_of_run_time


@pytest.mark.parametrize(
    ("run_time_s", "urgency"), [(0, 1), (SHORT_S, 1), ((SHORT_S * LONG_S) ** 0.5, 0.5), (LONG_S, 0), (1e9, 0)]
)
def test_urgency_is_even_on_a_log_scale(run_time_s: float, urgency: float) -> None:
    assert urgency_of_run_time(run_time_s) == pytest.approx(urgency)


@given(st.floats(0, 1e9), st.floats(0, 1e9))
def test_the_shorter_job_is_the_more_urgent(one_s: float, other_s: float) -> None:
    shorter, longer = sorted((one_s, other_s))
    assert 1 >= urgency_of_run_time(shorter) >= urgency_of_run_time(longer) >= 0


@given(st.floats(-1, 2), st.integers(0, 10**6))
def test_nice_stays_inside_the_band(urgency: float, band: int) -> None:
    assert 0 <= nice_for(urgency, UrgencyRules(nice_band=band)) <= band


def test_the_most_urgent_keep_their_place_and_the_least_get_the_whole_band() -> None:
    rules = UrgencyRules(nice_band=40)
    assert [nice_for(urgency, rules) for urgency in (1.0, 0.75, 0.5, 0.0)] == [0, 10, 20, 40]


def test_without_a_band_urgency_counts_for_nothing() -> None:
    assert nice_for(0.0, UrgencyRules()) == 0
