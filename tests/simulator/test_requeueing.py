"""The reference that requeues running jobs: by its rule, in cases that can be followed by hand."""

import msgspec
import pytest

from rlalloc.heuristics import Heuristic, as_requested, fixed, smallest
from rlalloc.job import JobView
from rlalloc_simulator.driving import drive
from rlalloc_simulator.engine import SubmittedJob
from rlalloc_simulator.engine.engine_records import Records
from rlalloc_simulator.engine.policy_views import cluster_view
from rlalloc_simulator.requeueing import EVERY_S, ResizingSimulator, pays
from tests.simulator.engine.by_hand import job, simulator, site, size, states

LONG_S = 36_000.0


def long_job(submit_s: float = 0.0, gpus: int = 1, **changes: object) -> SubmittedJob:
    """Ten hours on ``gpus`` GPUs, 44% of its limit; it saves itself when it is told to stop."""
    plain = job(submit_s, size(gpus, round(LONG_S / 0.44)), LONG_S, managed=True, resumes=True, restart_cost_s=60.0)
    return msgspec.structs.replace(plain, **changes)


def run(while_running: Heuristic, jobs: list[SubmittedJob]) -> tuple[ResizingSimulator, Records]:
    """Jobs start as requested; once they run, ``while_running`` is asked."""
    made = ResizingSimulator(site(), jobs, while_running)
    return made, drive(made, jobs, as_requested).outcomes


@pytest.mark.parametrize(("submit_s", "moved_s"), [(0.0, EVERY_S), (1800.0, 2 * EVERY_S)])
def test_a_running_job_takes_gpus_that_are_idle_once_it_has_run_for_an_hour(submit_s: float, moved_s: float) -> None:
    """One GPU until the first full hour at which it has run for one; four for the rest."""
    made, outcomes = run(fixed(4), [long_job(submit_s)])
    assert states(made) == ["COMPLETED"]
    assert outcomes["restarts"].tolist() == [1]
    left_s = (LONG_S - (moved_s - float(outcomes["first_start_s"][0]))) / 4
    assert outcomes["finished_s"][0] == pytest.approx(moved_s + 120.0 + 60.0 + left_s, abs=61.0)


@pytest.mark.parametrize(
    ("one", "policy"),
    [
        (long_job(resumes=False), fixed(4)),
        (long_job(managed=False), fixed(4)),
        (long_job(), as_requested),
        (long_job(gpus=4), fixed(8)),
    ],
    ids=["no checkpoint", "not rlalloc's", "as it is", "eight GPUs are not worth their price, where it has four"],
)
def test_other_jobs_are_left_alone(one: SubmittedJob, policy: Heuristic) -> None:
    made, outcomes = run(policy, [one])
    assert outcomes["restarts"].tolist() == [0]
    assert states(made) == ["COMPLETED"]


def test_a_job_that_its_own_request_would_have_killed_is_not_submitted_again() -> None:
    """Its limit is too short in either size: killed with four GPUs, and that is its end."""
    made, outcomes = run(fixed(4), [long_job(work_s=20 * LONG_S)])
    assert states(made) == ["TIMEOUT"]
    assert outcomes["restarts"].tolist() == [1]
    limit_s = LONG_S / 0.44
    assert outcomes["finished_s"][0] == pytest.approx(EVERY_S + 120.0 + limit_s, abs=61.0)


def test_what_is_lost_since_the_last_checkpoint_counts() -> None:
    """On an idle cluster four GPUs instead of one are worth an hour's work, but not four times of what is left."""
    made = ResizingSimulator(site(), [long_job()], as_requested)
    made.leave(made.run())
    view = cluster_view(made, 0)
    one = JobView("train", size(1), long_job().bounds, 0.0, 0)
    assert pays(one, view, size(1), size(4), left_s=3600.0, lost_s=0.0, delay_s=180.0)
    assert not pays(one, view, size(1), size(4), left_s=3600.0, lost_s=3600.0, delay_s=180.0)
    assert not pays(one, view, size(1), size(4), left_s=300.0, lost_s=0.0, delay_s=180.0)


def test_without_a_reason_it_is_the_plain_simulator() -> None:
    jobs = [long_job(100.0 * number, resumes=False) for number in range(6)]
    made, _ = run(fixed(4), jobs)
    plain = simulator(jobs)
    drive(plain, jobs, as_requested)
    assert made.digest() == plain.digest()


def test_a_job_gives_back_gpus_that_others_wait_for() -> None:
    """All 16 GPUs held by one job of ten hours while six jobs wait: with one GPU left to it, the others start."""
    first = msgspec.structs.replace(long_job(), request=size(8, round(LONG_S / 0.44), nodes=2), work_s=16 * LONG_S)
    others = [long_job(200.0 + number, gpus=4) for number in range(6)]
    _, outcomes = run(smallest, [first, *others])
    assert outcomes["restarts"][0] == 1
    assert (outcomes["first_start_s"][1:] < 3 * EVERY_S).sum() >= 3
