"""Pollux's workloads: 160 jobs of six applications from Philly's busiest eight hours, on 16 nodes of 4 GPUs.

Batch sizes are those that their users chose and stay. What a job does is what it did in Pollux's simulator: so many
steps of its batch until its last epoch. What Pollux does not say is filled: users (three an application), limits of
twice the run time times a log-normal of 0.5, CPUs and memory (a node's part for each GPU; nothing is declared).
"""

import csv
import functools
import math
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from rlalloc_simulator.truths.pollux_tables import GPUS_PER_NODE, step_times_s
from rlalloc_simulator.workloads.completion import nodes_for
from rlalloc_simulator.workloads.directives import written_directives
from rlalloc_simulator.workloads.workload_errors import WorkloadError
from rlalloc_simulator.workloads.workload_job import (
    ClusterDescription,
    Needs,
    NodeGroup,
    Request,
    Speed,
    WorkloadJob,
)

NUMBERS: Final = (1, 2, 3, 4)
"""Workloads that the folder has."""
NODE: Final = NodeGroup("g4dn", 16, GPUS_PER_NODE, 48, 192_000)
"""AWS g4dn.12xlarge."""
CLUSTER: Final = ClusterDescription(nodes=(NODE,))
EVERYTHING: Final = 0
"""The factor of bounds from 1 to all GPUs of the cluster."""

# Steps to the last epoch by batch: column iteration of validation-BATCH.csv at epochs 2, 100, 10, 90, 80 and 50
# (petuum/adaptdl at de25dcc, simulator/traces and applications.py, Apache-2.0).
_STEPS: Final = {
    "bert": {12: 14774, 24: 7427, 48: 3732, 96: 1885, 192: 940, 384: 480},
    "cifar10": {128: 39062, 256: 20377, 512: 10615, 1024: 5722, 2048: 3178, 4096: 2011},
    "ncf": {1024: 48625, 2048: 24308, 4096: 12172, 8192: 6122, 16384: 3069, 32768: 1548},
    "imagenet": {200: 576525, 400: 292995, 800: 150231, 1600: 78453, 3200: 42123, 6400: 23972, 12800: 14461},
    "deepspeech2": {20: 28536, 40: 14711, 80: 7683, 160: 4041, 320: 2264, 640: 1423},
    "yolov3": {8: 103444, 16: 52905, 32: 27430, 64: 14577, 128: 8075, 256: 4809, 512: 3143},
}
_USERS: Final = 3
_LIMIT_OVER_RUN: Final = 2.0
_LIMIT_SPREAD: Final = 0.5
_SHORTEST_LIMIT: Final = 1.05
"""Over the run time: as requested no job is killed."""


class _Asked(NamedTuple):
    application: str
    gpus: int
    batch: int


class _Arrivals(NamedTuple):
    times_s: tuple[float, ...]
    jobs: tuple[_Asked, ...]


def pollux_jobs(folder: Path, number: int, seed: int, factor: int, *, drawn: bool) -> tuple[WorkloadJob, ...]:
    """Return one workload: ``number`` 1 to 4 as published, or with ``drawn`` a draw that is like all four.

    A draw has the arrivals of ``number`` and, for each, a job drawn from all 640 with replacement. Ranges go from a
    ``factor``-th of the request to ``factor`` times that, or over all GPUs with EVERYTHING. Deterministic. Raises
    WorkloadError where the folder lacks something.
    """
    generator = np.random.default_rng((seed, 31))
    arrivals = _arrivals(folder, number)
    jobs = arrivals.jobs
    if drawn:
        everything = [job for each in NUMBERS for job in _arrivals(folder, each).jobs]
        jobs = tuple(everything[place] for place in generator.integers(len(everything), size=len(jobs)).tolist())
    spreads = np.exp(_LIMIT_SPREAD * generator.standard_normal(len(jobs))).tolist()
    users = generator.integers(_USERS, size=len(jobs)).tolist()
    return tuple(
        _job(folder, place, time_s, asked, spread, f"{asked.application}-{user}", factor)
        for place, (time_s, asked, spread, user) in enumerate(
            zip(arrivals.times_s, jobs, spreads, users, strict=True), 1
        )
    )


def _job(
    folder: Path, number: int, time_s: float, asked: _Asked, spread: float, user: str, factor: int
) -> WorkloadJob:
    step_s = _curve(folder, asked.application, asked.batch)
    speed = Speed(points=tuple((gpus, step_s[1] / each) for gpus, each in sorted(step_s.items())))
    run_s = _STEPS[asked.application][asked.batch] * step_s[1] / speed.at_full_supply(1.0).at(asked.gpus, 1.0)
    nodes, per_node = nodes_for(asked.gpus, NODE.shape)
    limit_s = 60 * math.ceil(max(_SHORTEST_LIMIT, _LIMIT_OVER_RUN * spread) * run_s / 60)
    request = Request(
        nodes=nodes,
        gpus_per_node=per_node,
        tasks_per_node=1,
        cpus_per_task=per_node * NODE.cpus // NODE.gpus,
        mem_mib_per_node=per_node * NODE.mem_mib // NODE.gpus,
        time_limit_s=limit_s,
    )
    least, most = (1, CLUSTER.gpus)
    if factor != EVERYTHING:
        least, most = max(1, asked.gpus // factor), min(CLUSTER.gpus, asked.gpus * factor)
    return WorkloadJob(
        id=number,
        submit_s=time_s,
        user=user,
        name=f"{asked.application}-b{asked.batch}",
        job_class="train",
        request=request,
        needs=Needs(
            run_time_s=run_s,
            cpu_fraction=NODE.gpus / NODE.cpus * 3.0,  # three CPUs a GPU feed images and audio (Synergy)
            max_rss_mib=per_node * NODE.mem_mib / NODE.gpus / 4,
            speed=speed,
        ),
        directives=written_directives(gpus=(least, most)),
    )


@functools.lru_cache(maxsize=64)
def _curve(folder: Path, application: str, batch: int) -> dict[int, float]:
    step_s = step_times_s(folder, application, batch)
    if 1 not in step_s or batch not in _STEPS[application]:
        raise WorkloadError(f"{folder}: nothing is known of {application} with a global batch of {batch}")
    return step_s


@functools.lru_cache(maxsize=8)
def _arrivals(folder: Path, number: int) -> _Arrivals:
    path = folder / "workloads" / f"workload-{number}.csv"
    try:
        with path.open(newline="") as file:
            rows = sorted(csv.DictReader(file), key=lambda row: float(row["time"]))
        return _Arrivals(
            tuple(float(row["time"]) for row in rows),
            tuple(_Asked(row["application"], int(row["num_replicas"]), int(row["batch_size"])) for row in rows),
        )
    except OSError as err:
        raise WorkloadError(f"{path}: {err.strerror}; name the folder of Pollux's tables and workloads") from err
    except (KeyError, ValueError) as err:
        raise WorkloadError(
            f"{path}: {err}; its columns are name, time, application, num_replicas, batch_size"
        ) from err
