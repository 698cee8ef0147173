"""The figures of a simulated workload. Pure functions of its history.

bounded slowdown   JCT over how long the job runs alone as requested, at least BOUND_S, and never below 1 (Feitelson,
                   Rudolph, Schwiegelshohn, Sevcik and Wong, "Theory and Practice in Parallel Job Scheduling", JSSPP
                   1997). Theirs divides by the run time that the job had; where a policy chooses sizes, that would
                   reward it for making jobs slow.
fairness           each user's mean bounded slowdown; the worst of them over the mean of all jobs, and Jain's index of
                   them (Jain, Chiu and Hawe, DEC-TR-301, 1984): 1 if all fare alike, 1/users if one has it all.
fragmentation      ``capacity_use.fragmented_gpu_s`` over all GPU time.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from rlalloc_simulator.report.capacity_use import capacity, fragmented_gpu_s, use_steps
from rlalloc_simulator.report.history import History, JobEnd

BOUND_S: Final = 10.0
"""Shorter jobs count as that long."""


class Distribution(msgspec.Struct, frozen=True):
    """Mean and quantiles; None without values."""

    mean: float | None
    p50: float | None
    p95: float | None
    p99: float | None


class Measures(msgspec.Struct, frozen=True):
    """The figures of a workload.

    ``jct_s``, ``wait_s`` (until the first start) and ``bounded_slowdown`` are of the jobs that ran and ended. Uses
    are what jobs held over what all nodes have, from the first submission to the last end (``makespan_s``);
    ``gpu_use_arriving`` until the last submission, without the tail in which the last long jobs run alone.
    Timeouts, kills for memory and requeues are counted by runs: a job may have several. ``further`` are those of
    ``metrics``, ``terms`` the mean costs of the objective's terms, each by name.
    """

    jobs: int
    ran: int
    cancelled_waiting: int
    never_ended: int
    jct_s: Distribution
    wait_s: Distribution
    bounded_slowdown: Distribution
    makespan_s: float
    gpu_hours: float
    gpu_use: float | None
    gpu_use_arriving: float | None
    cpu_use: float | None
    mem_use: float | None
    fragmentation: float | None
    timeouts: int
    out_of_memory: int
    requeues: int
    worst_user: float | None
    jain_index: float | None
    further: dict[str, float | None] = {}
    terms: dict[str, float | None] = {}


def measure(history: History) -> Measures:
    """Return the figures of ``history``, except ``further`` and ``terms``."""
    ran = [job for job in history.jobs if job.first_start_s is not None and job.end_s is not None]
    slowdowns = [bounded_slowdown(job) for job in ran]
    worst_user, jain = fairness([job.user for job in ran], slowdowns)
    makespan_s = history.end_s - history.begin_s
    gpu_use, cpu_use, mem_use = _uses(history, history.end_s)
    gpu_s = capacity(history)[0] * makespan_s
    states = [run.state for run in history.runs]
    return Measures(
        jobs=len(history.jobs),
        ran=len(ran),
        cancelled_waiting=sum(job.first_start_s is None and job.end_s is not None for job in history.jobs),
        never_ended=sum(job.end_s is None for job in history.jobs),
        jct_s=distribution([jct_s(job) for job in ran]),
        wait_s=distribution([wait_s(job) for job in ran]),
        bounded_slowdown=distribution(slowdowns),
        makespan_s=makespan_s,
        gpu_hours=sum(run.gpus * run.duration_s for run in history.runs) / 3600,
        gpu_use=gpu_use,
        gpu_use_arriving=_uses(history, max((job.submit_s for job in history.jobs), default=0.0))[0],
        cpu_use=cpu_use,
        mem_use=mem_use,
        fragmentation=fragmented_gpu_s(history) / gpu_s if gpu_s else None,
        timeouts=states.count("TIMEOUT"),
        out_of_memory=states.count("OUT_OF_MEMORY"),
        requeues=states.count("REQUEUED"),
        worst_user=worst_user,
        jain_index=jain,
    )


def jct_s(job: JobEnd) -> float:
    """Job completion time: from the submission to the end; NaN if it has not ended."""
    return math.nan if job.end_s is None else job.end_s - job.submit_s


def wait_s(job: JobEnd) -> float:
    """From the submission to the first start; NaN if it never started."""
    return math.nan if job.first_start_s is None else job.first_start_s - job.submit_s


def bounded_slowdown(job: JobEnd) -> float:
    """JCT over the time that the job takes alone as requested; see the module's docstring."""
    return max(1.0, jct_s(job) / max(job.alone_s, BOUND_S))


def distribution(values: Sequence[float]) -> Distribution:
    """Mean and quantiles, interpolated linearly."""
    if not values:
        return Distribution(None, None, None, None)
    p50, p95, p99 = np.quantile(values, (0.5, 0.95, 0.99)).tolist()
    return Distribution(float(np.mean(values)), p50, p95, p99)


def fairness(users: Sequence[str], slowdowns: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the worst user's mean slowdown over the mean of all jobs, and Jain's index of the users' means."""
    if not users:
        return None, None
    of_user = defaultdict(list)
    for user, slowdown in zip(users, slowdowns, strict=True):
        of_user[user].append(slowdown)
    means = np.array([np.mean(values) for values in of_user.values()])
    jain = means.sum() ** 2 / (len(means) * (means**2).sum())
    return float(means.max() / np.mean(slowdowns)), float(jain)


def _uses(history: History, until_s: float) -> list[float | None]:
    """Means of GPUs, CPUs and memory that were held from the first submission on, over what there is."""
    if until_s <= history.begin_s:
        return [None] * 3
    edges_s = np.array((history.begin_s, until_s))
    return [
        float(steps.means(edges_s)[0]) / there if there else None
        for steps, there in zip(use_steps(history), capacity(history), strict=True)
    ]
