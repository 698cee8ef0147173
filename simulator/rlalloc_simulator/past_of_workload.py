"""What a workload's own past says of its jobs, in strict time order: run times, and what they need.

The past is that of a run as requested: what is known of a job is known when it is submitted, from the jobs that had
ended by then. So all policies know the same, and nothing is asked for while the compiled engine runs.
"""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from rlalloc.past_job import PastJob, in_order_of_submission
from rlalloc.run_time import RunTimeEstimate
from rlalloc.run_times.predictor import RunTimePredictor, within_limit
from rlalloc.run_times.recent_runs import RecentRuns
from rlalloc.run_times.replay import submissions
from rlalloc.run_times.training import LearningSettings, RunTimes, predict_in_time_order
from rlalloc.usage.past_bounds import KnownNeeds
from rlalloc.usage.past_usage import PastUsage
from rlalloc.usage.trimming_rules import DEFAULT_RULES
from rlalloc_simulator.engine import SimulatedSite, Simulator, SubmittedJob, table_of
from rlalloc_simulator.engine.engine_records import STATE_NAMES, Record
from rlalloc_simulator.workloads.calendar_weeks import WEEK_S

Estimates = Sequence[RunTimeEstimate | None]


TRAININGS: Final = 3
"""Of a model while the workload runs; the first is before it."""


class Remembered(NamedTuple):
    """Jobs as accounting has them, in the order of their submission; those before number ``first`` are the past."""

    jobs: Sequence[PastJob]
    first: int


def remembered(site: SimulatedSite, jobs: Sequence[SubmittedJob], past: Sequence[PastJob]) -> Remembered:
    """Return what accounting has of ``past``, jobs from before the first submission, and of a run as requested."""
    return Remembered(_in_time([*past, *as_requested(site, jobs)]), len(past))


def estimates_from_past(known: Remembered) -> Estimates:
    """Return an estimate for each job; None until the first job has ended. Deterministic."""
    recent = RecentRuns()
    predictor = RunTimePredictor(recent)
    estimates: list[RunTimeEstimate | None] = []
    for number, facts in submissions(known.jobs, recent.add, recent.started):
        if number < known.first:
            continue
        like_jobs = recent.group("site", facts) is not None
        estimates.append(predictor.estimate([facts], facts.submitted_s)[0] if like_jobs else None)
    return estimates


def estimates_by_model(known: Remembered) -> Estimates:
    """Return an estimate for each job by the learned model: trained on the past, and again as the workload goes on.

    Jobs that never ran keep the estimate of like jobs. Raises PolicyError as ``learn``.
    """
    ran = in_order_of_submission(known.jobs)
    runs = RunTimes.of(ran, RecentRuns(), lambda _what, _done: None)
    first = sum(job.submitted_s < known.jobs[known.first].submitted_s for job in ran)
    rolling = predict_in_time_order(runs, first, TRAININGS, LearningSettings(), lambda _what, _done: None)
    seconds = np.exp2(np.clip(rolling.quantiles, 0.0, 40.0)).tolist()
    by_id = {
        job.job_id: within_limit(RunTimeEstimate(low, median, high, "model of past jobs"), job)
        for job, (low, median, high) in zip(ran[first:], seconds, strict=True)
    }
    return [by_id.get(str(number), estimate) for number, estimate in enumerate(estimates_from_past(known))]


def needs_from_past(known: Remembered) -> Sequence[KnownNeeds]:
    """Return what like jobs used, for each job, as the daemon knows it when the job is submitted.

    No kill of ours is in it: a run as requested has none. So a family that is killed for a size is not given back its
    requests, as it is on a real site.
    """
    usage = PastUsage(DEFAULT_RULES)
    return [
        KnownNeeds(usage.floors(facts))
        for number, facts in submissions(known.jobs, usage.add)
        if number >= known.first
    ]


def _in_time(everything: Sequence[PastJob]) -> list[PastJob]:
    """The same jobs some weeks later: history takes no job from before the epoch."""
    later_s = WEEK_S * math.ceil(max(0.0, -min((job.submitted_s for job in everything), default=0.0)) / WEEK_S)
    return [
        msgspec.structs.replace(
            job,
            submitted_s=job.submitted_s + later_s,
            started_s=job.started_s + later_s,
            ended_s=job.ended_s + later_s,
        )
        for job in everything
    ]


def as_requested(site: SimulatedSite, jobs: Sequence[SubmittedJob]) -> list[PastJob]:
    """Run a workload as requested; return its jobs as accounting has them, in their order.

    A job that never ran starts and ends never.
    """
    simulator = Simulator(site, table_of(jobs, site))
    while not simulator.finished:
        simulator.leave(simulator.run())
    pairs = zip(jobs, simulator.outcomes(), strict=True)
    return [_past_job(number, site, job, outcome) for number, (job, outcome) in enumerate(pairs)]


def _past_job(number: int, site: SimulatedSite, job: SubmittedJob, outcome: Record) -> PastJob:
    user, request = site.users[job.user], job.request
    ran = not np.isnan(outcome["start_s"])
    peak_mib = min(float(request.mem_mib_per_node), job.mem_mib_per_gpu_needed * request.gpus_per_node)
    return PastJob(
        job_id=str(number),
        user=user.name,
        account=user.account,
        partition=site.partitions[job.partition].name,
        name=job.name,
        submitted_s=job.submit_s,
        started_s=float(outcome["start_s"]) if ran else np.inf,
        ended_s=float(outcome["finished_s"]) if ran else np.inf,
        state=STATE_NAMES[outcome["state"]],
        nodes=request.nodes,
        cpus=request.cpus,
        gpus=request.gpus,
        mem_mib=float(request.mem_mib),
        limit_s=float(request.time_limit_s),
        max_rss_mib=peak_mib,
        node_rss_mib=peak_mib,
        cpu_s_used=_cpus_used(job) * float(outcome["finished_s"] - outcome["start_s"]) if ran else None,
    )


def _cpus_used(job: SubmittedJob) -> float:
    """CPUs that are busy on average: those that its GPUs need, if it has them."""
    return min(float(job.request.cpus), job.curve.cpus_per_gpu_needed * job.request.gpus)
