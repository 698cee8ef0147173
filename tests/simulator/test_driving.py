"""A policy drives the engine: sizes, nice and what is left alone, in cases that can be followed by hand."""

import pytest

from rlalloc.heuristics import Ordered, as_requested, largest, repaired, smallest
from rlalloc.job import JobView, Shares
from rlalloc.urgency import UrgencyRules
from rlalloc.view import ClusterView
from rlalloc_simulator.driving import drive
from rlalloc_simulator.site_from_workload import with_late_decisions, with_urgency
from rlalloc_simulator.training_workloads import training_workload
from tests.simulator.engine.by_hand import job, simulator, site, size, states


def test_each_job_gets_what_the_policy_says() -> None:
    """Bounds of 1 to 16 GPUs, a job that scales linearly: 400 s on four GPUs are 100 s on 16 and 1600 s on one."""
    for policy, gpus, run_s in ((as_requested, 4, 400.0), (largest, 16, 100.0), (smallest, 1, 1600.0)):
        jobs = [job(0, size(4, 600), 400, managed=True)]
        made = simulator(jobs)
        driven = drive(made, jobs, policy)
        assert (driven.decided, driven.unplaceable, states(made)) == (1, 0, ["COMPLETED"])
        assert driven.outcomes["held_gpu_s"][0] / run_s == pytest.approx(gpus)
        assert driven.outcomes["finished_s"][0] == pytest.approx(run_s)


def test_without_a_policy_jobs_run_as_submitted() -> None:
    jobs = [job(0, size(8), 100), job(1, size(4), 50, managed=True)]
    driven = drive(simulator(jobs), jobs, None)
    assert (driven.decided, driven.unplaceable) == (0, 0)
    assert driven.outcomes["held_gpu_s"].tolist() == [800.0, 200.0]


def test_unmanaged_jobs_are_nobodys_business() -> None:
    jobs = [job(0, size(4), 100)]
    driven = drive(simulator(jobs), jobs, largest)
    assert driven.decided == 0
    assert driven.outcomes["held_gpu_s"][0] == 400.0


def test_an_answer_that_no_node_holds_leaves_the_job_alone() -> None:
    """One node of eight GPUs; the bounds were made for more nodes."""
    jobs = [job(0, size(4), 100, managed=True)]
    driven = drive(simulator(jobs, site(nodes=1)), jobs, largest)
    assert (driven.decided, driven.unplaceable) == (0, 1)
    assert driven.outcomes["held_gpu_s"][0] == 400.0


def test_a_policy_sees_the_job_and_the_cluster() -> None:
    seen: list[tuple[JobView, ClusterView]] = []

    def policy(one: JobView, view: ClusterView) -> Shares:
        seen.append((one, view))
        return as_requested(one, view)

    jobs = [job(0, size(8), 100, managed=True), job(10, size(8), 100, managed=True)]
    drive(simulator(jobs), jobs, policy)
    assert [view.time_s for _, view in seen] == [0.0, 10.0]
    assert [view.free[:, 0].sum() for _, view in seen] == [16.0, 8.0]
    assert [one.request for one, _ in seen] == [submitted.request for submitted in jobs]


def test_smallest_area_first_lets_a_short_job_pass() -> None:
    """While one job holds the only node, a long and then a short one come: in order of coming, or by GPU time."""
    there = with_urgency(site(nodes=1))
    jobs = [
        job(0, size(8, 60), 50, managed=True),
        job(1, size(8, 200_000), 90_000, managed=True),
        job(2, size(8, 60), 50, managed=True),
    ]
    in_turn = drive(simulator(jobs, there), jobs, as_requested).outcomes["start_s"]
    by_area = drive(simulator(jobs, there), jobs, Ordered(as_requested)).outcomes["start_s"]
    not_allowed = drive(simulator(jobs, site(nodes=1)), jobs, Ordered(as_requested)).outcomes["start_s"]
    assert in_turn.argsort().tolist() == not_allowed.argsort().tolist() == [0, 1, 2]
    assert by_area.argsort().tolist() == [0, 2, 1]


def test_a_users_own_nice_stays() -> None:
    jobs = [job(0, size(1, 60), 50, managed=True, nice=7)]
    for policy in (as_requested, Ordered(as_requested)):
        assert drive(simulator(jobs, with_urgency(site())), jobs, policy).outcomes["nice"][0] == 7


def test_a_job_that_is_not_urgent_gets_nice_on_top_of_its_users() -> None:
    jobs = [job(0, size(8, 10_000_000), 50, managed=True, nice=7)]
    there = with_urgency(site(), UrgencyRules(nice_band=40))
    assert drive(simulator(jobs, there), jobs, Ordered(as_requested)).outcomes["nice"][0] == 47


def test_progress_ends_at_all() -> None:
    parts: list[float] = []
    jobs = [job(0, size(8), 100, managed=True), job(500, size(8), 100, managed=True)]
    drive(simulator(jobs), jobs, as_requested, parts.append)
    assert parts == sorted(parts)
    assert parts[-1] == 1.0


@pytest.mark.parametrize("late_after_s", [None, 2.0])
def test_answers_known_before_a_run_are_those_of_each_question(late_after_s: float | None) -> None:
    """With ``before``, each question is asked when it comes."""
    there, jobs = training_workload(3, 120)
    there = with_urgency(there, UrgencyRules(nice_band=100))
    if late_after_s is not None:
        there = with_late_decisions(there, late_after_s)
    for policy in (as_requested, Ordered(repaired)):
        first, second = simulator(jobs, there), simulator(jobs, there)
        at_once, one_by_one = drive(first, jobs, policy), drive(second, jobs, policy, before=lambda _: None)
        assert first.digest() == second.digest()
        assert at_once.sizes.tolist() == one_by_one.sizes.tolist()
        assert (at_once.decided, at_once.unplaceable) == (one_by_one.decided, one_by_one.unplaceable)
        assert at_once.updates == one_by_one.updates
