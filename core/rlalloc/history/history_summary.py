"""What a history says about a site: who ran what, how long against which limits, and how long it waited."""

from array import array
from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from rlalloc.past_job import PastJob
from rlalloc.rank_correlation import rank_correlation

QUANTILES: Final = (0.1, 0.25, 0.5, 0.75, 0.9)
_CLASSES_OF_GPUS: Final = (0, 1, 2, 4, 8, 16, 32, 64, 128)
_CLASSES_OF_CPUS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class SizeClass(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of up to ``at_most`` GPUs or CPUs (None: more than the largest class), and their hours of them."""

    at_most: int | None
    jobs: int
    hours: float


class HistorySummary(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of a history. Quantiles are those of QUANTILES.

    ``over_asking`` is limit over run time, of jobs that have a limit and ran for a second at least.
    ``rank_correlation`` (Spearman's) is of limit and run time, None where it cannot be computed. Waits begin when a
    job becomes eligible, where that is known, else with its submission; there are none in a log without waits.
    """

    jobs: int
    users: int
    accounts: int
    first_end_s: float | None
    last_end_s: float | None
    states: dict[str, int]
    by_month: dict[str, int]
    run_s: tuple[float, ...]
    wait_s: tuple[float, ...]
    limit_s: tuple[float, ...]
    over_asking: tuple[float, ...]
    commonest_limit_s: float | None
    part_asking_commonest_limit: float
    without_limit: int
    rank_correlation: float | None
    gpu_jobs: int
    sizes: tuple[SizeClass, ...]
    with_memory_use: int
    with_cpu_use: int
    with_script: int


class Spans(msgspec.Struct, frozen=True):
    """Time limits and run times [s] of the jobs that have both, in the same order."""

    limit_s: npt.NDArray[np.float64]
    run_s: npt.NDArray[np.float64]


def summarize(jobs: Iterable[PastJob]) -> tuple[HistorySummary, Spans]:
    """Go through a history once; some 50 bytes are kept of a job."""
    states: Counter[str] = Counter()
    months: Counter[int] = Counter()
    users: set[str] = set()
    accounts: set[str] = set()
    run, wait, limit, gpus, cpus = (array("d") for _ in range(5))
    known: Counter[str] = Counter()
    first_s, last_s = np.inf, -np.inf
    for job in jobs:
        states[job.state] += 1
        months[int(job.ended_s // 86400)] += 1
        users.add(job.user)
        accounts.add(job.account)
        run.append(job.run_s)
        wait.append(max(0.0, job.started_s - (job.eligible_s or job.submitted_s)))
        limit.append(job.limit_s or np.nan)
        gpus.append(job.gpus)
        cpus.append(job.cpus)
        known["memory"] += job.max_rss_mib is not None
        known["cpu"] += job.cpu_s_used is not None
        known["script"] += bool(job.script)
        first_s, last_s = min(first_s, job.ended_s), max(last_s, job.ended_s)
    run_s, wait_s, limit_s = np.array(run), np.array(wait), np.array(limit)
    has_limit = ~np.isnan(limit_s)
    ran = has_limit & (run_s >= 1)
    spans = Spans(limit_s[ran], run_s[ran])
    values, counts = np.unique(limit_s[has_limit], return_counts=True)
    commonest = int(counts.argmax()) if len(counts) else None
    gpu_jobs = int(np.count_nonzero(np.array(gpus)))
    sizes = (
        _sizes(np.array(gpus), run_s, _CLASSES_OF_GPUS)
        if gpu_jobs
        else _sizes(np.array(cpus), run_s, _CLASSES_OF_CPUS)
    )
    return HistorySummary(
        jobs=len(run),
        users=len(users),
        accounts=len(accounts - {""}),
        first_end_s=float(first_s) if run else None,
        last_end_s=float(last_s) if run else None,
        states=dict(states.most_common()),
        by_month=_by_month(months),
        run_s=_quantiles(run_s),
        wait_s=_quantiles(wait_s) if wait_s.any() else (),
        limit_s=_quantiles(limit_s[has_limit]),
        over_asking=_quantiles(spans.limit_s / spans.run_s),
        commonest_limit_s=None if commonest is None else float(values[commonest]),
        part_asking_commonest_limit=0.0 if commonest is None else float(counts[commonest] / has_limit.sum()),
        without_limit=int((~has_limit).sum()),
        rank_correlation=rank_correlation(spans.limit_s, spans.run_s),
        gpu_jobs=gpu_jobs,
        sizes=sizes,
        with_memory_use=known["memory"],
        with_cpu_use=known["cpu"],
        with_script=known["script"],
    ), spans


def _quantiles(values: npt.NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(float(value) for value in np.quantile(values, QUANTILES)) if len(values) else ()


def _by_month(days: Counter[int]) -> dict[str, int]:
    months: Counter[str] = Counter()
    for day, count in sorted(days.items()):
        months[str(np.datetime64(day, "D").astype("datetime64[M]"))] += count
    return dict(months)


def _sizes(
    sizes: npt.NDArray[np.float64], run_s: npt.NDArray[np.float64], classes: tuple[int, ...]
) -> tuple[SizeClass, ...]:
    bounds: tuple[int | None, ...] = (*classes, None)
    places = np.searchsorted(classes, sizes)
    jobs = np.bincount(places, minlength=len(bounds))
    hours = np.bincount(places, weights=sizes * run_s / 3600, minlength=len(bounds))
    return tuple(
        SizeClass(at_most=bound, jobs=int(count), hours=float(time))
        for bound, count, time in zip(bounds, jobs, hours, strict=True)
        if count
    )
