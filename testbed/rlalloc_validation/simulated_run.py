"""The same workload in the engine, submitted when the real one really was."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Final

import msgspec

from rlalloc.heuristics import Heuristic
from rlalloc.job import Allocation
from rlalloc_simulator.driving import drive
from rlalloc_simulator.engine import NodeOverhead, SimulatedSite, SubmittedJob
from rlalloc_simulator.engine.engine_records import STATE_NAMES, Record
from rlalloc_simulator.engine.job_table import allocation_of
from rlalloc_simulator.report.recording import RecordedSimulator
from rlalloc_simulator.site_from_workload import site_of, submitted_from, with_late_decisions
from rlalloc_simulator.workloads import Header, WorkloadJob
from rlalloc_validation.recorded_run import RanJob, Run
from rlalloc_validation.validation_settings import (
    Mode,
    ValidationError,
    ValidationSettings,
    decides_late,
    sizes_jobs,
    submitted_in,
)

BY: Final = "rlalloc's engine"
ALIGNED_S: Final = 3600.0
"""The engine's time begins at a whole hour of the clock: slurmctld's windows of 30 s begin at whole half minutes."""


def site_for(
    header: Header, jobs: Sequence[WorkloadJob], settings: ValidationSettings, launch_s: float = 0.0
) -> SimulatedSite:
    """The engine's site for a workload. Raises ValidationError where the workload names no cluster."""
    if header.cluster is None:
        raise ValidationError("the workload's header names no cluster: make it again with make validate")
    return msgspec.structs.replace(
        site_of(header.cluster, jobs),
        scheduler=settings.scheduler,
        interception=settings.interception,
        overhead=NodeOverhead(launch=max(0.0, launch_s)),
    )


def simulate(
    header: Header,
    jobs: Sequence[WorkloadJob],
    settings: ValidationSettings,
    real: Run,
    policy: Heuristic,
    launch_s: float = 0.0,
) -> Run:
    """Run the workload as ``real`` was run: its mode, and submissions when they really were."""
    return simulate_at(
        header, jobs, settings, {job.number: job.submitted_s for job in real.jobs}, real.mode, policy, launch_s
    )


def simulate_at(
    header: Header,
    jobs: Sequence[WorkloadJob],
    settings: ValidationSettings,
    submitted_s: Mapping[int, float],
    mode: Mode,
    policy: Heuristic | None,
    launch_s: float = 0.0,
) -> Run:
    """Run the workload with its jobs submitted at these times, epoch seconds by number, in one mode.

    Only in modes that size jobs ``policy`` is asked. ``launch_s`` is what a node needs to launch a job. Times come
    back on the same clock.
    """
    zero_s = math.floor(min(submitted_s.values()) / ALIGNED_S) * ALIGNED_S
    at_s = {number: time_s - zero_s for number, time_s in submitted_s.items()}
    site = site_for(header, jobs, settings, launch_s)
    if decides_late(mode):
        site = with_late_decisions(site, float(settings.poll_s))
    shifted = [msgspec.structs.replace(job, submit_s=max(0.0, at_s[job.id])) for job in submitted_in(jobs, mode)]
    shifted.sort(key=lambda job: job.submit_s)
    submitted = submitted_from(shifted, site)
    if not sizes_jobs(mode):
        submitted = [msgspec.structs.replace(job, managed=False) for job in submitted]
    simulator = RecordedSimulator(site, submitted)
    driven = drive(simulator, submitted, policy if sizes_jobs(mode) else None)
    nodes = {run.job: run.nodes for run in simulator.history().runs}
    ran = [
        _ran(job, one, record, size, nodes.get(place, ()), zero_s)
        for place, (job, one, record, size) in enumerate(
            zip(shifted, submitted, simulator.outcomes(), simulator.world.sizes, strict=True)
        )
    ]
    return Run(mode=mode, by=BY, updates=driven.updates, jobs=tuple(sorted(ran, key=lambda job: job.number)))


def launch_s_of(header: Header, jobs: Sequence[WorkloadJob], settings: ValidationSettings, run: Run) -> float:
    """Mean seconds that jobs of a real run held their nodes beyond what their scripts slept; 0 where none ended."""
    site = site_for(header, jobs, settings)
    submitted = {job.id: one for job, one in zip(jobs, submitted_from(jobs, site), strict=True)}
    over_s = [
        job.ended_s - job.started_s - _scripted_s(submitted[job.number], job.size)
        for job in run.jobs
        if job.started_s is not None and job.state in ("COMPLETED", "FAILED")
    ]
    return fmean(over_s) if over_s else 0.0


def _scripted_s(job: SubmittedJob, size: Allocation) -> float:
    """Seconds that a job sleeps in a size."""
    return job.stops_at * job.work_s / job.curve.at(max(1, size.gpus), size.cpus_per_gpu)


def _ran(
    job: WorkloadJob, submitted: SubmittedJob, record: Record, size: Record, nodes: tuple[int, ...], zero_s: float
) -> RanJob:
    had = allocation_of(size)
    return RanJob(
        number=job.id,
        submitted_s=zero_s + submitted.submit_s,
        noted_s=zero_s + submitted.submit_s,
        started_s=zero_s + float(record["start_s"]),
        ended_s=zero_s + float(record["finished_s"]),
        state=STATE_NAMES[record["state"]],
        size=had,
        nodes=nodes,
        decided=had if submitted.managed else None,
    )
