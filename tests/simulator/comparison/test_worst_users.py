"""The worst user of many runs: chance is averaged out, and what a policy does to a user is not."""

from functools import cache

import msgspec
import numpy as np
import pytest

from rlalloc.heuristics import as_requested
from rlalloc.job import JobView, Shares
from rlalloc.view import ClusterView
from rlalloc_simulator.comparison.compared_policy import REFERENCE, HeuristicPolicy
from rlalloc_simulator.comparison.moved_submissions import MOVED_BY_S, moved
from rlalloc_simulator.comparison.runner import AS_THE_SITE, RunSettings, run_policy, run_simulator
from rlalloc_simulator.comparison.workload_result import WorkloadResult, together
from rlalloc_simulator.comparison.worst_users import LEAST_JOBS, WorstUser, worst_user
from rlalloc_simulator.engine import Simulator, table_of
from rlalloc_simulator.site_from_workload import Workload, site_of, submitted_from, with_urgency
from rlalloc_simulator.truths.people import MODEST
from rlalloc_simulator.truths.sites import peopled
from rlalloc_simulator.workloads import ClusterDescription, NodeGroup
from rlalloc_simulator.workloads.generator import GeneratorSettings, generate
from rlalloc_simulator.workloads.workload_model import load_model
from tests.simulator.comparison.example_results import result

NODE = NodeGroup("n", 4, 8, 96, 768_000)
RUNS = 8
BAR = 1.25


@cache
def workload() -> Workload:
    jobs = list(generate(load_model("philly"), GeneratorSettings(cluster=NODE, hours=30.0, load=2.0, seed=5)))
    made = peopled(ClusterDescription(nodes=(NODE,)), NODE, jobs, [], MODEST, 0)
    site = site_of(made.cluster, made.jobs)
    return Workload(site, tuple(submitted_from(made.jobs, site)))


def victim() -> int:
    """The user with the most jobs."""
    return max(range(len(workload().site.users)), key=lambda user: sum(job.user == user for job in workload().jobs))


def hurting(job: JobView, view: ClusterView) -> Shares:
    """Jobs of one class, the victim's, go last."""
    return msgspec.structs.replace(as_requested(job, view), urgency=0.0 if job.job_class == "serve" else 1.0)


@cache
def runs(*numbers: int, hurts: bool = False) -> tuple[WorkloadResult, ...]:
    """As requested, with submissions as of these replicates; with ``hurts`` the victim's jobs go last."""
    found = []
    for number in numbers:
        site, jobs = moved(workload(), number)
        mine = tuple(
            msgspec.structs.replace(job, job_class="serve" if job.user == victim() else "train") for job in jobs
        )
        there = with_urgency(site)
        policy = hurting if hurts else as_requested
        found.append(run_simulator(Simulator(there, table_of(mine, there)), mine, policy, AS_THE_SITE))
    return tuple(found)


def test_moving_keeps_the_order_and_moves_nobody_far() -> None:
    before = np.array([job.submit_s for job in workload().jobs])
    after = [np.array([job.submit_s for job in moved(workload(), number).jobs]) for number in range(3)]
    assert (after[0] == before).all()
    assert moved(workload(), 1) == moved(workload(), 1)
    assert (after[1] != after[2]).mean() > 0.9
    for each in after:
        assert (np.diff(each) >= 0.0).all()
        assert np.abs(each - before).max() <= MOVED_BY_S


def test_what_is_submitted_with_a_time_keeps_its_distance_to_it() -> None:
    site, jobs = workload()
    timed = tuple(
        msgspec.structs.replace(job, cancel_s=job.submit_s + 50.0, begin_s=job.submit_s + 9.0) for job in jobs
    )
    for job in moved(Workload(site, timed), 1).jobs:
        assert (job.cancel_s - job.submit_s, job.begin_s - job.submit_s) == pytest.approx((50.0, 9.0))


def test_figures_of_several_runs() -> None:
    one = result(100.0, killed=1, users={"ada": (10, 100.0), "bob": (1, 5.0)})
    other = result(300.0, killed=2, users={"ada": (30, 300.0)})
    both = together([one, other])
    assert (both.jct_s, both.jobs, both.killed, both.replicates) == (200.0, 200, 3, 2)
    assert both.users["ada"].jct_s / both.users["ada"].jobs == pytest.approx(250.0)
    assert both.users["bob"].jobs == 1
    assert together([one]) is one


def test_a_policy_runs_a_workload_as_often_as_the_settings_say() -> None:
    policy = HeuristicPolicy(REFERENCE)
    three = run_policy(policy, workload(), RunSettings(replicates=3))
    assert three == together(runs(0, 1, 2))
    assert run_policy(policy, workload()) == runs(0)[0]


def test_a_user_is_the_same_over_the_runs_of_one_place() -> None:
    """Twice as long in one run and half as long in the other: of one place that is chance, of two it is not."""
    usual = result(1.0, users={"ada": (LEAST_JOBS, 100.0), "bob": (LEAST_JOBS - 1, 1.0)})
    bad, good = (
        result(1.0, users={"ada": (LEAST_JOBS, mean_s), "bob": (LEAST_JOBS - 1, 99.0)}) for mean_s in (200.0, 50.0)
    )
    assert worst_user([("here", bad, usual), ("here", good, usual)]) == WorstUser(1.25, "here", "ada")
    assert worst_user([("here", bad, usual), ("there", good, usual)]) == WorstUser(2.0, "here", "ada")
    assert worst_user(list[tuple[str, WorkloadResult, WorkloadResult]]()) is None


def test_without_a_difference_the_worst_user_is_close_to_1() -> None:
    """As requested against itself with other submissions; in single runs somebody is further off."""
    single = [worst_user([("", runs(number)[0], runs(RUNS + number)[0])]) for number in range(RUNS)]
    averaged = worst_user([("", together(runs(*range(RUNS))), together(runs(*range(RUNS, 2 * RUNS))))])
    assert averaged is not None
    assert 0.95 < averaged.ratio < max(each.ratio for each in single if each is not None) < 1.1


def test_who_is_really_hurt_is_found() -> None:
    """The jobs of one user go last: that user is the worst, far beyond the bar."""
    worst = worst_user([("", together(runs(*range(RUNS), hurts=True)), together(runs(*range(RUNS))))])
    assert worst is not None
    assert worst.ratio > BAR
    user = workload().site.users[victim()]
    assert worst.name == f"{user.account}/{user.name}"
