"""A calibrated simulator: a site's cluster, its jobs and how they scale, from the site's own experience."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from rlalloc.bounds import NodeShape, rigid_bounds
from rlalloc.devices import is_slice
from rlalloc.job import JobClass
from rlalloc.llm.gpu_types import GPU_MEMORY_GIB, PART_OF_PROFILE
from rlalloc.observation import type_features
from rlalloc.speed import PRIOR, SpeedCurve
from rlalloc.store import Decision, Experience
from rlalloc.urgency import UrgencyRules
from rlalloc_simulator.engine import Interception, NodeKind, SimulatedSite, SubmittedJob, UserKind
from rlalloc_simulator.site_from_workload import Workload, with_urgency
from rlalloc_trainer.pipelines.killed_by_size import RunTimesAsRequested, TrueNeed, need_of_killed
from rlalloc_trainer.pipelines.site_experience import question_of, run_time_s

EXPONENT_RANGE: Final = (0.2, 1.2)
PRIOR_WEIGHT: Final = 1.0
"""Weight of the prior curve against the site's measurements, in squared octaves of speed."""
TURNOVERS: Final = 10.0
"""Workloads of few jobs begin and end with an empty cluster, where large sizes are always the best."""
LEAST_JOBS: Final = 60
MOST_JOBS: Final = 1500
"""Of a workload."""
PIECES: Final = 4
NO_URGENCY: Final = UrgencyRules()
MEMORY_MARGIN: Final = 0.95
"""A job's hidden need over what its user declared to be enough: just below it."""


def calibrated_site(
    experiences: Sequence[Experience], calibrated_on: Sequence[Experience], urgency: UrgencyRules = NO_URGENCY
) -> Workload:
    """Return the simulated site of the partition that most usable experiences are from, and the jobs seen there.

    Scaling is fitted to ``calibrated_on``, so that held-out jobs stay unseen. ``urgency`` is what the site lets a
    policy do to the order of its queue. A job that ended by rlalloc's doing needs just more than it got
    (``killed_by_size``), so that a policy is charged with killing it again.
    """
    partition, _ = Counter(experience.decision.partition for experience in experiences).most_common(1)[0]
    mine = [experience for experience in experiences if experience.decision.partition == partition]
    exponents = scaling_exponents(calibrated_on)
    users = {name: number for number, name in enumerate(sorted({one.decision.user for one in mine}))}
    nodes = _nodes_of(mine[-1])
    others = round(nodes.count * (2.0 ** (-8.0 * question_of(mine[-1]).by_name()["cluster_part"]) - 1.0))
    names = tuple(UserKind(name=name) for name in users)
    stated = Interception(gpu_speed=_speed_to_state(mine[-1], nodes.gpu_type))
    site = with_urgency(
        SimulatedSite(nodes=(nodes,), users=names, other_nodes=max(0, others), interception=stated), urgency
    )

    def curve_of(decision: Decision) -> SpeedCurve:
        return prior_to_the_power(exponents.get(decision.job_class, 1.0))

    expected = RunTimesAsRequested([*calibrated_on, *mine], curve_of)
    jobs = []
    for one in mine:
        curve = curve_of(one.decision)
        if one.outcome.our_doing is not None:
            need = need_of_killed(one, curve, expected.of(one.decision))
        elif one.outcome.state == "OUT_OF_MEMORY":  # as requested: how long it would have run is not known
            need = None
        else:
            need = _need_of(one, curve)
        if need is not None and _can_run(job := _job_of(one, users[one.decision.user], need, nodes.gpu_type), nodes):
            jobs.append(job)
    return Workload(site, tuple(sorted(jobs, key=lambda job: job.submit_s)))


def scaling_exponents(experiences: Sequence[Experience]) -> dict[JobClass, float]:
    """Return for each class the power of the prior speed-up curve that explains its run times best.

    Jobs of the same user and name are assumed to do the same work, so that only sizes explain different run times: a
    regression of log run time on log prior speed within such groups, shrunk towards 1 by PRIOR_WEIGHT.
    """
    groups: dict[tuple[JobClass, str, str], list[tuple[float, float]]] = defaultdict(list)
    for one in experiences:
        ran_s = run_time_s(one)
        if one.outcome.state == "COMPLETED" and ran_s > 0:
            decision = one.decision
            speed = PRIOR.at(one.outcome.gpus, one.outcome.cpus / one.outcome.gpus)
            groups[decision.job_class, decision.user, decision.job_name].append((math.log2(speed), -math.log2(ran_s)))
    explained: dict[JobClass, float] = defaultdict(lambda: PRIOR_WEIGHT)
    spread: dict[JobClass, float] = defaultdict(lambda: PRIOR_WEIGHT)
    for (job_class, _, _), points in groups.items():
        prior_speed, speed = (values - values.mean() for values in np.array(points).T)
        explained[job_class] += float(prior_speed @ speed)
        spread[job_class] += float(prior_speed @ prior_speed)
    return {
        job_class: float(np.clip(explained[job_class] / spread[job_class], *EXPONENT_RANGE)) for job_class in spread
    }


