"""Workloads of a week: cut from a trace or a file, thinned, generated, at any load."""

from pathlib import Path

import msgspec
import pytest

from rlalloc_simulator.knowledge import LEVELS
from rlalloc_simulator.workloads import ClusterDescription, Header, NodeGroup, WorkloadError, write_workload
from rlalloc_simulator.workloads.workload_job import End
from rlalloc_trainer.evaluation.scenario_weeks import (
    CALM_LOADS,
    at_load,
    philly_week,
    pieces_of_file,
    thinned,
    window,
    with_calm_ends,
    within_limit,
)
from rlalloc_trainer.evaluation.scenarios import (
    MODEST_SITE,
    PHILLY_TEST_WEEKS,
    PHILLY_TRAIN_WEEKS,
    PHILLY_VALIDATION_WEEKS,
    TEST_SEEDS,
    VALIDATION_SEEDS,
    scenario_of_file,
    scenarios,
)
from tests.trainer.evaluation.example_workloads import CLUSTER, workload_job, workload_of

DAY_S = 86_400.0


@pytest.mark.parametrize("load", [0.5, 1.0, 2.0])
def test_a_load_is_gpu_time_over_what_there_is_while_jobs_come(load: float) -> None:
    workload = at_load(workload_of([0.0, 100.0, 400.0], gpus=4, run_s=600.0), load)
    span_s = workload.jobs[-1].submit_s - workload.jobs[0].submit_s
    assert 3 * 4 * 600.0 / (CLUSTER.gpus * span_s) == pytest.approx(load, rel=1e-4)
    gaps = [later.submit_s - job.submit_s for job, later in zip(workload.jobs, workload.jobs[1:], strict=False)]
    assert gaps[1] == pytest.approx(3 * gaps[0], rel=1e-3)


def test_jobs_that_come_at_once_have_no_load() -> None:
    with pytest.raises(WorkloadError, match="take a longer workload"):
        at_load(workload_of([5.0, 5.0], gpus=4, run_s=600.0), 1.0)


def test_thinning_offers_a_load_of_one_and_leaves_out_what_would_be_all_of_it() -> None:
    """10 hours on 16 GPUs are 160 GPU-hours: half an hour on 4 GPUs is a 80th of them."""
    usual = [workload_job(number, 60.0 * number, gpus=4, run_s=1800.0) for number in range(1, 201)]
    wide = workload_job(201, 12_100.0, gpus=16, run_s=60.0)
    heavy = workload_job(202, 12_300.0, gpus=8, run_s=18_000.0 + 1)
    workload, others = thinned([*usual, wide, heavy], CLUSTER, 10.0, seed=3)
    assert {job.id for job in (*workload.jobs, *others)} == set(range(1, 201))
    assert sum(job.gpu_s for job in workload.jobs) == pytest.approx(CLUSTER.gpus * 36_000.0, rel=0.02)
    assert {201, 202}.isdisjoint(job.id for job in workload.jobs)
    assert [job.submit_s for job in workload.jobs] == sorted(job.submit_s for job in workload.jobs)
    assert workload == thinned([*usual, wide, heavy], CLUSTER, 10.0, seed=3)[0]
    assert workload != thinned([*usual, wide, heavy], CLUSTER, 10.0, seed=4)[0]


def test_the_busy_part_of_a_workload_lies_between_calm_ends() -> None:
    """Of 100 jobs alike, one an hour at a load of 1.2: the first 20 and the last 20 are further apart."""
    hourly = workload_of([3600.0 * number for number in range(100)], gpus=4, run_s=600.0)
    calm = with_calm_ends(hourly, 1.2)
    gaps_s = [later.submit_s - job.submit_s for job, later in zip(calm.jobs, calm.jobs[1:], strict=False)]
    assert gaps_s[:19] == pytest.approx([3600.0 * 1.2 / CALM_LOADS[0]] * 19)
    assert gaps_s[19:79] == pytest.approx([3600.0] * 60)
    assert gaps_s[79:] == pytest.approx([3600.0 * 1.2 / CALM_LOADS[1]] * 20)
    assert with_calm_ends(hourly, 0.5) == hourly


