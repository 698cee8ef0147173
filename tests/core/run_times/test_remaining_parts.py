"""The interval of what remains of running jobs: it holds 80 % of the questions, even if the predictions are wrong."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from rlalloc.run_time import REMAINING_PARTS, expected_remaining_s
from rlalloc.run_times.remaining_parts import MOMENTS_A_RUN, ended_parts, remaining_parts
from rlalloc.run_times.run_time_model import Offsets, conformal_offsets

LOG_S = st.floats(0.0, 20.0)
SPREAD = st.floats(0.1, 8.0)


@given(low=SPREAD, median=LOG_S, high=SPREAD, log_run=LOG_S)
def test_the_part_that_ended_is_the_quantile_at_which_the_job_ended(
    low: float, median: float, high: float, log_run: float
) -> None:
    """At each moment of a run, that quantile of what remains is what remained."""
    quantiles = np.array([[median - low, median, median + high]])
    (parts,) = ended_parts(quantiles, np.array([log_run]))
    assert len(parts) == MOMENTS_A_RUN
    run_s = 2.0**log_run
    for moment, part in zip((np.arange(MOMENTS_A_RUN) + 0.5) / MOMENTS_A_RUN, parts.tolist(), strict=True):
        assert 0.0 <= part <= 1.0
        if 1e-6 < part < 1.0 - 1e-6:
            low_s, median_s, high_s = np.exp2(quantiles[0]).tolist()
            remaining_s = expected_remaining_s(0, moment * run_s, low_s, median_s, high_s, part)
            assert remaining_s == pytest.approx((1.0 - moment) * run_s, rel=1e-4)


def test_a_job_without_spread_ended_before_all_others_or_after_them() -> None:
    parts = ended_parts(np.full((3, 3), 9.0), np.array([5.0, 9.0, 12.0]))
    assert not parts[0].any()
    assert (parts[2] == 1.0).all()
    assert not np.isnan(parts).any()


def log_logistic(number: int, scale: float, seed: int) -> NDArray[np.float64]:
    """Log2 of run times about 1,000 s, with ``scale`` times the spread of PREDICTED."""
    odds = np.log(1.0 / np.random.default_rng(seed).uniform(1e-4, 1.0 - 1e-4, number) - 1.0)
    return np.asarray(10.0 + scale * odds / np.log(9.0))


PREDICTED = np.array([9.0, 10.0, 11.0])


def held(log_runs: NDArray[np.float64], parts: tuple[float, float]) -> float:
    """The part of the running time in which the interval between these parts held what remained."""
    ended = ended_parts(np.tile(PREDICTED, (len(log_runs), 1)), log_runs)
    return float(np.average(((ended >= parts[0]) & (ended <= parts[1])).mean(axis=1), weights=np.exp2(log_runs)))


@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0])
def test_80_percent_of_the_time_is_held_also_where_predictions_are_wrong(scale: float) -> None:
    """Run times vary half as much as is said of them, as much, and twice as much."""
    past, later = log_logistic(4000, scale, 1), log_logistic(4000, scale, 2)
    parts = remaining_parts(np.tile(PREDICTED, (4000, 1)), past)
    assert held(later, parts) == pytest.approx(0.8, abs=0.03)
    is_right = scale == 1.0
    assert (held(later, REMAINING_PARTS) == pytest.approx(0.8, abs=0.03)) == is_right


def test_a_job_counts_as_long_as_it_ran() -> None:
    """Thousands of runs of seconds that ended as predicted say little about the few that ran for hours."""
    quantiles = np.concatenate([np.tile([2.0, 3.0, 4.0], (2000, 1)), np.tile([10.0, 16.0, 22.0], (200, 1))])
    long_runs = np.full(200, 14.0)
    short_runs = np.random.default_rng(1).normal(3.0, 0.8, 2000)
    both = remaining_parts(quantiles, np.concatenate([short_runs, long_runs]))
    assert both == pytest.approx(remaining_parts(quantiles[2000:], long_runs), abs=0.01)


def test_of_few_runs_little_is_learned_and_the_interval_is_rather_wide() -> None:
    assert remaining_parts(np.empty((0, 3)), np.empty(0)) == REMAINING_PARTS
    low, high = remaining_parts(PREDICTED[None], np.array([20.0]))
    assert 0.05 < low < 0.1
    assert 0.9 < high < 0.99


def test_no_interval_goes_beyond_the_99_percent_quantile() -> None:
    """Jobs that run far longer than predicted: the 99 % quantile is the most that is answered."""
    low, high = remaining_parts(np.tile([9.99, 10.0, 10.01], (5000, 1)), np.full(5000, 20.0))
    assert low == 0.5
    assert high == pytest.approx(0.99)


@pytest.mark.parametrize("harm", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_do_not_spread(harm: float) -> None:
    quantiles, log_runs = np.tile(PREDICTED, (100, 1)), log_logistic(100, 1.0, 3)
    expected = remaining_parts(quantiles[2:], log_runs[2:]), conformal_offsets(quantiles[2:], log_runs[2:])
    quantiles[0, 2] = log_runs[1] = harm
    assert (remaining_parts(quantiles, log_runs), conformal_offsets(quantiles, log_runs)) == expected
    assert remaining_parts(quantiles[:2], log_runs[:2]) == REMAINING_PARTS
    assert conformal_offsets(quantiles[:2], log_runs[:2]) == Offsets()
