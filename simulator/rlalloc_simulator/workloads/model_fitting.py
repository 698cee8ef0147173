"""Fitting a model to a workload: one pass over its jobs, everything counted, nothing optimised."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rlalloc.bounds import NodeShape
from rlalloc.job import JOB_CLASSES
from rlalloc_simulator.workloads.assumptions import ByClass
from rlalloc_simulator.workloads.workload_errors import WorkloadError
from rlalloc_simulator.workloads.workload_job import EndState, Header, WorkloadJob
from rlalloc_simulator.workloads.workload_model import (
    Account,
    Arrivals,
    EndShare,
    Molding,
    Quantiles,
    Requests,
    SizeGroup,
    SizeShare,
    WorkloadModel,
)

GROUPS: Final = ((1, 1), (2, 4), (5, 8), (9, 32), (33, 10**9))
"""Least and most GPUs of jobs that end alike."""
SMALLEST_GROUP: Final = 30
"""Jobs; a smaller group ends as all jobs do."""
PSEUDO_JOBS: Final = 10.0
"""Jobs of an even rhythm that are added to every hour of the day and day of the week: few jobs make no rhythm."""
EDGES: Final = (0.005, 0.995)
"""Submissions before and after these quantiles do not count for the rate: traces fade in and out."""
MOST_USERS: Final = 200
HOUR_S: Final = 3600.0
_LEAST: Final = 1e-3


def fit_model(header: Header, jobs: Iterable[WorkloadJob], command: str) -> WorkloadModel:
    """Fit a model to a workload. Raises WorkloadError if it has no jobs with whole GPUs."""
    everything = list(jobs)
    kept = [job for job in everything if job.request.gpus > 0 and not job.request.asks_for_parts]
    if not kept:
        raise WorkloadError("no job of the workload asks for whole GPUs: there is nothing to fit a model to")
    zero_s = (header.time_zero_s or 0.0) + header.utc_offset_s
    times = np.array([zero_s + job.submit_s for job in kept])
    arrivals, hours = fit_arrivals(times, clock=header.time_zero_s is not None)
    return WorkloadModel(
        origin=header.origin,
        command=command,
        modelled=header.modelled,
        jobs=len(kept),
        cpu_jobs_left_out=len(everything) - len(kept),
        hours=round(hours, 1),
        arrivals=arrivals,
        groups=_groups(kept),
        accounts=_accounts(kept),
        size_repeat=_size_repeat(kept),
        requests=_requests(kept, _shape(header, kept)),
        molding=_molding(kept),
    )


def fit_arrivals(times: NDArray[np.float64], *, clock: bool = True) -> tuple[Arrivals, float]:
    """Fit rate, rhythms and bursts to submissions (wall clock, seconds since the epoch); also the hours counted.

    Without a ``clock`` nobody knows what hour it was: the rhythms are flat, and what varies counts as bursts.
    """
    first, last = np.quantile(times, EDGES)
    start = math.floor(first / HOUR_S)
    hours = max(1, math.ceil((last - start * HOUR_S) / HOUR_S))
    index = np.floor(times / HOUR_S).astype(np.int64) - start
    counts = np.bincount(index[(index >= 0) & (index < hours)], minlength=hours).astype(np.float64)
    mean = max(float(counts.mean()), 1.0 / hours)
    hour = (start + np.arange(hours)) % 24
    day = ((start + np.arange(hours)) // 24 + 3) % 7  # 1970-01-01 was a Thursday
    by_hour, by_day = np.ones(24), np.ones(7)
    if clock:
        by_hour = _rhythm(counts, np.full(hours, mean), hour, 24)
        by_day = _rhythm(counts, mean * by_hour[hour], day, 7)
    expected = mean * by_hour[hour] * by_day[day]
    expected *= counts.sum() / expected.sum()
    excess = counts - expected
    variance = max(0.0, float((excess**2 - expected).sum() / (expected**2).sum()))
    memory = 0.0
    if variance > 0 and hours > 2:
        covariance = float((excess[1:] * excess[:-1]).sum() / (expected[1:] * expected[:-1]).sum())
        memory = math.log1p(max(0.0, min(covariance, variance))) / math.log1p(variance)
    return Arrivals(
        jobs_per_hour=float(f"{mean:.5g}"),
        hour_of_day=tuple(round(float(weight), 4) for weight in by_hour),
        day_of_week=tuple(round(float(weight), 4) for weight in by_day),
        burst_log_deviation=round(math.sqrt(math.log1p(variance)), 4),
        burst_memory=round(memory, 4),
    ), float(hours)


def _rhythm(
    counts: NDArray[np.float64], expected: NDArray[np.float64], position: NDArray[np.int64], period: int
) -> NDArray[np.float64]:
    """Weights of mean 1: jobs seen over jobs expected at each position of the period."""
    seen = np.bincount(position, counts, period) + PSEUDO_JOBS
    weights = seen / (np.bincount(position, expected, period) + PSEUDO_JOBS)
    return np.asarray(weights / weights.mean())


def _groups(jobs: Sequence[WorkloadJob]) -> tuple[SizeGroup, ...]:
    everyone = _ends(jobs)
    groups = []
    for least, most in GROUPS:
        members = [job for job in jobs if least <= job.request.gpus <= most]
        if members:
            sizes = Counter(job.request.gpus for job in members)
            groups.append(
                SizeGroup(
                    sizes=tuple(SizeShare(gpus, _share(count, len(jobs))) for gpus, count in sorted(sizes.items())),
                    ends=_ends(members) if len(members) >= SMALLEST_GROUP else everyone,
                )
            )
    return tuple(groups)


def _ends(jobs: Sequence[WorkloadJob]) -> tuple[EndShare, ...]:
    seconds: defaultdict[tuple[EndState, bool], list[float]] = defaultdict(list)
    for job in jobs:
        after_s = job.needs.run_time_s if job.end.after_s is None else job.end.after_s
        seconds[job.end.state, job.end.while_pending].append(after_s)
    return tuple(
        EndShare(state, while_pending, _share(len(sample), len(jobs)), Quantiles.of(sample, 1.0))
        for (state, while_pending), sample in sorted(seconds.items())
    )


def _accounts(jobs: Sequence[WorkloadJob]) -> tuple[Account, ...]:
    """Shares of accounts and users; the names are left out of the model, for they may be people's."""
    users: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for job in jobs:
        users[job.account][job.user] += 1
    busiest = sorted(users.values(), key=lambda counter: -counter.total())
    return tuple(
        Account(
            name=f"a{number}",
            share=_share(counter.total(), len(jobs)),
            users=tuple(_share(count, counter.total()) for _, count in counter.most_common(MOST_USERS)),
        )
        for number, counter in enumerate(busiest, 1)
    )


