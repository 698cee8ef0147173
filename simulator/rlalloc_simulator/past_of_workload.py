"""Estimates of a workload's run times from its own past, in strict time order.

The past is that of a run as requested: a job's estimate is made when it is submitted, from the jobs that had ended by
then. So all policies get the same estimates, and none is asked for while the compiled engine runs.
"""

from collections.abc import Sequence

import numpy as np

from rlalloc.past_job import PastJob
from rlalloc.run_time import RunTimeEstimate
from rlalloc.run_times.predictor import RunTimePredictor
from rlalloc.run_times.recent_runs import RecentRuns
from rlalloc.run_times.replay import submissions
from rlalloc_simulator.engine import SimulatedSite, Simulator, SubmittedJob, table_of
from rlalloc_simulator.engine.engine_records import STATE_NAMES, Record

Estimates = Sequence[RunTimeEstimate | None]


def estimates_from_past(site: SimulatedSite, jobs: Sequence[SubmittedJob]) -> Estimates:
    """Return an estimate for each job; None until the first job has ended. Deterministic."""
    recent = RecentRuns()
    predictor = RunTimePredictor(recent)
    estimates: list[RunTimeEstimate | None] = []
    for _, facts in submissions(as_requested(site, jobs), recent.add, recent.started):
        known = recent.group("site", facts) is not None
        estimates.append(predictor.estimate([facts], facts.submitted_s)[0] if known else None)
    return estimates


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
    )