def test_long_work_comes_as_a_run_until_a_checkpoint() -> None:
    job = workload_job(1, 0.0, gpus=1, run_s=2 * DAY_S)
    cut = within_limit(job, DAY_S)
    assert cut.needs.run_time_s == DAY_S
    assert within_limit(cut, DAY_S) is cut
    fails_later = msgspec.structs.replace(job, end=End(state="FAILED", after_s=1.5 * DAY_S))
    assert within_limit(fails_later, DAY_S).end == End()
    fails_before = msgspec.structs.replace(job, end=End(state="FAILED", after_s=0.5 * DAY_S))
    assert within_limit(fails_before, DAY_S).end == fails_before.end


@pytest.fixture
def philly(tmp_path: Path) -> Path:
    """A job at noon of each day of October 2017, the 2nd being a Monday (week 40)."""
    path = tmp_path / "philly.csv"
    rows = [f"2017-10-{day:02} 12:00:00,3600.0,{1 + day % 2},1.0,vc" for day in range(1, 32)]
    path.write_text("\n".join(["timestamp,duration,num_gpus,gpu_time,cluster", *rows]))
    return path


def test_a_week_of_the_trace_begins_on_monday(philly: Path) -> None:
    week = philly_week(philly, 40)
    assert [job.submit_s / DAY_S for job in week] == pytest.approx([0.5 + day for day in range(7)])
    assert [job.submit_s / DAY_S for job in window(week, 0, 48.0)] == pytest.approx([0.5, 1.5])
    assert [job.submit_s / DAY_S for job in window(week, 1, 48.0)] == pytest.approx([3.5, 4.5])
    assert len(philly_week(philly, 39)) == 1
    with pytest.raises(WorkloadError, match="no job of ISO week 12"):
        philly_week(philly, 12)


def test_a_file_is_cut_into_weeks_or_days(tmp_path: Path) -> None:
    """Time zero is a Thursday noon: the first week ends three and a half days later."""
    header = Header(time_zero_s=DAY_S / 2, cluster=CLUSTER)
    jobs = [workload_job(number, (number - 1) * DAY_S / 2, gpus=1, run_s=60.0) for number in range(1, 43)]
    path = tmp_path / "site.jsonl"
    write_workload(path, header, jobs)
    assert [len(piece.jobs) for piece in pieces_of_file(path)] == [7, 14, 14, 7]
    short = tmp_path / "short.jsonl"
    write_workload(short, header, jobs[:6])
    assert [len(piece.jobs) for piece in pieces_of_file(short)] == [2, 2, 2]
    assert scenario_of_file("short", short).weeks == (0, 1, 2)
    nameless = tmp_path / "nameless.jsonl"
    write_workload(nameless, msgspec.structs.replace(header, cluster=None), jobs)
    with pytest.raises(WorkloadError, match="convert with --nodes"):
        pieces_of_file(nameless)


def test_what_chooses_and_what_judges_share_nothing() -> None:
    weeks = (PHILLY_TRAIN_WEEKS, PHILLY_VALIDATION_WEEKS, PHILLY_TEST_WEEKS)
    assert len({week for each in weeks for week in each}) == sum(map(len, weeks))
    assert set(TEST_SEEDS).isdisjoint(VALIDATION_SEEDS)


def test_the_frozen_scenarios_are_of_the_kinds_that_they_say(philly: Path) -> None:
    made = {scenario.name: scenario for scenario in scenarios("validation", quick=True)}
    assert next(iter(made)) == MODEST_SITE
    large = made["modest, large jobs"]
    workload = large.workload(large.weeks[0])
    assert sum(job.request.gpus for job in workload.jobs) / len(workload.jobs) > 10
    everything = {scenario.name: scenario for scenario in scenarios("test", philly, quick=False)}
    assert set(made) < set(everything)
    cluster = everything["modest, other nodes"].workload(TEST_SEEDS[0]).cluster
    assert {group.gpus for group in cluster.nodes} == {2, 4}
    assert everything["modest, Philly's weeks"].weeks == PHILLY_TEST_WEEKS
    assert everything[MODEST_SITE].knowledge == LEVELS


def test_cluster_of_a_workload_is_what_was_asked_for() -> None:
    cluster = ClusterDescription(nodes=(NodeGroup("n", 1, 4, 32, 64_000),))
    assert thinned([workload_job(1, 0.0, gpus=1, run_s=60.0)], cluster, 1.0, 0)[0].cluster == cluster
