"""What the logs of real sites say of users, families and limits: the constants of ``rlalloc_simulator.truths``."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlalloc_simulator.workloads.readers.swf import read_swf
from rlalloc_simulator.workloads.trace_job import TraceJob

FloatArray = NDArray[np.float64]


class LogStatistics(NamedTuple):
    """A log in figures; variances are of normal scores of run times, whose variance is 1.

    of_user, of_family   what a job's user explains, and what its family (user, size and limit) explains beyond that
    between_successive   half the mean squared difference of a family's jobs that come one after the other
    repeats              how often a user's next job is of the same family as the last
    families_a_job       families over jobs
    busiest_user         part of the jobs
    commonest_limit      part of the jobs that stand under it
    at_limit             part of the jobs that ran for 99% of their limit or longer
    used                 median of run time over limit
    limit_correlation    rank correlation of limit and run time
    """

    log: str
    jobs: int
    users: int
    of_user: float
    of_family: float
    between_successive: float
    repeats: float
    families_a_job: float
    busiest_user: float
    commonest_limit: float
    at_limit: float
    used: float
    limit_correlation: float


def log_statistics(path: Path) -> LogStatistics:
    """Return the statistics of a log in the Standard Workload Format. Raises WorkloadError."""
    jobs = sorted(
        (job for job in read_swf([path]) if job.user and job.elapsed_s > 0 and job.time_limit_s),
        key=lambda job: job.submit_s,
    )
    run_s = np.array([job.elapsed_s for job in jobs])
    limit_s = np.array([job.time_limit_s or 0.0 for job in jobs])
    users: list[Hashable] = [job.user for job in jobs]
    families: list[Hashable] = [_family(job) for job in jobs]
    scores = np.array([NormalDist().inv_cdf((rank + 0.5) / len(jobs)) for rank in _ranks(run_s).tolist()])
    within_user = _within(users, scores)
    used = run_s / limit_s
    return LogStatistics(
        log=path.stem,
        jobs=len(jobs),
        users=len(set(users)),
        of_user=1.0 - within_user,
        of_family=within_user - _within(families, scores),
        between_successive=_between_successive(families, scores),
        repeats=_repeats(users, families),
        families_a_job=len(set(families)) / len(jobs),
        busiest_user=Counter(users).most_common(1)[0][1] / len(jobs),
        commonest_limit=Counter(limit_s.tolist()).most_common(1)[0][1] / len(jobs),
        at_limit=float(np.mean(used >= 0.99)),
        used=float(np.median(used)),
        limit_correlation=float(np.corrcoef(_ranks(run_s), _ranks(limit_s))[0, 1]),
    )


def _family(job: TraceJob) -> tuple[str, float, float]:
    return job.user, float(job.cpus or 0.0), float(job.time_limit_s or 0.0)


def _ranks(values: FloatArray) -> NDArray[np.int64]:
    return np.argsort(np.argsort(values, kind="stable"), kind="stable")


def _within(keys: Sequence[Hashable], scores: FloatArray) -> float:
    """Variance within groups, pooled."""
    groups: dict[Hashable, list[float]] = defaultdict(list)
    for key, score in zip(keys, scores.tolist(), strict=True):
        groups[key].append(score)
    many = [np.array(each) for each in groups.values() if len(each) > 1]
    return float(sum(((each - each.mean()) ** 2).sum() for each in many) / sum(len(each) - 1 for each in many))


def _between_successive(families: Sequence[Hashable], scores: FloatArray) -> float:
    last: dict[Hashable, float] = {}
    squared = []
    for family, score in zip(families, scores.tolist(), strict=True):
        if family in last:
            squared.append((score - last[family]) ** 2)
        last[family] = score
    return float(np.mean(squared)) / 2.0


def _repeats(users: Sequence[Hashable], families: Sequence[Hashable]) -> float:
    last: dict[Hashable, Hashable] = {}
    same = []
    for user, family in zip(users, families, strict=True):
        if user in last:
            same.append(last[user] == family)
        last[user] = family
    return float(np.mean(same))
