"""Streams of LLM jobs, made from a seed.

What is known from traces is taken from them; what no trace has (bounds, hidden needs, over-asking) is an assumption
and marked as one. Sources: Philly (Jeon et al., ATC 2019; the trace as prepared in petuum/adaptdl, 82,247 jobs),
Kalos (AcmeTrace, Hu et al., NSDI 2024; 319 completed jobs), Pollux (OSDI 2021), Synergy (OSDI 2022).
"""

import math
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from rlalloc.bounds import Directives, NodeShape, SiteBounds, bounds_for
from rlalloc.job import Allocation, JobClass
from rlalloc.speed import PRIOR, SpeedCurve
from rlalloc_trainer.simulator import Cluster, SimulatedJob

GPU_WEIGHTS: Final[dict[int, float]] = {1: 0.30, 2: 0.20, 4: 0.20, 8: 0.20, 16: 0.07, 32: 0.03}
"""GPUs requested. Between Philly (93% of jobs on 1, 2% each on 2, 4 and 8) and Kalos (28% on up to 8 GPUs, the rest
up to 1,024): a site where LLM jobs fine-tune and train, scaled down to clusters of tens of GPUs."""

CLASS_WEIGHTS: Final[dict[JobClass, float]] = {"train": 0.5, "finetune": 0.35, "serve": 0.15}
"""An assumption."""

SCALING_EXPONENT: Final[dict[JobClass, tuple[float, float]]] = {
    "train": (0.85, 1.05),
    "finetune": (0.65, 1.0),
    "serve": (0.9, 1.05),
}
"""How a class's speed-up curves differ from the prior (bert's, Pollux): curve ** exponent, uniform in this range.
Small global batches, as in fine-tuning, scale worse (Pollux, figure 1); the figures are an assumption."""

CPUS_NEEDED: Final = (1.0, 3.0)
"""CPUs a GPU needs for full speed, uniform: 1 for language models, 3 and more with decoding in the loop (Synergy)."""

CPUS_ASKED: Final = (4, 4, 8, 8, 8, 16, 16, 32)
"""CPUs asked a GPU (cut to what a node has), each as likely: 8 to 16 a GPU is what nodes have, Kalos' jobs ask 12 to
15 with a tail to 120. That half of them need 1 to 3 is Synergy's finding; how many over-ask is an assumption."""

MEMORY_OVER_ASKED: Final = 1.5
"""Memory asked over needed is 1.2 plus an exponential of this mean; an assumption (no trace has both)."""

HOUR_WEIGHTS: Final = (
    1.27, 0.98, 1.12, 1.10, 0.70, 1.15, 1.67, 2.09, 1.11, 1.01, 1.02, 0.87,
    0.75, 0.70, 0.64, 0.65, 0.88, 0.67, 0.80, 0.73, 1.02, 0.92, 1.13, 1.01,
)  # fmt: skip
"""Arrivals by hour of the day (UTC) over their mean, Philly."""

LIMIT_OVER_RUN_TIME: Final = (math.log(1.0 / 0.44), 0.45)
"""Log-mean and log-deviation of time limit over run time: the median job uses 0.44 of its limit (LEARNING)."""


