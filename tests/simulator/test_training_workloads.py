"""The workloads of training: varied, all of them to be decided, and the same for the same number."""

import math
from collections.abc import Sequence

import numpy as np

from rlalloc_simulator.engine import Simulator, SubmittedJob, table_of
from rlalloc_simulator.training_workloads import (
    LOADS,
    NODES,
    TEST,
    TRAINING,
    TUNING,
    VALIDATION,
    training_workload,
)

WORKLOADS = [training_workload(TRAINING + number, 60) for number in range(30)]


def test_the_same_number_gives_the_same_workload_and_another_one_another() -> None:
    assert training_workload(TRAINING, 60) == WORKLOADS[0]
    assert WORKLOADS[0] != WORKLOADS[1]


def test_uses_have_numbers_of_their_own() -> None:
    ordered = sorted((TRAINING, VALIDATION, TUNING, TEST))
    assert min(np.diff(ordered)) >= 100_000


def test_every_job_asks_and_can_run_as_requested() -> None:
    for site, jobs in WORKLOADS:
        assert all(job.managed for job in jobs)
        Simulator(site, table_of(jobs, site))  # raises where a job is larger than the site


def test_sites_differ_in_size_backfill_and_urgency() -> None:
    sites = [site for site, _ in WORKLOADS] + [training_workload(TRAINING + number, 1000).site for number in range(6)]
    assert {site.scheduler.bf_job_part_count_reserve for site in sites} == {0, 1}
    assert {site.interception.urgency.nice_band > 0 for site in sites} == {False, True}
    counts = [site.node_count for site in sites]
    assert NODES[0] <= min(counts) < 8 < max(counts) <= NODES[1]
    assert len({site.nodes[0].shape for site in sites}) > 3
    assert len({site.nodes[0].gpu_type for site in sites}) > 4
    assert {site.other_nodes > 0 for site in sites} == {False, True}


def test_loads_are_those_that_were_drawn() -> None:
    """GPU time at the requested sizes over what there is until the last submission."""
    loads = [
        offered(workload.site.node_count * workload.site.nodes[0].shape.gpus, workload.jobs) for workload in WORKLOADS
    ]
    assert LOADS[0] < np.median(loads) < LOADS[1]


def offered(gpus: int, jobs: Sequence[SubmittedJob]) -> float:
    gpu_s = 0.0
    for job in jobs:
        run_s = job.stops_at * job.work_s / job.curve.at(job.request.gpus, job.request.cpus_per_gpu)
        if not math.isfinite(job.cancel_s):  # those are cancelled before they start
            gpu_s += job.request.gpus * min(run_s, job.request.time_limit_s, job.cancel_after_s)
    return gpu_s / gpus / (jobs[-1].submit_s - jobs[0].submit_s)


def test_the_number_of_jobs_is_about_what_was_asked_for() -> None:
    middle = np.median([len(jobs) for _, jobs in WORKLOADS])
    assert 30 < middle < 130
    more = np.median([len(training_workload(TRAINING + number, 400).jobs) for number in range(10)])
    assert 3 * middle < more < 12 * middle


def test_some_workloads_run_faster_than_their_trace() -> None:
    """Every second one, up to sixty times: time limits of days become hours."""
    limits = [np.median([job.request.time_limit_s for job in jobs]) for _, jobs in WORKLOADS]
    assert min(limits) < 600 < 3600 < max(limits)
