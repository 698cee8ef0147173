"""Late decisions in the engine, in cases that can be followed by hand: nodes of 8 GPUs, jobs that scale linearly."""

import pytest

from rlalloc.heuristics import as_requested, largest, smallest
from rlalloc.job import JobView, Shares
from rlalloc.late_decisions import LateRules
from rlalloc.view import ClusterView
from rlalloc_simulator.comparison.compared_policy import HeuristicPolicy
from rlalloc_simulator.comparison.runner import RunSettings, run_policy
from rlalloc_simulator.driving import drive
from rlalloc_simulator.engine import SimulatedSite
from rlalloc_simulator.site_from_workload import with_late_decisions
from rlalloc_simulator.training_workloads import training_workload
from tests.simulator.engine.by_hand import job, simulator, site, size

ANY_GAIN = LateRules(min_gain=-100.0)


def late(after_s: float = 0.0, rules: LateRules = ANY_GAIN, there: SimulatedSite | None = None) -> SimulatedSite:
    return with_late_decisions(there or site(1), after_s, rules)


def quarter(_job: JobView, _view: ClusterView) -> Shares:
    """Two of the 16 GPUs that jobs here may get at most."""
    return Shares(0.25, 1.0, 1.0)


def test_a_job_that_has_to_wait_keeps_its_gpus_and_is_decided_when_it_could_start() -> None:
    """Six of eight GPUs are held until 1000 s, two until 300 s: then the waiting job gets these two."""
    jobs = [job(0, size(6, 2000), 1000), job(1, size(2, 600), 299), job(2, size(8, 600), 100, managed=True)]
    made = simulator(jobs, late())
    driven = drive(made, jobs, quarter)
    assert driven.outcomes["start_s"].tolist() == [0, 1, 300]
    assert driven.outcomes["held_gpu_s"][2] == pytest.approx(2 * 400)
    assert driven.updates == 1


def test_a_job_that_can_start_when_it_comes_gets_its_size_at_once() -> None:
    jobs = [job(0, size(8), 100, managed=True)]
    driven = drive(simulator(jobs, late()), jobs, quarter)
    assert (driven.outcomes["start_s"][0], driven.updates) == (0, 1)
    assert driven.outcomes["held_gpu_s"][0] == pytest.approx(2 * 400)


@pytest.mark.parametrize("changes", [{"dependencies": (("afterok", 0),)}, {"begin_s": 100.0}])
def test_who_waits_for_another_job_or_its_begin_time_does_not_grow_on_what_is_free_now(
    changes: dict[str, object],
) -> None:
    jobs = [job(0, size(1), 100), job(0, size(2), 100, managed=True, **changes)]
    driven = drive(simulator(jobs, late(after_s=1.0)), jobs, lambda _job, _view: Shares(0.5, 1.0, 1.0))
    assert driven.outcomes["end_s"][1] == 200.0  # with four GPUs, it would have ended at 150 s


def test_newcomers_share_what_is_free() -> None:
    """Each answer fits alone; the second of two that come together has to wait, with what it asked for."""
    jobs = [job(0, size(4), 100, managed=True), job(0, size(4), 100, managed=True)]
    made = simulator(jobs, late())
    driven = drive(made, jobs, lambda _job, _view: Shares(0.75, 1.0, 1.0))
    assert driven.outcomes["start_s"].tolist() == pytest.approx([0, 50])
    assert driven.updates == 2


def test_slurm_starts_what_fits_before_the_daemon_has_seen_that_resources_were_freed() -> None:
    """It starts as requested: a job never waits for a late decision."""
    jobs = [job(0, size(8), 100), job(1, size(8), 100, managed=True)]
    driven = drive(simulator(jobs, late(after_s=1.0)), jobs, smallest)
    assert driven.outcomes["start_s"].tolist() == [0, 100]
    assert (driven.outcomes["held_gpu_s"][1], driven.updates) == (800.0, 0)


def test_a_waiting_job_is_updated_so_many_times() -> None:
    """Only the first two of the ends that free GPUs bring another size; neither starts, for a long job is ahead."""
    ends = [job(0, size(1, 100_000), run_s) for run_s in (100, 200, 300, 400, 90_000)]
    jobs = [*ends, job(1, size(8), 100, managed=True)]
    for most, updates in ((0, 0), (1, 1)):
        there = late(rules=LateRules(min_gain=-100.0, max_updates=most))
        assert drive(simulator(jobs, there), jobs, largest).updates <= updates


def test_with_the_request_as_answer_nothing_changes() -> None:
    workload = training_workload(3, 120)
    plain = run_policy(HeuristicPolicy("as-requested"), workload)
    assert run_policy(HeuristicPolicy("as-requested"), workload, RunSettings(late_after_s=2.0)) == plain


def test_late_decisions_are_deterministic_and_move_jobs() -> None:
    workload = training_workload(3, 120)
    first, again = (
        run_policy(HeuristicPolicy("price-ef"), workload, RunSettings(late_after_s=2.0)) for _ in range(2)
    )
    assert first == again
    assert first.updates > 0
    assert first != run_policy(HeuristicPolicy("price-ef"), workload)


def test_without_a_policy_jobs_run_as_submitted() -> None:
    jobs = [job(0, size(8), 100), job(1, size(8), 100, managed=True)]
    driven = drive(simulator(jobs, late()), jobs, None)
    assert driven.outcomes["start_s"].tolist() == [0, 100]
    assert drive(simulator(jobs, late()), jobs, as_requested).outcomes["start_s"].tolist() == [0, 100]
