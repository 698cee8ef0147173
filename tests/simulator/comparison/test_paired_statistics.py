"""Bootstrap intervals: what is resampled, and how often they cover the truth."""

import math

import numpy as np
import pytest

from rlalloc_simulator.comparison.paired_statistics import (
    Interval,
    bootstrap_of_strata,
    jct_ratio,
    ratio_of,
    thirds_by_wait,
)
from tests.simulator.comparison.example_results import result


def test_strata_count_alike_however_many_values_they_have() -> None:
    estimate, low, high = bootstrap_of_strata([np.zeros(2), np.ones(6)], 0.9)
    assert (estimate, low, high) == (0.5, 0.5, 0.5)


def test_few_weeks_make_an_interval_as_wide_as_their_variance_says() -> None:
    """Forty workloads of four weeks; with all four drawn again it would be (3/4)^½ as wide."""
    generator = np.random.default_rng(2)
    strata = [generator.normal(size=4) for _ in range(40)]
    _, low, high = bootstrap_of_strata(strata, 0.6827)
    error = math.sqrt(sum(values.var(ddof=1) / 4 for values in strata)) / 40
    assert (high - low) / 2 == pytest.approx(error, rel=0.06)


def test_intervals_over_few_weeks_cover_the_truth_about_as_often_as_they_say() -> None:
    """Three workloads of four weeks, as different from each other as from week to week."""
    generator = np.random.default_rng(1)
    covered = []
    for _ in range(300):
        strata = [generator.normal(size=4) for _ in range(3)]
        _, low, high = bootstrap_of_strata(strata, 0.9)
        covered.append(low <= 0.0 <= high)
    assert np.mean(covered) == pytest.approx(0.88, abs=0.06)


def test_a_single_week_says_nothing_of_how_sure_a_figure_is() -> None:
    ratio = ratio_of([np.array([math.log(0.5)])], 0.9)
    assert ratio.estimate == pytest.approx(0.5)
    assert math.isnan(ratio.low)
    assert math.isnan(ratio.high)
    assert str(ratio) == "0.500 [?]"


def test_nothing_measured_is_no_figure() -> None:
    assert all(math.isnan(value) for value in bootstrap_of_strata([], 0.9))
    assert all(math.isnan(value) for value in bootstrap_of_strata([np.array([])], 0.9))


def test_a_seed_gives_the_same_interval() -> None:
    values = np.random.default_rng(0).normal(size=5)
    assert bootstrap_of_strata([values], 0.9) == bootstrap_of_strata([values], 0.9)
    assert bootstrap_of_strata([values], 0.9) != bootstrap_of_strata([values], 0.9, seed=1)
    assert str(Interval(1.0, 0.9, 1.1)) == "1.000 [0.900, 1.100]"


def test_a_ratio_is_paired_by_workload() -> None:
    """Workloads differ a thousandfold, the policies by 10% on each: the interval is a point."""
    base = [1.0, 10.0, 1000.0]
    ratio = jct_ratio([result(0.9 * jct_s) for jct_s in base], [result(jct_s) for jct_s in base])
    assert (ratio.estimate, ratio.low, ratio.high) == pytest.approx((0.9, 0.9, 0.9))


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    generator = np.random.default_rng(0)
    covered = [
        low <= 0.0 <= high
        for _, low, high in (bootstrap_of_strata([generator.normal(size=40)], 0.9) for _ in range(200))
    ]
    assert np.mean(covered) == pytest.approx(0.9, abs=0.06)


def test_more_confidence_is_a_wider_interval() -> None:
    values = np.random.default_rng(0).normal(size=40)
    _, low, high = bootstrap_of_strata([values], 0.8)
    _, lower, higher = bootstrap_of_strata([values], 0.95)
    assert lower < low < high < higher


def test_thirds_are_by_how_much_of_the_jct_is_waiting() -> None:
    results = [result(10.0, wait_s=wait_s) for wait_s in (5.0, 0.0, 9.0, 1.0, 8.0, 4.0)]
    thirds = {name: sorted(rows.tolist()) for name, rows in thirds_by_wait(results).items()}
    assert thirds == {"calm": [1, 3], "usual": [0, 5], "busy": [2, 4]}
    assert set(thirds_by_wait(results[:1])) == {"calm"}
