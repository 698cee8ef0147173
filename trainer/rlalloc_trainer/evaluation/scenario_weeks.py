"""Workloads of one week: cut from a trace or a file, or generated; and the same jobs at any offered load.

A trace's jobs are thinned to what a cluster of the evaluation would be offered at a load of 1; other loads are the
very same jobs with their arrivals nearer together or further apart.
"""

import functools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from rlalloc_simulator.truths.sites import MOST_PAST, WeekWorkload
from rlalloc_simulator.workloads import ClusterDescription, WorkloadJob, read_workload
from rlalloc_simulator.workloads.calendar_weeks import DAY_S, WEEK_S, iso_week, monday_s
from rlalloc_simulator.workloads.completion import complete
from rlalloc_simulator.workloads.generator import (
    LARGEST_PART_OF_CLUSTER,
    LARGEST_PART_OF_LOAD,
    GeneratorSettings,
    generate,
)
from rlalloc_simulator.workloads.readers import FORMATS
from rlalloc_simulator.workloads.trace_job import TraceJob
from rlalloc_simulator.workloads.workload_errors import WorkloadError
from rlalloc_simulator.workloads.workload_job import End, NodeGroup
from rlalloc_simulator.workloads.workload_model import load_model

WINDOW_FROM_DAYS: Final = (0.0, 3.0)
"""A week of a trace gives two windows, that overlap on Thursday where they are of four days."""

LONGEST_RUN_S: Final = DAY_S
"""The longest time limit of a site: longer work comes as several jobs that go on from a checkpoint."""
CALM_PART: Final = 0.2
CALM_LOADS: Final = (0.9, 0.6)
"""The first and the last part of the GPU time, and the load there: so the busy part between them does not meet an
empty cluster, and its last jobs still meet others."""
DRAWN_LOAD: Final = 8.0
"""Of a generated workload, before it is thinned."""
SEEDS_APART: Final = 10_000
MOST_TURNS: Final = 20
"""Further draws of the same model, for the past."""


def at_load(workload: WeekWorkload, load: float) -> WeekWorkload:
    """Return the same jobs, their arrivals scaled so that the GPU time they ask for is ``load`` of what there is.

    The load is over the time from the first to the last submission. Dependencies are left out: what a job waits for
    may lie outside of the workload. Raises WorkloadError if no job holds GPUs, or all
    come at once.
    """
    first_s, last_s = workload.jobs[0].submit_s, workload.jobs[-1].submit_s
    offered = sum(job.gpu_s for job in workload.jobs) / workload.cluster.gpus
    if not (offered > 0 and last_s > first_s):
        raise WorkloadError("a load needs jobs that hold GPUs and come one after the other: take a longer workload")
    stretch = offered / load / (last_s - first_s)
    return msgspec.structs.replace(
        workload,
        jobs=tuple(
            msgspec.structs.replace(
                job, id=number, submit_s=round((job.submit_s - first_s) * stretch, 3), dependency=()
            )
            for number, job in enumerate(workload.jobs, 1)
        ),
    )


def with_calm_ends(workload: WeekWorkload, load: float) -> WeekWorkload:
    """Return a workload of that load with its first and last jobs further apart: CALM_LOADS, if ``load`` is above."""
    held_s = np.array([job.gpu_s for job in workload.jobs])
    part = (np.cumsum(held_s) - held_s / 2) / held_s.sum()
    slower = [max(1.0, load / calm) for calm in CALM_LOADS]
    stretch = np.where(part < CALM_PART, slower[0], np.where(part > 1.0 - CALM_PART, slower[1], 1.0))
    gaps_s = np.diff([job.submit_s for job in workload.jobs], prepend=workload.jobs[0].submit_s)
    submit_s = np.round(workload.jobs[0].submit_s + np.cumsum(gaps_s * stretch), 3).tolist()
    jobs = [msgspec.structs.replace(job, submit_s=each) for job, each in zip(workload.jobs, submit_s, strict=True)]
    return msgspec.structs.replace(workload, jobs=tuple(jobs))


def within_limit(job: WorkloadJob, longest_s: float) -> WorkloadJob:
    """Return the part of a job's work that one run of at most ``longest_s`` does, until a checkpoint."""
    if job.needs.run_time_s <= longest_s:
        return job
    ends_later = job.end.after_s is not None and not job.end.while_pending and job.end.after_s >= longest_s
    needs = msgspec.structs.replace(job.needs, run_time_s=longest_s)
    return msgspec.structs.replace(job, needs=needs, end=End() if ends_later else job.end)


