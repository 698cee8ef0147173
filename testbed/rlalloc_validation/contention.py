"""A workload with contention for a small site: bursts over its capacity and calms, in seconds of the real run."""

import math
from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from rlalloc_simulator.workloads import ClusterDescription, End, Header, Needs, NodeGroup, Request, Speed, WorkloadJob
from rlalloc_simulator.workloads.workload_job import CurveName
from rlalloc_validation.validation_settings import ValidationSettings

Reals = NDArray[np.float64]

USERS: Final = ("llm-alice", "llm-bob", "llm-carol", "llm-dave", "llm-erin", "llm-frank")
GPU_COUNTS: Final = (1, 2, 4, 8, 16, 24)
"""More than a node holds comes in whole nodes."""
COUNT_WEIGHTS: Final = (0.45, 0.22, 0.15, 0.12, 0.04, 0.02)
CURVES: Final[tuple[CurveName, ...]] = ("bert", "imagenet", "deepspeech2")
RUN_MEDIAN_S: Final = 32.0
RUN_SIGMA: Final = 0.7
"""Of the log-normal run times."""
RUN_RANGE_S: Final = (8.0, 170.0)
BURST_RATE: Final = (1.9, 0.35)
"""Arrivals a second over their mean, in the bursts and in the calms that take turns."""
BURSTS: Final = 4
MEASURED: Final[tuple[CurveName, ...]] = ("bert", "imagenet", "deepspeech2", "cifar10", "yolov3")
ROUND_LIMITS_S: Final = (60, 120, 300, 600, 1800)
LIMIT_MARGIN: Final = 1.1
RESIZABLE: Final = 0.3
"""The last four are those of the modest site."""
MANAGED: Final = 0.75
"""Part of the jobs that are rlalloc's, and moldable; no rule covers the others, which are rigid."""
FAILING: Final = 0.07
TOO_SHORT: Final = 0.04
"""Part of the jobs that run into their time limit, of a minute."""
TOO_LONG_S: Final = (96.0, 150.0)
"""What those would run: more than their limit and the half minute until slurmctld looks at it."""


