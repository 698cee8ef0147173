"""How jobs wait, are decided, run, end and come back, on cases that can be computed by hand."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlalloc.heuristics import Ordered, as_requested
from rlalloc.job import Allocation
from rlalloc.speed import CURVES
from rlalloc.urgency import UrgencyRules
from rlalloc_simulator.driving import drive
from rlalloc_simulator.engine import Interception, NodeFailure, PriorityParameters, SchedulerParameters
from rlalloc_simulator.engine.job_runs import speed
from rlalloc_simulator.engine.job_table import curve_table
from rlalloc_simulator.site_from_workload import with_urgency
from tests.simulator.engine.by_hand import job, reasons, simulator, site, size, starts, states


@given(
    st.sampled_from(sorted(CURVES)),
    st.integers(1, 128),
    st.floats(0.1, 20),
)
def test_speed_is_that_of_the_core(name: str, gpus: int, cpus_per_gpu: float) -> None:
    curve = CURVES[name]
    compiled = speed(*curve_table([curve]), 0, gpus, cpus_per_gpu / curve.cpus_per_gpu_needed)
    assert compiled == pytest.approx(curve.at(gpus, cpus_per_gpu), rel=1e-12)


def test_a_begin_time_is_kept_and_seen_at_the_next_full_pass() -> None:
    """Slurm does not wake for a begin time: backfill (every 30 s) or the full pass (every 60 s) finds the job."""
    assert starts([job(0, size(1), begin_s=100.0)]) == [120]
    assert starts([job(0, size(1), begin_s=100.0)], site(scheduler=SchedulerParameters(backfill=False))) == [120]
    assert starts([job(0, size(1), begin_s=70.0)]) == [90]


def test_a_managed_job_that_nobody_decides_begins_as_submitted_after_the_grace() -> None:
    made = simulator([job(5, size(4), managed=True)], site(interception=Interception(grace=40.0)))
    assert made.run().tolist() == [0]
    assert made.now_s == 5
    assert reasons(made) == ["BeginTime"]
    assert len(made.run()) == 0
    assert made.outcomes()["start_s"].tolist() == [60]
    assert states(made) == ["COMPLETED"]


def test_a_decision_changes_the_size_and_lets_the_job_begin_at_once() -> None:
    made = simulator([job(5, size(4), 100.0, managed=True)])
    made.run()
    made.resize({0: size(8)})
    made.run()
    (outcome,) = made.outcomes()
    assert (outcome["start_s"], outcome["finished_s"]) == (5, pytest.approx(55))
    assert outcome["held_gpu_s"] == pytest.approx(400)


def test_a_job_that_is_left_begins_at_once_as_submitted() -> None:
    made = simulator([job(5, size(4), managed=True)])
    made.leave(made.run())
    made.run()
    assert made.outcomes()["start_s"].tolist() == [5]


def test_the_users_own_begin_time_outlives_the_decision() -> None:
    made = simulator([job(0, size(4), begin_s=100.0, managed=True)])
    made.resize({0: size(2)} if made.run().tolist() == [0] else {})
    made.run()
    assert made.outcomes()["start_s"].tolist() == [120]


def test_decisions_come_together_at_the_daemons_pace() -> None:
    jobs = [job(second, size(1), managed=True) for second in (1, 2, 3, 12)]
    made = simulator(jobs, site(interception=Interception(decision_interval=10.0)))
    assert (made.run().tolist(), made.now_s) == ([0, 1, 2], 10)
    made.leave([0, 1, 2])
    assert (made.run().tolist(), made.now_s) == ([3], 20)


def test_pending_jobs_are_asked_for_again_and_a_decision_can_let_them_start() -> None:
    there = site(1, interception=Interception(review_interval=15.0, review_limit=2))
    jobs = [job(0, size(4), 1000), job(1, size(8), managed=True)]
    made = simulator(jobs, there)
    made.leave(made.run())
    assert (made.run().tolist(), made.now_s) == ([1], 15)
    made.resize({1: size(4)})
    assert made.run().tolist() == []
    assert made.outcomes()["start_s"].tolist() == [0, 15]


def test_a_nice_decision_lets_others_pass() -> None:
    made = simulator([job(0, size(8)), job(1, size(8), managed=True), job(2, size(8))], site(1))
    made.resize({1: size(8)}, nice={1: (5, 0)} if made.run().tolist() == [1] else {})
    made.run()
    assert made.outcomes()["start_s"].tolist() == [0, 200, 100]


def test_what_is_added_to_nice_falls_to_nothing_and_a_users_own_stays() -> None:
    """In four steps of 100 s, here while a job of 1,000 s holds the node."""
    made = simulator([job(0, size(8, 1000), 1000), job(10, size(8), managed=True, nice=3)], site(1))
    made.resize({1: size(8)}, nice={1: (42, 400)} if made.run().tolist() == [1] else {})
    seen = []
    for until_s in (10, 109, 110, 209, 210, 310, 409, 410, 900):
        made.run(until_s)
        seen.append(int(made.world.jobs["nice"][1]))
    assert seen == [45, 45, 34, 34, 24, 13, 13, 3, 3]


@pytest.mark.parametrize("priority", ["basic", "multifactor"])
@pytest.mark.parametrize("backfill", [False, True])
def test_a_long_job_under_a_workload_of_short_ones_starts_within_the_limit(priority: str, backfill: bool) -> None:
    """One node, and a new job of 100 s every 90 s; each takes all of it. Without a limit the long one comes last."""
    weights = PriorityParameters(type="multifactor", weight_age=1e5, weight_qos=2e4)
    order = weights if priority == "multifactor" else PriorityParameters()
    plain = site(1, priority=order, scheduler=SchedulerParameters(backfill=backfill))
    ours = {"managed": True, "qos_factor": 1.0}
    shorts = [job(90 * number, size(8), 100, **ours) for number in range(1, 100)]
    jobs = [job(0, size(8), 100), job(1, size(8, 172_800), 50_000, **ours), *shorts]
    waited_s = []
    for limit_s in (3600.0, 30 * 86_400.0):
        there = with_urgency(plain, UrgencyRules(nice_band=10_000, patience=1000, starvation_limit_s=limit_s))
        waited_s.append(drive(simulator(jobs, there), jobs, Ordered(as_requested)).outcomes["start_s"][1] - 1)
    assert 300 < waited_s[0] <= 3600 + 100 + 60  # the one that runs, and a pass of the scheduler
    assert waited_s[1] > 9000


def test_a_decision_that_no_node_can_hold_is_refused() -> None:
    made = simulator([job(0, size(4), managed=True)])
    made.run()
    with pytest.raises(ValueError, match="job 0 could never run as"):
        made.resize({0: size(9)})


def test_a_request_that_no_node_can_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="job 1 can never run"):
        simulator([job(0, size(4)), job(0, size(8, nodes=3))])


def test_run_time_follows_from_what_the_job_got() -> None:
    made = simulator([job(0, size(4), 100.0, managed=True)])
    made.run()
    made.resize({0: size(4, cpus_per_task=2)})  # half of the CPUs that it needs
    made.run()
    assert made.outcomes()["finished_s"].tolist() == [200]


@pytest.mark.parametrize(
    ("given_size", "state", "end_s"),
    [(size(8, 60), "TIMEOUT", 60), (size(8, mem_mib_per_node=100), "OUT_OF_MEMORY", 20)],
)
def test_a_job_killed_for_its_size_runs_again_as_requested(given_size: Allocation, state: str, end_s: float) -> None:
    made = simulator([job(0, size(8), 100, managed=True, mem_mib_per_gpu_needed=500.0)])
    made.run()
    made.resize({0: given_size})
    made.run()
    (outcome,) = made.outcomes()
    assert (outcome["first_end_s"], outcome["start_s"], outcome["finished_s"]) == (end_s, end_s, end_s + 100)
    assert states(made) == ["COMPLETED"]
    assert outcome["lost_work_s"] == pytest.approx(end_s * 8)


def test_a_job_that_its_user_gave_too_little_is_not_run_again() -> None:
    made = simulator([job(0, size(8, 60), 100), job(0, size(8), 100, mem_mib_per_gpu_needed=2000.0)])
    made.run()
    assert states(made) == ["TIMEOUT", "OUT_OF_MEMORY"]
    assert made.outcomes()["finished_s"].tolist() == [60, 20]


@pytest.mark.parametrize(
    ("asked", "needed_mib", "state"), [(size(8, 60), 500.0, "TIMEOUT"), (size(8), 2000.0, "OUT_OF_MEMORY")]
)
def test_nor_is_one_that_is_resized(asked: Allocation, needed_mib: float, state: str) -> None:
    """Its request would have killed it, too."""
    made = simulator([job(0, asked, 100, managed=True, mem_mib_per_gpu_needed=needed_mib)])
    made.run()
    made.resize({0: msgspec.structs.replace(asked, cpus_per_task=7)})
    made.run()
    assert states(made) == [state]
    assert made.outcomes()["finished_s"].tolist() == made.outcomes()["first_end_s"].tolist()


def test_failures_lie_at_a_point_of_the_work() -> None:
    made = simulator([job(0, size(4), 100, stops_at=0.5, stop_state="FAILED", managed=True)])
    made.run()
    made.resize({0: size(8)})
    made.run()
    assert states(made) == ["FAILED"]
    assert made.outcomes()["finished_s"].tolist() == pytest.approx([25])


def test_users_cancel_what_waits_too_long_and_what_runs_too_long() -> None:
    jobs = [job(0, size(8), 300, cancel_after_s=200.0), job(1, size(8), cancel_s=50.0), job(2, size(8))]
    made = simulator(jobs, site(1))
    made.run()
    assert states(made) == ["CANCELLED", "CANCELLED", "COMPLETED"]
    assert made.outcomes()["finished_s"].tolist() == [200, 50, 300]


@pytest.mark.parametrize(
    ("kind", "start_s"), [("after", 0), ("afterany", 100), ("afterok", None), ("afternotok", 100)]
)
def test_dependencies_are_kept(kind: str, start_s: float | None) -> None:
    jobs = [
        job(0, size(1), 200, stops_at=0.5, stop_state="FAILED"),
        job(0, size(1), dependencies=((kind, 0),)),
    ]
    made = simulator(jobs)
    made.run()
    if start_s is None:
        assert states(made)[1] == "DEFERRED"
        assert reasons(made)[1] == "DependencyNeverSatisfied"
    else:
        assert made.outcomes()["start_s"][1] == pytest.approx(start_s, abs=60)
        assert states(made)[1] == "COMPLETED"


def test_a_job_that_resumes_goes_on_in_another_size_after_a_requeue() -> None:
    """100 s on 8 GPUs: half is done at 50 s, of which 40 s are in a checkpoint; the other 60% take 120 s on 4."""
    jobs = [job(0, size(8), 100, resumes=True, checkpoint_interval_s=20.0, restart_cost_s=5.0)]
    made = simulator(jobs, site(interception=Interception(requeue_delay=100.0)))
    made.run(50.0)
    made.requeue(0)
    made.resize({0: size(4)})
    made.run()
    (outcome,) = made.outcomes()
    assert outcome["start_s"] == 150  # its begin time, when backfill happens to come too
    assert outcome["finished_s"] == pytest.approx(150 + 5 + 120)
    assert outcome["useful_work_s"] == pytest.approx(800)
    assert outcome["lost_work_s"] == pytest.approx(80)
    assert outcome["restarts"] == 1


def test_only_running_jobs_are_requeued() -> None:
    made = simulator([job(0, size(8))])
    made.run()
    with pytest.raises(ValueError, match="only running jobs"):
        made.requeue(0)


def test_a_failing_node_takes_its_jobs_with_it_and_comes_back() -> None:
    jobs = [job(0, size(8), 100, requeues=False), job(0, size(8), 100), job(1, size(8), 100)]
    failures = (NodeFailure(node=0, time_s=50.0, repaired_s=500.0), NodeFailure(node=1, time_s=60.0, repaired_s=70.0))
    made = simulator(jobs, site(failures=failures))
    made.run()
    outcomes = made.outcomes()
    assert states(made) == ["NODE_FAIL", "COMPLETED", "COMPLETED"]
    assert outcomes["finished_s"][0] == 50
    assert outcomes["start_s"][2] == 70
    assert outcomes["start_s"][1] == 180  # requeued at 60 s, may begin at 180 s
    assert made.world.nodes["up"].all()


def test_what_waits_for_a_node_that_stays_down_is_pending_for_resources() -> None:
    made = simulator([job(0, size(8)), job(10, size(8))], site(1, failures=(NodeFailure(node=0, time_s=5.0),)))
    made.run()
    assert made.finished
    assert states(made) == ["PENDING", "PENDING"]
    assert reasons(made)[1] in ("Resources", "Priority")


def test_workloads_that_are_not_right_are_refused() -> None:
    with pytest.raises(ValueError, match="sort them"):
        simulator([job(5, size(1)), job(4, size(1))])
    with pytest.raises(ValueError, match="there is no user 3"):
        simulator([job(0, size(1), user=3)])
    with pytest.raises(ValueError, match="no node has GPUs of type"):
        simulator([job(0, size(1), gpu_type="v100")])
    with pytest.raises(ValueError, match="name another job"):
        simulator([job(0, size(1), dependencies=(("afterok", 7),))])


def test_a_clone_goes_on_as_the_original_would_and_apart_from_it() -> None:
    jobs = [job(10 * number, size(1 + number % 8), 150) for number in range(40)]
    made = simulator(jobs)
    made.run(100.0)
    twin = made.clone()
    made.run()
    assert not np.isfinite(twin.outcomes()["finished_s"]).all()
    twin.run()
    assert twin.digest() == made.digest()
    assert made.digest() != simulator([msgspec.structs.replace(jobs[0], nice=1), *jobs[1:]]).digest()


def test_memory_grows_with_the_jobs_and_no_faster() -> None:
    used = []
    for count in (100, 200, 300):
        made = simulator([job(number, size(1)) for number in range(count)])
        used.append(sum(array.nbytes for array in made.world))
    assert used[1] - used[0] == used[2] - used[1] < 100 * 600