def _size_repeat(jobs: Sequence[WorkloadJob]) -> float:
    """P in P(same size as the user's last job) = p + (1 - p)·Σ share²."""
    last: dict[tuple[str, str], int] = {}
    same = pairs = 0
    for job in jobs:
        who = (job.account, job.user)
        if who in last:
            pairs += 1
            same += last[who] == job.request.gpus
        last[who] = job.request.gpus
    sizes = Counter(job.request.gpus for job in jobs)
    chance = sum((count / len(jobs)) ** 2 for count in sizes.values())
    if not pairs or chance >= 1:
        return 0.0
    return round(max(0.0, (same / pairs - chance) / (1 - chance)), 4)


def _requests(jobs: Sequence[WorkloadJob], shape: NodeShape) -> Requests:
    part_mib = shape.mem_mib / max(1, shape.gpus)
    allocations = [job.request.allocation for job in jobs]
    stopped = [
        job.end.after_s / job.needs.run_time_s for job in jobs if job.end.after_s and not job.end.while_pending
    ]
    several = [job for job in jobs if job.request.gpus_per_node > 1]
    tasks = sum(job.request.tasks_per_node == job.request.gpus_per_node for job in several)
    return Requests(
        cpus_per_gpu=Quantiles.of([size.cpus_per_gpu for size in allocations], _LEAST),
        cpu_fraction=Quantiles.of([job.needs.cpu_fraction for job in jobs], _LEAST),
        mem_share=Quantiles.of([size.mem_mib_per_gpu / part_mib for size in allocations], _LEAST),
        mem_fraction=Quantiles.of([job.needs.max_rss_mib / job.request.mem_mib_per_node for job in jobs], _LEAST),
        limit_used=Quantiles.of([job.needs.run_time_s / job.request.time_limit_s for job in jobs], _LEAST),
        progress_at_end=Quantiles.of(np.minimum(stopped or [1.0], 1.0), _LEAST),
        task_per_gpu=_share(tasks, len(several)),
    )


def _shape(header: Header, jobs: Sequence[WorkloadJob]) -> NodeShape:
    """The cluster's largest kind of node; without a description, what its largest requests would fit."""
    if header.cluster is not None:
        return max((group.shape for group in header.cluster.nodes), key=lambda shape: shape.gpus)
    return NodeShape(
        gpus=max(job.request.gpus_per_node for job in jobs),
        cpus=max(job.request.cpus_per_node for job in jobs),
        mem_mib=max(job.request.mem_mib_per_node for job in jobs),
    )


def _molding(jobs: Sequence[WorkloadJob]) -> Molding:
    classed = [job for job in jobs if job.job_class is not None]
    ranges = [(job.request.gpus, job.parsed_directives) for job in jobs]
    molded = [(gpus, said.gpus) for gpus, said in ranges if said.gpus is not None]
    repairable = sum(said.cpus_per_gpu is not None or said.mem_mib_per_gpu is not None for _, said in ranges)
    by_class = Counter(job.job_class for job in classed)
    resumable = Counter(job.job_class for job in classed if job.checkpoint is not None)
    return Molding(
        classes=ByClass(**{name: _share(by_class[name], len(classed)) for name in JOB_CLASSES}),
        moldable=_share(len(molded), len(jobs)),
        repairable=_share(repairable, len(jobs)),
        down=_table([gpus / low for gpus, (low, _) in molded]),
        up=_table([high / gpus for gpus, (_, high) in molded]),
        speed_exponent=Quantiles.of([job.needs.speed.exponent for job in jobs], _LEAST),
        checkpointed=ByClass(**{name: _share(resumable[name], by_class[name]) for name in JOB_CLASSES}),
    )


def _table(ratios: Sequence[float]) -> tuple[tuple[float, float], ...]:
    counted = Counter(round(max(1.0, ratio), 2) for ratio in ratios)
    return tuple((ratio, _share(count, len(ratios))) for ratio, count in sorted(counted.items()))


def _share(count: float, of: int) -> float:
    return round(count / of, 6) if of else 0.0