def contention(settings: ValidationSettings) -> tuple[Header, list[WorkloadJob]]:
    """Draw the workload; the same settings give the same one.

    Run times are scaled so that ``settings.load`` is offered; time limits are whole minutes, as Slurm's are.
    """
    random = np.random.default_rng(settings.seed)
    submits_s = _submissions(settings, random)
    counts = random.choice(
        [count for count in GPU_COUNTS if count <= settings.gpus // 2 or count == 1],
        size=settings.jobs,
        p=_weights(settings),
    )
    runs_s = np.exp(random.normal(math.log(RUN_MEDIAN_S), RUN_SIGMA, settings.jobs)).clip(*RUN_RANGE_S)
    runs_s *= settings.load * settings.gpus * settings.submit_for_s / float(counts @ runs_s)
    group = NodeGroup("n", settings.nodes, settings.gpus_per_node, settings.cpus_per_node, settings.mem_mib_per_node)
    header = Header(
        origin=f"make validate, {settings.jobs} jobs, seed {settings.seed}",
        modelled=("everything",),
        cluster=ClusterDescription(nodes=(group,)),
    )
    return header, list(_jobs(settings, random, submits_s, counts, runs_s.clip(5.0, None)))


def modest(settings: ValidationSettings) -> tuple[Header, list[WorkloadJob]]:
    """The same submissions on a modest site; the same settings give the same one.

    RESIZABLE of the jobs may be resized, from one GPU to four times their request; nobody declares CPUs or memory.
    Speed-ups are those of all models that Pollux measured, most of them flatter than what rlalloc expects. Time
    limits are as people choose them: half of the jobs a round one that fits, half the longest there is.
    """
    random = np.random.default_rng([settings.seed, 1])
    header, jobs = contention(settings)
    return header, [_as_people_ask(job, settings, random) for job in jobs]


def _as_people_ask(job: WorkloadJob, settings: ValidationSettings, random: np.random.Generator) -> WorkloadJob:
    too_short = job.request.time_limit_s < job.needs.run_time_s
    resized = bool(random.random() < RESIZABLE) and not too_short
    round_s = next(limit_s for limit_s in ROUND_LIMITS_S if limit_s > job.needs.run_time_s * LIMIT_MARGIN)
    limit_s = round_s if random.random() < 1 / 2 else ROUND_LIMITS_S[-1]
    curve: CurveName = MEASURED[int(random.integers(len(MEASURED)))]
    most = min(settings.gpus_per_node * max(1, settings.nodes // 2), 4 * job.request.gpus)
    return msgspec.structs.replace(
        job,
        request=job.request if too_short else msgspec.structs.replace(job.request, time_limit_s=limit_s),
        needs=msgspec.structs.replace(job.needs, speed=Speed(curve)),
        job_class="train" if resized else None,
        directives=f"class=train gpus=1-{max(job.request.gpus, most)}" if resized else "",
    )


def _jobs(
    settings: ValidationSettings,
    random: np.random.Generator,
    submits_s: Reals,
    counts: Reals,
    runs_s: Reals,
) -> Iterator[WorkloadJob]:
    cpus_a_gpu = settings.cpus_per_node // settings.gpus_per_node
    mem_a_gpu = settings.mem_mib_per_node // settings.gpus_per_node
    for place, (submit_s, count, drawn_s) in enumerate(zip(submits_s, counts.tolist(), runs_s, strict=True)):
        nodes = max(1, count // settings.gpus_per_node)
        gpus = count // nodes
        too_short = bool(random.random() < TOO_SHORT) and gpus <= settings.gpus_per_node // 2
        managed = bool(random.random() < MANAGED) and not too_short
        over_asked = float(random.choice((0.5, 1.0, 2.0)))
        cpus = min(settings.cpus_per_node, max(1, round(gpus * cpus_a_gpu * over_asked)))
        run_s = random.uniform(*TOO_LONG_S) if too_short else drawn_s
        limit_min = 1 if too_short else math.ceil(run_s * random.uniform(1.3, 4.0) / 60)
        fails = bool(random.random() < FAILING) and not too_short
        yield WorkloadJob(
            id=place + 1,
            submit_s=round(float(submit_s), 3),
            user=USERS[int(random.choice(len(USERS), p=_habits()))],
            request=Request(
                nodes=nodes,
                gpus_per_node=gpus,
                tasks_per_node=1,
                cpus_per_task=cpus,
                mem_mib_per_node=min(settings.mem_mib_per_node, round(gpus * mem_a_gpu * random.uniform(0.3, 1.0))),
                time_limit_s=60 * limit_min,
            ),
            needs=Needs(
                run_time_s=round(float(run_s), 3),
                cpu_fraction=min(1.0, gpus / cpus * float(random.choice((1.0, 2.0)))),
                max_rss_mib=1.0,  # sleeping takes no memory
                speed=Speed(str(random.choice(CURVES))),  # type: ignore[arg-type]
            ),
            end=End("FAILED", round(float(run_s * random.uniform(0.1, 0.9)), 3)) if fails else End(),
            job_class="train" if managed else None,
            directives=f"class=train {_range(count, settings)}" if managed else "",
        )


def _submissions(settings: ValidationSettings, random: np.random.Generator) -> Reals:
    """Times of submission (jobs,), ascending from 0: a Poisson process in bursts and calms, given its jobs."""
    edges = np.linspace(0.0, 1.0, 2 * BURSTS + 1)
    rates = np.array([BURST_RATE[part % 2] for part in range(2 * BURSTS)])
    work = np.concatenate(([0.0], np.cumsum(rates * np.diff(edges))))
    at = np.interp(np.sort(random.random(settings.jobs)) * work[-1], work, edges)
    times_s: Reals = (at - at[0]) * settings.submit_for_s
    return times_s


def _weights(settings: ValidationSettings) -> Reals:
    allowed = [
        weight
        for count, weight in zip(GPU_COUNTS, COUNT_WEIGHTS, strict=True)
        if count <= settings.gpus // 2 or count == 1
    ]
    return np.array(allowed) / sum(allowed)


def _habits() -> Reals:
    """How much of all jobs each user submits."""
    shares = 1.0 / np.arange(1, len(USERS) + 1)
    parts: Reals = shares / shares.sum()
    return parts


def _range(count: int, settings: ValidationSettings) -> str:
    most = min(settings.gpus_per_node * max(1, settings.nodes // 2), 2 * count)
    return f"gpus={max(1, count // 4)}-{max(count, most)} cpus-per-gpu=1-8 mem-per-gpu=4G-64G"