class Workload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What kind of stream to make.

    ``load`` is the GPU-time requested over the GPU-time there is while jobs arrive. Run times as requested are
    log-normal around ``median_run_s``; Philly's log-deviation is 2.0 within single-GPU jobs and 2.8 to 3.3 in larger
    ones, most of it failures of a few seconds: 1.3 keeps the tail of jobs that get somewhere, cut at 30 medians.
    """

    cluster: Cluster
    jobs: int = 100
    load: float = 1.0
    median_run_s: float = 1800.0
    run_log_deviation: float = 1.3
    moldable: float = 0.8
    users: int = 12
    daily_rhythm: bool = False


SHAPES: Final = (
    Cluster(4, NodeShape(gpus=8, cpus=64, mem_mib=512_000)),
    Cluster(4, NodeShape(gpus=8, cpus=128, mem_mib=1_024_000)),
    Cluster(8, NodeShape(gpus=4, cpus=48, mem_mib=384_000)),
    Cluster(8, NodeShape(gpus=8, cpus=96, mem_mib=768_000)),
    Cluster(16, NodeShape(gpus=8, cpus=64, mem_mib=512_000)),
    Cluster(3, NodeShape(gpus=8, cpus=32, mem_mib=256_000)),
)
LOADS: Final = (0.6, 0.8, 1.0, 1.2, 1.5)
MEDIAN_RUNS_S: Final = (30.0, 300.0, 1800.0, 7200.0)


def varied(seed: int, jobs: int = 100) -> Workload:
    """Return a workload of random shape, load and time scale: what the shipped policy is trained and judged on."""
    generator = np.random.default_rng((seed, 1))
    return Workload(
        cluster=SHAPES[generator.integers(len(SHAPES))],
        jobs=jobs,
        load=float(generator.uniform(LOADS[0], LOADS[-1])),
        median_run_s=MEDIAN_RUNS_S[generator.integers(len(MEDIAN_RUNS_S))],
        run_log_deviation=float(generator.uniform(0.8, 1.8)),
        moldable=float(generator.uniform(0.6, 1.0)),
        daily_rhythm=bool(generator.random() < 0.5),
    )


def generate(workload: Workload, seed: int) -> list[SimulatedJob]:
    """Return a stream, ascending in submission; the same seed gives the same stream."""
    generator = np.random.default_rng((seed, 2))
    # A few users submit most jobs: Zipf-like weights (Philly's virtual clusters are as uneven).
    weights = 1.0 / np.arange(1, workload.users + 1)
    users = generator.choice(workload.users, size=workload.jobs, p=weights / weights.sum())
    drafts = [_draft(workload, int(user), generator) for user in users]
    gpu_s = sum(job.request.gpus * job.run_time_s(job.request) for job in drafts)
    span_s = gpu_s / (workload.load * workload.cluster.gpus)
    times = _arrivals(workload, span_s, generator)
    return [msgspec.structs.replace(job, submit_s=float(time)) for job, time in zip(drafts, times, strict=True)]


def _arrivals(workload: Workload, span_s: float, generator: np.random.Generator) -> NDArray[np.float64]:
    """Poisson arrivals given their number; with a rhythm, a whole day or more of it is laid over the span."""
    uniform = np.sort(generator.uniform(size=workload.jobs))
    if not workload.daily_rhythm:
        return uniform * span_s
    days = max(1.0, round(span_s / 86400.0))
    hours = np.arange(int(days * 24) + 1) / (days * 24)
    rate = np.tile(HOUR_WEIGHTS, int(days))
    cumulative = np.concatenate(([0.0], np.cumsum(rate)))
    return np.asarray(np.interp(uniform, cumulative / cumulative[-1], hours)) * span_s


def _draft(workload: Workload, user: int, generator: np.random.Generator) -> SimulatedJob:
    """Make one job, its submission still open."""
    shape = workload.cluster.shape
    job_class = _draw_class(generator)
    gpus = _draw_gpus(workload.cluster, generator)
    curve = _draw_curve(job_class, generator)
    run_s = workload.median_run_s * min(30.0, math.exp(generator.normal(0.0, workload.run_log_deviation)))
    mem_needed = float(shape.mem_mib / shape.gpus * generator.uniform(0.05, 0.45))
    nodes, per_node = (1, gpus) if gpus <= shape.gpus else (gpus // shape.gpus, shape.gpus)
    mem_asked = min(shape.mem_mib / per_node, mem_needed * (1.2 + float(generator.exponential(MEMORY_OVER_ASKED))))
    cpus_asked = min(shape.cpus // per_node, int(generator.choice(CPUS_ASKED)))
    task_per_gpu = bool(generator.random() < 0.3)
    limit = math.exp(generator.normal(*LIMIT_OVER_RUN_TIME))
    request = Allocation(
        nodes=nodes,
        gpus_per_node=per_node,
        tasks_per_node=per_node if task_per_gpu else 1,
        cpus_per_task=cpus_asked if task_per_gpu else cpus_asked * per_node,
        mem_mib_per_node=math.ceil(mem_asked * per_node),
        time_limit_s=60,
    )
    work_s = run_s * curve.at(gpus, request.cpus_per_gpu)
    limit_s = math.ceil(max(1.05, limit) * run_s / 60) * 60
    request = msgspec.structs.replace(request, time_limit_s=limit_s)
    directives = Directives(
        gpus=_draw_gpu_range(workload, gpus, generator),
        cpus_per_gpu=(float(generator.choice((1, 2))), float(cpus_asked)) if generator.random() < 0.8 else None,
        mem_mib_per_gpu=(min(mem_needed * 1.1, mem_asked), mem_asked) if generator.random() < 0.8 else None,
        task_per_gpu=task_per_gpu,
    )
    return SimulatedJob(
        submit_s=0.0,
        user=user,
        job_class=job_class,
        request=request,
        bounds=bounds_for(request, directives, SiteBounds(), shape),
        work_s=work_s,
        curve=curve,
        mem_mib_per_gpu_needed=mem_needed,
    )


def _draw_class(generator: np.random.Generator) -> JobClass:
    names = list(CLASS_WEIGHTS)
    return names[generator.choice(len(names), p=list(CLASS_WEIGHTS.values()))]


def _draw_gpus(cluster: Cluster, generator: np.random.Generator) -> int:
    """GPUs requested: at most half of the cluster, and whole nodes beyond one."""
    possible = {
        count: weight
        for count, weight in GPU_WEIGHTS.items()
        if count <= cluster.gpus // 2 and (count <= cluster.shape.gpus or count % cluster.shape.gpus == 0)
    }
    weights = np.array(list(possible.values()))
    return int(generator.choice(list(possible), p=weights / weights.sum()))


def _draw_gpu_range(workload: Workload, gpus: int, generator: np.random.Generator) -> tuple[int, int] | None:
    """Draw what a moldable job declares: down to a quarter and up to four times the request."""
    if generator.random() >= workload.moldable:
        return None
    down, up = (1, 2, 4)[generator.integers(3)], (1, 2, 4)[generator.integers(3)]
    most = min(gpus * up, workload.cluster.gpus)
    if most > workload.cluster.shape.gpus:
        most -= most % workload.cluster.shape.gpus
    return max(1, gpus // down), max(gpus, most)


def _draw_curve(job_class: JobClass, generator: np.random.Generator) -> SpeedCurve:
    exponent = generator.uniform(*SCALING_EXPONENT[job_class])
    return SpeedCurve(
        gpus=PRIOR.gpus,
        speedup=tuple(float(value**exponent) for value in PRIOR.speedup),
        cpus_per_gpu_needed=float(generator.uniform(*CPUS_NEEDED)),
    )
