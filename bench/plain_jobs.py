"""The jobs for measuring the simulator's speed: independent, for one kind of node, at a given load.

GPUs lie between Philly (93% of jobs on one) and Kalos (28% on up to 8, the rest up to 1,024); run times are
log-normal with a median of half an hour, cut at 30 medians. Arrivals are a Poisson process. No job needs a
decision: only the engine is timed.
"""

import math
from typing import Final

import msgspec
import numpy as np

from rlalloc.bounds import Directives, NodeShape, SiteBounds, bounds_for
from rlalloc.job import Allocation
from rlalloc.speed import PRIOR, SpeedCurve
from rlalloc_simulator.engine import SubmittedJob

GPU_WEIGHTS: Final = {1: 0.30, 2: 0.20, 4: 0.20, 8: 0.20, 16: 0.07, 32: 0.03}
CPUS_ASKED: Final = (4, 4, 8, 8, 8, 16, 16, 32)
MEDIAN_RUN_S: Final = 1800.0
RUN_LOG_DEVIATION: Final = 1.3
LIMIT_OVER_RUN_TIME: Final = (math.log(1.0 / 0.44), 0.45)
USERS: Final = 12


def plain_jobs(nodes: int, shape: NodeShape, jobs: int, load: float, seed: int) -> list[SubmittedJob]:
    """Return ``jobs`` jobs whose GPU time as requested is ``load`` of the site's while they come."""
    generator = np.random.default_rng((seed, 2))
    drafts = [_draft(nodes, shape, generator) for _ in range(jobs)]
    gpu_s = sum(
        job.request.gpus * job.work_s / job.curve.at(job.request.gpus, job.request.cpus_per_gpu) for job in drafts
    )
    times_s = np.sort(generator.uniform(size=jobs)) * gpu_s / (load * nodes * shape.gpus)
    return [msgspec.structs.replace(job, submit_s=float(time_s)) for job, time_s in zip(drafts, times_s, strict=True)]


def _draft(nodes: int, shape: NodeShape, generator: np.random.Generator) -> SubmittedJob:
    """Make one job, its submission still open."""
    most = nodes * shape.gpus // 2
    counts = [count for count in GPU_WEIGHTS if count <= most and (count <= shape.gpus or count % shape.gpus == 0)]
    weights = np.array([GPU_WEIGHTS[count] for count in counts])
    gpus = int(generator.choice(counts, p=weights / weights.sum()))
    wide, per_node = (1, gpus) if gpus <= shape.gpus else (gpus // shape.gpus, shape.gpus)
    curve = SpeedCurve(PRIOR.gpus, PRIOR.speedup, float(generator.uniform(1.0, 3.0)))
    run_s = MEDIAN_RUN_S * min(30.0, math.exp(generator.normal(0.0, RUN_LOG_DEVIATION)))
    mem_needed = float(shape.mem_mib / shape.gpus * generator.uniform(0.05, 0.45))
    mem_asked = min(shape.mem_mib / per_node, mem_needed * (1.2 + float(generator.exponential(1.5))))
    cpus_asked = min(shape.cpus // per_node, int(generator.choice(CPUS_ASKED)))
    request = Allocation(
        nodes=wide,
        gpus_per_node=per_node,
        tasks_per_node=1,
        cpus_per_task=cpus_asked * per_node,
        mem_mib_per_node=math.ceil(mem_asked * per_node),
        time_limit_s=math.ceil(max(1.05, math.exp(generator.normal(*LIMIT_OVER_RUN_TIME))) * run_s / 60) * 60,
    )
    return SubmittedJob(
        submit_s=0.0,
        user=int(generator.integers(USERS)),
        request=request,
        bounds=bounds_for(request, Directives(), SiteBounds(), shape),
        work_s=run_s * curve.at(gpus, request.cpus_per_gpu),
        curve=curve,
        mem_mib_per_gpu_needed=mem_needed,
    )