def generated(
    model: str, request_node: NodeGroup, cluster: ClusterDescription, hours: float, seed: int
) -> tuple[WeekWorkload, tuple[WorkloadJob, ...]]:
    """Draw a workload of ``hours`` at a load of 1; its users ask for nodes like ``request_node``.

    More is drawn than is wanted, and thinned by the same rules as a trace; MOST_PAST others are returned, too.
    """
    count = max(1, cluster.gpus // request_node.gpus)
    node = msgspec.structs.replace(request_node, count=count)

    def drawn(turn: int) -> list[WorkloadJob]:
        settings = GeneratorSettings(cluster=node, hours=hours, load=DRAWN_LOAD, seed=seed + turn * SEEDS_APART)
        return [within_limit(job, LONGEST_RUN_S) for job in generate(load_model(model), settings)]

    workload, others = thinned(drawn(0), cluster, hours, seed)
    past = list(others)
    for turn in range(1, MOST_TURNS):
        if len(past) >= MOST_PAST:
            break
        past += [job for job in drawn(turn) if _fits(job, cluster, hours)]
    return workload, tuple(past[-MOST_PAST:])


def _fits(job: WorkloadJob, cluster: ClusterDescription, hours: float) -> bool:
    """Whether the job can be chosen (``thinned`` says why not all can)."""
    small = job.request.gpus <= LARGEST_PART_OF_CLUSTER * cluster.gpus
    return small and job.gpu_s <= LARGEST_PART_OF_LOAD * cluster.gpus * hours * 3600.0


def thinned(
    jobs: Sequence[WorkloadJob], cluster: ClusterDescription, hours: float, seed: int
) -> tuple[WeekWorkload, tuple[WorkloadJob, ...]]:
    """Return a random part of ``jobs`` that offers ``cluster`` a load of 1 for ``hours``; all, if they are fewer.

    Jobs of more than half of the cluster's GPUs, or of more than a quarter of the GPU time, are left out, as in
    generated workloads: on a cluster a twentieth of the trace's, one of them would be the whole result. The other
    jobs that could have been chosen are returned, too.
    """
    wanted_s = cluster.gpus * hours * 3600.0
    chosen, others, held_s = [], [], 0.0
    for place in np.random.default_rng((seed, 21)).permutation(len(jobs)).tolist():
        job = jobs[place]
        if not _fits(job, cluster, hours):
            continue
        if held_s >= wanted_s:
            others.append(place)
            continue
        chosen.append(place)
        held_s += job.gpu_s
    return (
        WeekWorkload(cluster, tuple(jobs[place] for place in sorted(chosen))),
        tuple(jobs[place] for place in sorted(others)),
    )


@functools.lru_cache(maxsize=8)
def philly_week(path: Path, week: int) -> tuple[WorkloadJob, ...]:
    """Return the jobs of an ISO week of Philly, from Monday's midnight on. Raises WorkloadError if there are none."""
    trace_format = FORMATS["philly-csv"]
    trace = [job for job in _trace("philly-csv", path) if iso_week(job.submit_s) == week]
    if not trace:
        raise WorkloadError(f"{path}: no job of ISO week {week}; name the table of the whole trace")
    zero_s, jobs = complete(trace, trace_format.assumptions, week)
    offset_s = zero_s - monday_s(zero_s)
    return tuple(msgspec.structs.replace(job, submit_s=job.submit_s + offset_s) for job in jobs)


def window(jobs: Sequence[WorkloadJob], part: int, hours: float) -> list[WorkloadJob]:
    """Return the jobs of ``hours`` from the day on at which window ``part`` of a week begins."""
    begin_s = WINDOW_FROM_DAYS[part % len(WINDOW_FROM_DAYS)] * DAY_S
    return [job for job in jobs if begin_s <= job.submit_s < begin_s + hours * 3600.0]


@functools.lru_cache(maxsize=4)
def pieces_of_file(path: Path) -> tuple[WeekWorkload, ...]:
    """Cut a workload's file into its weeks; into days where it has fewer than two.

    Pieces without two jobs that hold GPUs are left out. Raises WorkloadError where the header names no cluster.
    """
    header, jobs = read_workload(path)
    if header.cluster is None:
        raise WorkloadError(f"{path}: the header names no cluster; convert with --nodes")
    if not jobs:
        raise WorkloadError(f"{path}: there is no job in it")
    piece_s = WEEK_S if jobs[-1].submit_s - jobs[0].submit_s >= 2 * WEEK_S else DAY_S
    begins_s = monday_s(header.time_zero_s) - header.time_zero_s if header.time_zero_s and piece_s == WEEK_S else 0.0
    by_piece: dict[int, list[WorkloadJob]] = {}
    for job in jobs:
        by_piece.setdefault(math.floor((job.submit_s - begins_s) / piece_s), []).append(job)
    pieces = [piece for _, piece in sorted(by_piece.items()) if sum(job.gpu_s > 0 for job in piece) > 1]
    if not pieces:
        raise WorkloadError(f"{path}: no week or day of it has two jobs with GPUs")
    return tuple(WeekWorkload(header.cluster, tuple(piece)) for piece in pieces)


@functools.lru_cache(maxsize=1)
def _trace(name: str, path: Path) -> tuple[TraceJob, ...]:
    return tuple(FORMATS[name].read([path]))
