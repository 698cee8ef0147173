"""The one runner: what a result says, what is kept, and that all policies run the very same workloads."""

import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from rlalloc.heuristics import REFERENCE_POLICIES, Heuristic, Ordered, largest
from rlalloc.objective import TERM_NAMES
from rlalloc.progress import silent
from rlalloc.speed.speed_prior import PRIOR_BELIEF
from rlalloc.urgency import UrgencyRules
from rlalloc_simulator.comparison import runner
from rlalloc_simulator.comparison.compared_policy import REFERENCE, HeuristicPolicy
from rlalloc_simulator.comparison.runner import (
    Run,
    RunSettings,
    WorkloadSource,
    run_all,
    run_policy,
    run_simulator,
)
from rlalloc_simulator.comparison.workload_result import UserSum, WorkloadResult
from rlalloc_simulator.engine import table_of
from rlalloc_simulator.parallel import processes
from rlalloc_simulator.requeueing import ResizingSimulator
from rlalloc_simulator.site_from_workload import SIMULATED_URGENCY, Workload
from rlalloc_simulator.training_workloads import VALIDATION, TrainingWorkload
from tests.simulator.engine.by_hand import job, simulator, site, size

SOURCES = [TrainingWorkload(VALIDATION + number, 15) for number in range(2)]
AS_REQUESTED, LARGEST = HeuristicPolicy(REFERENCE), HeuristicPolicy("largest")


def test_a_workload_reaches_another_process_with_what_is_believed_of_its_jobs() -> None:
    drawn = SOURCES[0].workload()
    believed = drawn._replace(jobs=tuple(msgspec.structs.replace(each, speed=PRIOR_BELIEF) for each in drawn.jobs))
    assert Workload.decoded(drawn.encoded()) == drawn
    received = Workload.decoded(believed.encoded())
    assert tuple(msgspec.structs.replace(each, speed=None) for each in received.jobs) == drawn.jobs
    speed = received.jobs[0].speed
    assert speed is not None
    assert (speed.covariance == PRIOR_BELIEF.covariance).all()
    assert all(each.speed is speed for each in received.jobs)
    assert len(table_of(received.jobs, received.site).records) == len(drawn.jobs)


def test_figures_that_can_be_followed_by_hand() -> None:
    """On one node: the second job waits for the first, the third is cancelled before, the last hits its limit."""
    jobs = [
        job(0.0, size(8), 100.0),
        job(0.0, size(8), 50.0, user=1),
        job(0.0, size(8), 100.0, user=1, cancel_s=20.0),
        job(1000.0, size(4, limit_s=60), 300.0),
    ]
    made = simulator(jobs, site(nodes=1, users=2))
    result = run_simulator(made, jobs, None, RunSettings())
    first_s, second_s, fourth_s = made.world.jobs["start_s"][[0, 1, 3]].tolist()
    jct_s = [first_s + 100.0, second_s + 50.0, 20.0, fourth_s + 60.0 - 1000.0]
    assert second_s >= first_s + 100.0
    assert (result.jobs, result.killed, result.requeues) == (4, 1, 0)
    assert result.jct_s == pytest.approx(np.mean(jct_s))
    assert result.wait_s == pytest.approx((first_s + second_s + fourth_s - 1000.0) / 3)
    assert result.gpu_hours == pytest.approx((8 * 150.0 + 4 * 60.0) / 3600.0)
    assert result.gpu_use == pytest.approx((8 * 150.0 + 4 * 60.0) / (8 * (fourth_s + 60.0)))
    alone_s = (100.0, 50.0, math.inf, 60.0)
    slowdowns = [max(1.0, jct / alone) for jct, alone in zip(jct_s, alone_s, strict=True)]
    assert result.bounded_slowdown == pytest.approx((slowdowns[0] + slowdowns[1] + slowdowns[3]) / 3)
    assert result.users == {
        "all/user0": UserSum(2, float(np.sum([jct_s[0], jct_s[3]]))),
        "all/user1": UserSum(2, float(np.sum([jct_s[1], jct_s[2]]))),
    }
    assert (result.further, result.costs) == ({}, {})


def test_where_no_job_ends_there_is_no_mean() -> None:
    """Each waits for the other."""
    jobs = [job(0.0, size(1), dependencies=(("afterok", other),)) for other in (1, 0)]
    result = run_simulator(simulator(jobs), jobs, None, RunSettings())
    assert result.jobs == 0
    assert math.isnan(result.jct_s)
    assert math.isnan(result.gpu_use)


def test_every_policy_runs_the_same_workloads_in_any_number_of_processes() -> None:
    runs = {"one": Run(AS_REQUESTED), "again": Run(AS_REQUESTED), "largest": Run(LARGEST)}
    steps: list[tuple[str, float]] = []
    found = run_all(runs, SOURCES, map, lambda what, done: steps.append((what, done)))
    assert found["one"] == found["again"] != found["largest"]
    assert found["largest"] == [run_policy(LARGEST, source.workload()) for source in SOURCES]
    assert steps == [(f"run {done} of 6", done / 6) for done in range(1, 7)]
    with processes(2) as parallel_map:
        assert run_all(runs, SOURCES, parallel_map) == found


