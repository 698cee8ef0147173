"""Weeks of a trace."""

from datetime import UTC, datetime

import pytest

from rlalloc_simulator.workloads.calendar_weeks import DAY_S, WEEK_S, iso_week, monday_s, of_weeks
from rlalloc_simulator.workloads.trace_job import TraceJob
from rlalloc_simulator.workloads.workload_errors import WorkloadError

MONDAY_S = datetime(2017, 10, 2, tzinfo=UTC).timestamp()  # of ISO week 40


def job(key: str, week: int, day: float) -> TraceJob:
    return TraceJob(key=key, submit_s=MONDAY_S + (week - 40) * WEEK_S + day * DAY_S, gpus=1, elapsed_s=1.0)


def test_weeks_begin_on_monday() -> None:
    assert iso_week(MONDAY_S) == 40
    assert iso_week(MONDAY_S - 1) == 39
    assert monday_s(MONDAY_S + 6.9 * DAY_S) == MONDAY_S
    assert monday_s(MONDAY_S) == MONDAY_S


def test_weeks_that_were_not_asked_for_leave_no_gap() -> None:
    """Of the weeks 40 to 43, 40 and 43: the latter follows the former, on the same days."""
    kept = of_weeks([job("a", 40, 1.5), job("b", 41, 0), job("c", 42, 2), job("d", 43, 3.25)], (43, 40))
    assert [(each.key, (each.submit_s - MONDAY_S) / DAY_S) for each in kept] == [("a", 1.5), ("d", 7 + 3.25)]


def test_a_week_that_the_trace_does_not_have() -> None:
    with pytest.raises(WorkloadError, match="no job of ISO week 44"):
        of_weeks([job("a", 40, 0)], (40, 44))
