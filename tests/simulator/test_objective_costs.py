"""What became of a simulated workload, by the terms of an objective."""

import msgspec
import numpy as np
import pytest

from rlalloc.heuristics import Heuristic, largest
from rlalloc.objective import TERM_NAMES, costs_of
from rlalloc_simulator.driving import drive
from rlalloc_simulator.engine import Simulator, table_of
from rlalloc_simulator.objective_costs import KnownBefore, _others_of_the_user, consequences_of, setting_of
from rlalloc_simulator.report.plugin_metrics import mean_costs, measure_further
from rlalloc_simulator.site_from_workload import Workload
from rlalloc_simulator.training_workloads import training_workload
from tests.simulator.engine.by_hand import job, site, size


def run(workload: Workload, policy: Heuristic | None = None) -> Simulator:
    simulator = Simulator(workload.site, table_of(workload.jobs, workload.site))
    drive(simulator, workload.jobs, policy)
    return simulator


def test_a_job_by_hand() -> None:
    """1000 s on 4 GPUs, scaling linearly; then as large as it may be."""
    one = msgspec.structs.replace(job(0.0, size(4, 6000), 1000.0, managed=True), mem_mib_per_gpu_needed=100.0)
    workload = Workload(site(), (one,))
    became = consequences_of(run(workload), KnownBefore.of(workload.jobs))
    assert (became.jct_s[0], became.gpu_s[0], became.gpu_s_used[0]) == pytest.approx((1000, 4000, 4000), rel=0.02)
    assert became.run_time_s[0] == pytest.approx(1000)
    assert became.mem_mib_s_used[0] == pytest.approx(min(400, one.request.mem_mib) * 1000)
    assert became.slowdown[0] == pytest.approx(1)
    again = consequences_of(run(workload, largest), KnownBefore.of(workload.jobs))
    assert again.gpus[0] > 4
    assert again.slowdown[0] == pytest.approx(4 / again.gpus[0])


def test_costs_of_a_whole_workload_are_known_and_add_up() -> None:
    workload = training_workload(7, 60)
    simulator = run(workload)
    became, setting = consequences_of(simulator, KnownBefore.of(workload.jobs)), setting_of(workload.site)
    costs = dict(zip(TERM_NAMES, costs_of(became, setting).T, strict=True))
    outcomes = simulator.outcomes()
    assert costs["jct"].sum() == pytest.approx((outcomes["finished_s"] - outcomes["submit_s"]).sum())
    assert costs["gpu_held"].sum() == pytest.approx(outcomes["held_gpu_s"].sum())
    assert (costs["gpu_waste"] <= costs["gpu_held"] + 1e-6).all()
    assert (costs["cpu_waste"] <= costs["cpu_held"] + 1e-6).all()
    assert (costs["mem_waste"] <= costs["mem_held"] + 1e-6).all()
    assert (costs["energy"] <= costs["gpu_held"] + 1e-6).all()
    assert mean_costs(became, setting)["jct"] == pytest.approx(costs["jct"].mean())
    assert measure_further(became, setting)["GPU efficiency"] == pytest.approx(
        1 - costs["gpu_waste"].sum() / costs["gpu_held"].sum()
    )
    first = consequences_of(simulator, KnownBefore.of(workload.jobs), 10)
    np.testing.assert_array_equal(first.jct_s, became.jct_s[:10])


def test_what_a_user_holds_besides() -> None:
    """One user has 2 GPUs from 0 to 10 and 4 from 5 to 25; another one 8 all the time; one job never runs."""
    users = np.array([0, 0, 1, 0])
    start_s, end_s = np.array([0.0, 5.0, 0.0, 7.0]), np.array([10.0, 25.0, 30.0, 7.0])
    found = _others_of_the_user(users, start_s, end_s, np.array([2.0, 4.0, 8.0, 1.0]))
    assert found == pytest.approx([4 * 5 / 10, 2 * 5 / 20, 0, 0])


def test_nobody() -> None:
    assert _others_of_the_user(np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0), np.zeros(0)).shape == (0,)