def test_settings_say_which_rules_hold_and_what_is_measured() -> None:
    workload = SOURCES[0].workload()
    asked: list[UrgencyRules] = []

    class Noted:
        digest = ""

        def policy(self, urgency: UrgencyRules) -> Heuristic:
            asked.append(urgency)
            return largest

    rules = UrgencyRules(nice_band=500)
    plain = run_policy(Noted(), workload)
    measured = run_policy(Noted(), workload, RunSettings(urgency=rules, further=True, costs=True))
    assert asked == [workload.site.interception.urgency, rules]
    assert set(measured.costs) == set(TERM_NAMES)
    assert measured.costs["jct"] == pytest.approx(measured.jct_s)
    assert "GPU efficiency" in measured.further
    assert not plain.further


def test_running_jobs_are_resized_where_settings_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[ResizingSimulator] = []

    class Noted(ResizingSimulator):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            made.append(self)

    monkeypatch.setattr(runner, "ResizingSimulator", Noted)
    workload = SOURCES[0].workload()
    run_policy(LARGEST, workload)
    assert not made
    run_policy(LARGEST, workload, RunSettings(requeue=True))
    assert made[0].finished


def test_heuristics_put_the_smallest_first_only_where_that_is_asked_for_and_counts() -> None:
    price_ef = REFERENCE_POLICIES["price-ef"]
    assert HeuristicPolicy("price-ef").policy(SIMULATED_URGENCY) is price_ef
    ordered = HeuristicPolicy("price-ef", smallest_first=True)
    assert ordered.policy(UrgencyRules()) is price_ef
    assert ordered.policy(SIMULATED_URGENCY) == Ordered(price_ef)
    own = HeuristicPolicy("price-ef+shortest-first", smallest_first=True).policy(SIMULATED_URGENCY)
    assert isinstance(own, Ordered)
    assert own.policy is price_ef


def test_an_interrupted_comparison_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fourth run breaks; afterwards only what is missing is run, and a cut-off file is run again."""
    ran = [0]

    def breaking(*arguments: Any) -> WorkloadResult:
        ran[0] += 1
        if ran[0] == 4:
            raise KeyboardInterrupt
        return run_policy(*arguments)

    monkeypatch.setattr(runner, "run_policy", breaking)

    def results() -> dict[str, list[WorkloadResult]]:
        runs = {"largest": Run(LARGEST), REFERENCE: Run(AS_REQUESTED)}
        return run_all(runs, SOURCES, map, silent, tmp_path / "kept")

    with pytest.raises(KeyboardInterrupt):
        results()
    whole = results()
    assert ran[0] == 4 + 1
    cut = next((tmp_path / "kept").iterdir())
    cut.write_bytes(cut.read_bytes()[:20])
    assert results() == whole
    assert ran[0] == 4 + 1 + 1


def test_what_a_result_is_kept_under(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another policy, settings, workload or program: another result."""

    def kept(run: Run = Run(LARGEST), source: WorkloadSource = SOURCES[0]) -> int:  # noqa: B008 (frozen)
        run_all({"": run}, [source], map, silent, tmp_path)
        return len(list(tmp_path.iterdir()))

    workload = SOURCES[0].workload()
    assert kept() == kept() == 1
    assert kept(Run(HeuristicPolicy("smallest"))) == 2
    assert kept(Run(HeuristicPolicy("largest", smallest_first=True))) == 3
    assert kept(Run(LARGEST, RunSettings(requeue=True))) == 4
    assert kept(source=SOURCES[1]) == 5
    assert kept(source=msgspec.structs.replace(SOURCES[0], jobs=16)) == 6
    assert kept(source=workload) == 7
    assert kept(source=Workload(workload.site, workload.jobs[1:])) == 8
    assert kept(source=SOURCES[0].workload()) == 8
    monkeypatch.setattr(runner, "source_digest", lambda *_: "another program")
    assert kept() == 9


def test_a_kill_counts_as_the_policys_where_the_request_would_not_have_brought_it() -> None:
    """Two jobs get less memory than they need. The second's own limit is too short: it is killed in any size."""
    jobs = [
        job(0.0, size(8, limit_s=limit_s), 100.0, managed=True, mem_mib_per_gpu_needed=500.0) for limit_s in (600, 60)
    ]
    made = simulator(jobs, site(nodes=2))
    made.run()
    made.resize({number: size(8, limit_s, mem_mib_per_node=100) for number, limit_s in enumerate((600, 60))})
    result = run_simulator(made, jobs, None, RunSettings())
    assert made.outcomes()["finished_s"].tolist() == [120.0, 20.0]
    assert (result.killed, result.killed_by_policy) == (2, 1)
