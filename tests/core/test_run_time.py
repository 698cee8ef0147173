"""How long a job is expected to run, and to go on once it runs."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlalloc.heuristics import BASELINE_NAME, REFERENCE_POLICIES
from rlalloc.heuristics.named import policy_named
from rlalloc.job import JobView
from rlalloc.run_time import (
    PAST_THE_LIMIT_S,
    RunTimeEstimate,
    expected_remaining_s,
    expected_s,
    remaining_quantiles_s,
)
from rlalloc.view import ClusterView, expected_as_requested_s, expected_run_time_s

from .strategies import cluster_views, job_views

NAN = math.nan
LIMITS_S = st.integers(60, 10_000_000)
ELAPSED_S = st.floats(0, 20_000_000)


@st.composite
def quantiles(draw: st.DrawFn) -> tuple[float, float, float]:
    low_s = draw(st.floats(1, 1e6))
    median_s = low_s * draw(st.floats(1, 50))
    return low_s, median_s, median_s * draw(st.floats(1, 50))


def part_ended(at_s: float, low_s: float, median_s: float, high_s: float) -> float:
    """The distribution of run times: logistic in their logarithm, one scale below the median and one above."""
    end_s = high_s if at_s > median_s else low_s
    scale = abs(math.log(end_s / median_s)) / math.log(9.0)
    return 1.0 / (1.0 + math.exp(-math.log(at_s / median_s) / scale))


@given(LIMITS_S, ELAPSED_S)
def test_of_a_limit_alone_the_usual_part_is_expected_then_half_of_the_rest(limit_s: int, elapsed_s: float) -> None:
    """To the bit: policies were trained on these numbers."""
    part_s = 0.44 * limit_s
    was_s = max(0.0, part_s - elapsed_s if elapsed_s < part_s else (limit_s - elapsed_s) / 2)
    assert expected_remaining_s(limit_s, elapsed_s, NAN, NAN, NAN) == was_s
    assert expected_s(limit_s, NAN) == part_s


@pytest.mark.parametrize("elapsed_s", [1.0, 100.0, 900.0, 1000.0, 1100.0, 3000.0, 20_000.0])
def test_a_running_job_is_expected_to_go_on_for_the_conditional_median(elapsed_s: float) -> None:
    known = (600.0, 1000.0, 4000.0)
    assert [part_ended(each, *known) for each in known] == pytest.approx([0.1, 0.5, 0.9])
    ends_s = elapsed_s + expected_remaining_s(10_000_000, elapsed_s, *known)
    still_run = 1.0 - part_ended(elapsed_s, *known)
    assert 1.0 - part_ended(ends_s, *known) == pytest.approx(still_run / 2)


@pytest.mark.parametrize("elapsed_s", [0.0, 1.0, 100.0, 900.0, 1100.0, 20_000.0])
@pytest.mark.parametrize("slowdown", [1.0, 1.7])
def test_so_many_of_the_jobs_that_still_run_end_by_each_quantile(elapsed_s: float, slowdown: float) -> None:
    """Against the distribution itself: of those that have run so long, 10, 50 and 90 % have ended by then."""
    known = 600.0, 1000.0, 4000.0
    slower = [slowdown * each for each in known]
    ended = part_ended(elapsed_s, *slower) if elapsed_s else 0.0
    found = remaining_quantiles_s(0, elapsed_s, RunTimeEstimate(*known, "test"), slowdown)
    by_then = [(part_ended(elapsed_s + each, *slower) - ended) / (1.0 - ended) for each in found]
    assert by_then == pytest.approx([0.1, 0.5, 0.9])


@given(LIMITS_S, ELAPSED_S, quantiles())
def test_quantiles_of_what_remains_ascend(limit_s: int, elapsed_s: float, known: tuple[float, float, float]) -> None:
    low_s, median_s, high_s = remaining_quantiles_s(limit_s, elapsed_s, RunTimeEstimate(*known, "test"))
    assert 0.0 <= low_s <= median_s * (1.0 + 1e-9) + 1e-6
    assert median_s <= high_s * (1.0 + 1e-9) + 1e-6
    assert high_s <= max(0.0, limit_s + PAST_THE_LIMIT_S - elapsed_s)


@given(LIMITS_S, ELAPSED_S, quantiles())
def test_no_job_goes_on_beyond_its_limit(limit_s: int, elapsed_s: float, known: tuple[float, float, float]) -> None:
    remaining_s = expected_remaining_s(limit_s, elapsed_s, *known)
    assert 0.0 <= remaining_s <= max(0.0, limit_s - elapsed_s)


def test_a_run_time_without_spread_ends_when_it_says_and_then_half_of_the_limit_is_left() -> None:
    assert expected_remaining_s(1000, 300, 700, 700, 700) == 400
    assert expected_remaining_s(1000, 800, 700, 700, 700) == 100


def test_a_job_without_a_limit_is_expected_to_run_as_long_as_jobs_like_it() -> None:
    assert expected_s(0, 700.0) == 700.0
    assert expected_s(600, 700.0) == 600.0
    assert expected_remaining_s(0, 300, 700, 700, 700) == 400


@pytest.mark.parametrize("wrong", [(0, 1, 2), (2, 1, 3), (1, 3, 2), (1, 2, math.inf), (1, NAN, 2)])
def test_quantiles_ascend_above_0(wrong: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="above 0 and ascending"):
        RunTimeEstimate(*wrong, "test")


def test_the_interval_of_what_remains_lies_between_the_parts_of_the_estimate() -> None:
    known = (600.0, 1000.0, 4000.0)
    as_said = remaining_quantiles_s(0, 500.0, RunTimeEstimate(*known, "test"))
    wider = remaining_quantiles_s(0, 500.0, RunTimeEstimate(*known, "test", (0.05, 0.95)))
    assert wider[1] == as_said[1]
    assert wider[0] == expected_remaining_s(0, 500.0, *known, 0.05) < as_said[0]
    assert wider[2] == expected_remaining_s(0, 500.0, *known, 0.95) > as_said[2]


@pytest.mark.parametrize("wrong", [(0.0, 0.9), (0.6, 0.9), (0.1, 0.4), (0.1, 1.0), (NAN, 0.9)])
def test_the_parts_lie_on_either_side_of_the_median(wrong: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="parts of the remaining time"):
        RunTimeEstimate(1.0, 2.0, 3.0, "test", wrong)


def with_known(job: JobView, median_s: float) -> JobView:
    known = RunTimeEstimate(median_s / 2, median_s, 3 * median_s, "test")
    return msgspec.structs.replace(job, run_time=known)


@given(job_views())
def test_the_median_stands_in_for_the_part_of_the_limit(job: JobView) -> None:
    median_s = 0.1 * job.request.time_limit_s
    assert expected_as_requested_s(job) == 0.44 * job.request.time_limit_s
    assert expected_as_requested_s(with_known(job, median_s)) == median_s
    assert expected_run_time_s(with_known(job, median_s), job.request) == pytest.approx(median_s)


@pytest.mark.parametrize("name", [*REFERENCE_POLICIES, BASELINE_NAME])
@given(job=job_views(), view=cluster_views())
def test_a_policy_asks_for_the_expected_run_time_and_not_for_the_limit(
    name: str, job: JobView, view: ClusterView
) -> None:
    """Ten times the limit changes no answer, once the run time is known."""
    request = msgspec.structs.replace(job.request, time_limit_s=10 * job.request.time_limit_s)
    careless = with_known(msgspec.structs.replace(job, request=request), 0.44 * job.request.time_limit_s)
    assert policy_named(name)(careless, view) == policy_named(name)(job, view)
