"""Weeks of a trace: policies are trained and judged on different ones."""

from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import Final

import msgspec

from rlalloc_simulator.workloads.trace_job import TraceJob
from rlalloc_simulator.workloads.workload_errors import WorkloadError

DAY_S: Final = 86_400.0
WEEK_S: Final = 7 * DAY_S


def iso_week(epoch_s: float) -> int:
    """Return the number of the ISO week (UTC) that ``epoch_s`` lies in."""
    return datetime.fromtimestamp(epoch_s, UTC).isocalendar().week


def monday_s(epoch_s: float) -> float:
    """Return the midnight of the Monday before ``epoch_s``; the epoch began on a Thursday."""
    return epoch_s - (epoch_s + 3 * DAY_S) % WEEK_S


def of_weeks(jobs: Iterable[TraceJob], weeks: Collection[int]) -> list[TraceJob]:
    """Return the jobs that were submitted in these ISO weeks, moved so that the weeks follow one another.

    Days and hours stay as they are. ``submit_s`` has to be seconds since the epoch. Raises WorkloadError for a week
    without jobs.
    """
    chosen = [job for job in jobs if iso_week(job.submit_s) in weeks]
    mondays = sorted({monday_s(job.submit_s) for job in chosen})
    missing = sorted(set(weeks) - {iso_week(begin_s) for begin_s in mondays})
    if missing:
        raise WorkloadError(f"no job of ISO week {missing[0]}: name weeks that the trace has")
    moved_s = {begin_s: mondays[0] + WEEK_S * place - begin_s for place, begin_s in enumerate(mondays)}
    return [msgspec.structs.replace(job, submit_s=job.submit_s + moved_s[monday_s(job.submit_s)]) for job in chosen]
