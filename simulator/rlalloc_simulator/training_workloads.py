"""The workloads on which policies are trained, tuned and chosen: one seeded function of a number.

Each is drawn from a shipped model of a trace (``rlalloc_simulator.workloads.models``) for its own cluster: 4 to 64
nodes of several shapes, offered loads of 0.6 to 1.5, EASY or conservative backfill, with and without urgency. The
GPUs are of some type, and half of the clusters are a part of a larger one; no jobs run otherwise for that. Every
second one runs faster than its trace, since a policy has to serve sites with jobs of minutes as well as of days.
"""

import math
from typing import Final

import msgspec
import numpy as np

from rlalloc_simulator.engine import SchedulerParameters
from rlalloc_simulator.site_from_workload import Workload, site_of, submitted_from, with_urgency
from rlalloc_simulator.workloads.generator import GeneratorSettings, generate
from rlalloc_simulator.workloads.workload_job import End, NodeGroup, WorkloadJob
from rlalloc_simulator.workloads.workload_model import load_model

TRAINING: Final = 1_000_000
VALIDATION: Final = 500_000
TUNING: Final = 700_000
TEST: Final = 300_000
"""First numbers of the workloads of each use, at least 100,000 apart: no use sees another's workloads."""

MODELS: Final = ("philly", "philly", "kalos")
"""Equally likely entries: mostly many small jobs, and one time in three few large ones."""
SHAPES: Final = (
    NodeGroup("node", 1, gpus=8, cpus=64, mem_mib=512_000),
    NodeGroup("node", 1, gpus=8, cpus=96, mem_mib=768_000),
    NodeGroup("node", 1, gpus=8, cpus=128, mem_mib=1_024_000),
    NodeGroup("node", 1, gpus=4, cpus=48, mem_mib=384_000),
    NodeGroup("node", 1, gpus=8, cpus=32, mem_mib=256_000),
)
NODES: Final = (4, 64)
GPU_TYPES: Final = ("", "v100", "a100", "a100-40", "h100", "h200", "mi250x")
OTHER_NODES: Final = (1.0, 20.0)
"""Where the cluster is a part of a larger one: nodes that its jobs may not use, over its own."""
LOADS: Final = (0.6, 1.5)
JOBS: Final = (400, 1500)
LEAST_HOURS: Final = 12.0
"""The cluster is small enough for its jobs to last this long: in less time hardly any job would wait."""
FASTEST: Final = 60.0
"""Every second workload runs up to this many times as fast as its trace."""
_GPU_HOURS: Final = (0.027, 1.85)
"""GPU-hours of n jobs: 0.027·n^1.85, fitted to generated workloads, which vary widely. It is not linear, since a
generated workload has no job of more than a quarter of its GPU time: a short workload has only short jobs."""
_GPU_HOURS_OF_MANY: Final = {"kalos": (11.9, 1.13)}
"""The same for MANY jobs and more of models with larger jobs: Kalos' soon take ten times as much as Philly's."""
MANY: Final = 126


class TrainingWorkload(msgspec.Struct, frozen=True):
    """``training_workload`` as a source for comparisons."""

    number: int
    jobs: int | None = None

    @property
    def digest(self) -> str:
        """Its numbers: how it is made is in the sources of ``rlalloc_simulator``."""
        return f"training workload {self.number} {self.jobs}"

    @property
    def origin(self) -> str:
        """Of its own."""
        return self.digest

    def workload(self) -> Workload:
        """Return the workload."""
        return training_workload(self.number, self.jobs)


def training_workload(number: int, jobs: int | None = None) -> Workload:
    """Return workload ``number``, all of whose jobs ask for a decision; the same number gives the same workload.

    It has about ``jobs`` jobs, since the models vary widely; 400 to 1,500 if that is None.
    """
    generator = np.random.default_rng((number, 1))
    name = MODELS[generator.integers(len(MODELS))]
    shape = SHAPES[generator.integers(len(SHAPES))]
    load = float(generator.uniform(*LOADS))
    drawn = round(_log_uniform(*JOBS, generator))
    count = drawn if jobs is None else jobs
    scale, power = _GPU_HOURS if count < MANY else _GPU_HOURS_OF_MANY.get(name, _GPU_HOURS)
    gpu_hours = scale * count**power / load
    most = min(NODES[1], gpu_hours / (shape.gpus * LEAST_HOURS))
    nodes = round(_log_uniform(NODES[0], max(NODES[0], most), generator))
    # Drawn apart, so that the workload of a number is the one that it was before there were types.
    of_pool = np.random.default_rng((number, 4))
    gpu_type = GPU_TYPES[of_pool.integers(len(GPU_TYPES))]
    others = round(nodes * _log_uniform(*OTHER_NODES, of_pool)) if of_pool.random() < 0.5 else 0
    cluster = msgspec.structs.replace(shape, count=nodes, gpu_type=gpu_type)
    settings = GeneratorSettings(cluster, gpu_hours / (nodes * shape.gpus), load, seed=number)
    faster = _log_uniform(1.0, FASTEST, generator) if generator.random() < 0.5 else 1.0
    made = [_in_faster_time(job, faster) for job in generate(load_model(name), settings)]
    site = site_of(settings.description, made)
    # Slurm's default is conservative; EASY is what most sites with long queues set for the time that it saves.
    reserved = int(generator.integers(2))
    scheduler = SchedulerParameters(bf_job_part_count_reserve=reserved)
    site = msgspec.structs.replace(site, scheduler=scheduler, other_nodes=others)
    site = with_urgency(site) if generator.random() < 0.5 else site
    return Workload(site, tuple(submitted_from(made, site)))


def _log_uniform(least: float, most: float, generator: np.random.Generator) -> float:
    return math.exp(generator.uniform(math.log(least), math.log(most)))


def _in_faster_time(job: WorkloadJob, faster: float) -> WorkloadJob:
    """Return the job with all its times divided by ``faster``; time limits stay whole minutes."""
    if faster == 1.0:
        return job
    limit_s = max(60, math.ceil(job.request.time_limit_s / faster / 60) * 60)
    return msgspec.structs.replace(
        job,
        submit_s=job.submit_s / faster,
        request=msgspec.structs.replace(job.request, time_limit_s=limit_s),
        needs=msgspec.structs.replace(job.needs, run_time_s=job.needs.run_time_s / faster),
        end=job.end if job.end.after_s is None else _sooner(job.end, faster),
        checkpoint=None
        if job.checkpoint is None
        else msgspec.structs.replace(
            job.checkpoint, every_s=job.checkpoint.every_s / faster, restart_s=job.checkpoint.restart_s / faster
        ),
    )


def _sooner(end: End, faster: float) -> End:
    return msgspec.structs.replace(end, after_s=(end.after_s or 0.0) / faster)