def prior_to_the_power(exponent: float) -> SpeedCurve:
    """Return the prior speed-up curve with every speed-up raised to ``exponent``."""
    return SpeedCurve(PRIOR.gpus, tuple(speed**exponent for speed in PRIOR.speedup), PRIOR.cpus_per_gpu_needed)


def workload_jobs(site: Workload) -> int:
    """Return how many jobs fill the site: TURNOVERS times as many as run there at a time."""
    span_s = max(1.0, site.jobs[-1].submit_s - site.jobs[0].submit_s)
    ran_s = sum(job.work_s / job.curve.at_size(job.request) for job in site.jobs)
    return round(min(MOST_JOBS, max(LEAST_JOBS, TURNOVERS * ran_s / span_s)))


def resampled(
    site: Workload, count: int, length: int, generator: np.random.Generator, pace: tuple[float, float] = (1.0, 1.0)
) -> list[Workload]:
    """Return ``count`` workloads of ``length`` jobs: pieces of the site's history with its gaps between jobs.

    Pieces are drawn with replacement, PIECES for a workload, and wrap around at the end: a circular block bootstrap
    (Politis and Romano, 1992), which keeps bursts and lulls. Each workload draws a factor from the range ``pace``, by
    which its jobs come faster than on the site.
    """
    submits_s = np.array([job.submit_s for job in site.jobs])
    gaps_s = np.diff(submits_s)
    before_s = np.concatenate(([gaps_s.mean()], gaps_s)) if len(gaps_s) else np.zeros(1)
    piece = np.arange(math.ceil(length / PIECES))
    workloads = []
    for _ in range(count):
        faster = generator.uniform(*pace)
        begins = generator.integers(len(site.jobs), size=PIECES)
        drawn = ((begins[:, None] + piece).ravel()[:length]) % len(site.jobs)
        times_s = np.cumsum(before_s[drawn]) / faster
        jobs = tuple(
            msgspec.structs.replace(site.jobs[number], submit_s=time_s)
            for number, time_s in zip(drawn.tolist(), times_s.tolist(), strict=True)
        )
        workloads.append(Workload(site.site, jobs))
    return workloads


def _nodes_of(experience: Experience) -> NodeKind:
    """Read the nodes from an observation: its GPUs, and what a node has, are among the features."""
    features = question_of(experience).by_name()
    request = experience.decision.request
    gpus, node_gpus = round(2 ** (10 * features["cluster_gpus"])), round(2 ** (4 * features["node_gpus"]))
    return NodeKind(
        count=max(1, round(gpus / node_gpus)),
        shape=NodeShape(
            gpus=node_gpus,
            cpus=round(node_gpus * request.cpus_per_gpu / features["requested_cpus_per_gpu"]),
            mem_mib=round(node_gpus * request.mem_mib_per_gpu / features["requested_mem_per_gpu"]),
        ),
        gpu_type=_gpu_type_of(features),
    )


def _gpu_type_of(features: Mapping[str, float]) -> str:
    """A type of GPU with the memory of the site's; empty where nothing is known of it.

    The store has no types, but their speed and memory are among the features; the speed is given separately.
    """
    speed, memory = features["gpu_speed"], features["gpu_memory"]
    if features["part_of_gpu"] > 0.0:
        return f"1g.{max(1, round(80 * 8.0**memory / PART_OF_PROFILE))}gb"
    if speed == 0.0 and memory == 0.0:
        return ""
    return min(GPU_MEMORY_GIB, key=lambda name: abs(memory - type_features((name,))[1]))


def _speed_to_state(experience: Experience, gpu_type: str) -> tuple[tuple[str, float], ...]:
    """The speed that the policy saw, whether rlalloc knew it or the site stated it; none for a slice."""
    speed = question_of(experience).by_name()["gpu_speed"]
    return ((gpu_type, 8.0**speed),) if gpu_type and not is_slice(gpu_type) else ()


def _need_of(experience: Experience, curve: SpeedCurve) -> TrueNeed:
    """What a job needed that ran until it ended by itself, and the memory that its user declared to be enough."""
    outcome = experience.outcome
    bounds = experience.decision.bounds or rigid_bounds(experience.decision.request)
    work_s = max(1.0, run_time_s(experience)) * curve.at(outcome.gpus, outcome.cpus / outcome.gpus)
    return TrueNeed(work_s, curve, MEMORY_MARGIN * bounds.mem_mib_per_gpu.minimum)


def _job_of(experience: Experience, user: int, need: TrueNeed, gpu_type: str) -> SubmittedJob:
    decision = experience.decision
    return SubmittedJob(
        submit_s=decision.submitted_s,
        user=user,
        job_class=decision.job_class,
        request=decision.request,
        bounds=decision.bounds or rigid_bounds(decision.request),
        work_s=need.work_s,
        curve=need.curve,
        mem_mib_per_gpu_needed=need.mem_mib_per_gpu,
        gpus_needed=need.gpus,
        managed=True,
        gpu_type=gpu_type or None,
    )


def _can_run(job: SubmittedJob, nodes: NodeKind) -> bool:
    shape = nodes.shape
    return (
        job.bounds.gpu_counts[-1] <= nodes.count * shape.gpus
        and job.request.nodes <= nodes.count
        and shape.holds(job.request)
    )
