"""Workloads as people on real sites would submit them, against the logs that they follow."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache

import msgspec
import numpy as np
import pytest

from rlalloc.past_job import PastJob
from rlalloc.view import expected_run_time_s
from rlalloc_simulator.knowledge import Knowledge, with_knowledge
from rlalloc_simulator.report.recording import alone_s
from rlalloc_simulator.site_from_workload import site_of, submitted_from
from rlalloc_simulator.truths.people import ALL_GPUS, MODEST, Habits
from rlalloc_simulator.truths.sites import WeekWorkload, peopled
from rlalloc_simulator.workloads import ClusterDescription, NodeGroup, WorkloadJob
from rlalloc_simulator.workloads.generator import GeneratorSettings, generate
from rlalloc_simulator.workloads.workload_model import load_model

NODE = NodeGroup("n", 8, 8, 96, 768_000)
CLUSTER = ClusterDescription(nodes=(NODE,))


@cache
def source() -> tuple[WorkloadJob, ...]:
    return tuple(generate(load_model("philly"), GeneratorSettings(cluster=NODE, hours=96.0, load=4.0, seed=5)))


@cache
def made(habits: Habits = MODEST, seed: int = 0) -> WeekWorkload:
    jobs = source()
    return peopled(CLUSTER, NODE, jobs[-600:], jobs[:-600], habits, seed)


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    ranks = np.array([np.argsort(np.argsort(values)) for values in (one, other)])
    return float(np.asarray(np.corrcoef(ranks))[0, 1])


def test_arrivals_sizes_and_run_times_stay_those_of_the_source() -> None:
    before, after = source()[-600:], made().jobs
    assert [job.submit_s for job in after] == [job.submit_s for job in before]
    assert [job.request.gpus for job in after] == [job.request.gpus for job in before]
    everything = Counter(job.needs.run_time_s for job in source())
    assert not Counter(job.needs.run_time_s for job in after) - everything
    assert made() is made()
    assert peopled(CLUSTER, NODE, before, source()[:-600], MODEST, 0) == made()
    assert made(seed=1) != made()


def test_limits_say_as_little_as_in_the_logs_and_the_past_as_much() -> None:
    """Rank correlations with the run time. Atlas and KTH: limits .44 and .75, the last five alike .75 and .71."""
    past = made().past
    runs = [job.run_s for job in past]
    of_limit = rank_correlation([job.limit_s or 0.0 for job in past], runs)
    assert 0.15 < of_limit < 0.6
    alike: dict[object, list[float]] = defaultdict(list)
    predicted, ran = [], []
    for job in past:
        before = alike[job.user, job.gpus, job.limit_s]
        if before:
            predicted.append(float(np.median(before[-5:])))
            ran.append(job.run_s)
        before.append(job.run_s)
    of_past = rank_correlation(predicted, ran)
    assert of_past > of_limit + 0.15
    assert 0.5 < of_past < 0.85


def test_users_and_families_come_again() -> None:
    """The busiest user has about a tenth of the jobs (Atlas 11%, KTH 8%)."""
    jobs = made().past
    busiest = Counter(job.user for job in jobs).most_common(1)[0][1] / len(jobs)
    assert 0.05 < busiest < 0.25
    families = Counter((job.user, job.name) for job in jobs)
    assert 0.05 < len(families) / len(jobs) < 0.3
    assert len({(job.user, job.name, job.gpus, job.limit_s) for job in jobs}) == len(families)


@pytest.mark.parametrize("resizable", [0.1, 0.3, 0.8])
def test_as_many_families_as_wanted_may_be_resized(resizable: float) -> None:
    jobs = made(Habits(resizable=resizable)).jobs
    by_family = {job.name: "gpus=" in job.directives for job in jobs}
    assert abs(np.mean(list(by_family.values())) - resizable) < 0.15
    declared = {job.name: "mem-per-gpu" in job.directives for job in jobs}
    assert np.mean(list(declared.values())) < 0.25


@pytest.mark.parametrize(("factor", "widest"), [(2, 4), (4, 16), (ALL_GPUS, 64)])
def test_ranges_are_as_wide_as_wanted(factor: int, widest: int) -> None:
    jobs = [job for job in made(Habits(resizable=1.0, factor=factor)).jobs if job.request.gpus > 1]
    for job in jobs:
        least, most = job.parsed_directives.gpus or (0, 0)
        assert 1 <= least <= job.request.gpus <= most <= CLUSTER.gpus
        assert most / least <= (widest if factor else CLUSTER.gpus)


def test_who_over_asks_is_less_efficient() -> None:
    def efficiency(habits: Habits) -> float:
        jobs = [job for job in made(habits).jobs if job.request.gpus > 2]
        return float(np.mean([job.speed_curve.at(job.request.gpus, 1e9) / job.request.gpus for job in jobs]))

    assert efficiency(Habits(asking="over")) < efficiency(Habits(asking="right")) - 0.05


def test_no_need_is_what_somebody_declares() -> None:
    """People declare more than they need, and never less."""
    for job in made(Habits(declared=1.0)).jobs:
        declared = job.parsed_directives
        assert declared.mem_mib_per_gpu is not None
        assert declared.mem_mib_per_gpu[0] >= 1.05 * job.needs.max_rss_mib / job.request.gpus_per_node or (
            declared.mem_mib_per_gpu[0] >= int(job.request.allocation.mem_mib_per_gpu)
        )


def test_the_past_lies_before_the_workload() -> None:
    past = made().past
    assert all(job.submitted_s < 0.0 for job in past)
    assert [job.submitted_s for job in past] == sorted(job.submitted_s for job in past)
    assert {job.user for job in made().jobs} <= {job.user for job in past}
    fewer = msgspec.structs.replace(made(), past=())
    assert fewer.jobs == made().jobs


def test_the_past_tells_more_than_limits() -> None:
    """Mean error of the expected run time in doublings, by what is known."""
    workload = made()
    site = site_of(workload.cluster, workload.jobs)
    jobs = submitted_from(workload.jobs, site)

    def error(knowledge: Knowledge, past: tuple[PastJob, ...] = ()) -> float:
        known = with_knowledge(site, jobs, knowledge, past)
        expected = [expected_run_time_s(job, job.request) for job in known]
        return float(np.mean(np.abs(np.log2(np.divide(expected, [max(1.0, alone_s(job)) for job in jobs])))))

    by_limits, by_past = error("limits"), error("history", workload.past)
    assert by_past < by_limits - 0.3
    assert by_past < error("history") - 0.05
    assert error("model", workload.past) < by_past + 0.1
    assert 0.5 < error("factor-1.8") < 0.9
    assert error("truth") < 0.01
