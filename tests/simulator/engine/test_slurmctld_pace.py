"""What is fixed inside slurmctld, and what launching takes: cases that can be computed by hand."""

from rlalloc_simulator.engine import NodeOverhead, SchedulerParameters
from tests.simulator.engine.by_hand import job, simulator, site, size, starts, states


def test_backfill_comes_an_interval_after_its_last_cycle_and_at_once_if_that_was_long_ago() -> None:
    jobs = [
        job(0, size(4, 1000), 1000),
        job(100, size(8, 1000), 1000),
        job(101, size(1, 100), 50),
        job(215, size(1, 100), 50),
    ]
    # The third one's end wakes backfill at 180 s; by 215 s that is more than 30 s ago.
    assert starts(jobs, site(1)) == [0, 1000, 130, 215]


def test_a_reservation_starts_at_the_last_end_of_its_window() -> None:
    """The waiting job fits at 600 s; its window, 630 to 660 s, also has the end at 640 s: a job can pass it."""
    jobs = [
        job(0, size(4, 600), 600),
        job(0, size(3, 640), 640),
        job(1, size(5, 600), 600),
        job(5, size(1, 590), 590),
    ]
    exact = site(1, scheduler=SchedulerParameters(bf_resolution=1.0))
    assert starts(jobs, exact) == [0, 0, 600, 640]
    as_slurm = site(1, scheduler=SchedulerParameters(bf_resolution=1.0, prediction_window=30.0))
    assert starts(jobs, as_slurm) == [0, 0, 620, 30]


def test_windows_double() -> None:
    """From the first end, at 60 s, they reach to 120, 150, 210 s: 155 s goes with 200 s."""
    jobs = [
        job(0, size(2, 60), 60),
        job(0, size(2, 155), 155),
        job(0, size(2, 200), 200),
        job(1, size(6, 600), 600),
        job(5, size(2, 165), 165),
    ]
    exact = site(1, scheduler=SchedulerParameters(bf_resolution=1.0))
    assert starts(jobs, exact) == [0, 0, 0, 155, 200]
    as_slurm = site(1, scheduler=SchedulerParameters(bf_resolution=1.0, prediction_window=30.0))
    assert starts(jobs, as_slurm) == [0, 0, 0, 195, 30]


def test_a_time_limit_ends_a_job_when_slurmctld_looks() -> None:
    made = simulator([job(5, size(8, 60), 600)], site(1, scheduler=SchedulerParameters(time_limit_interval=30.0)))
    made.run()
    assert states(made) == ["TIMEOUT"]
    assert made.outcomes()["finished_s"].tolist() == [90]


def test_the_main_scheduler_runs_on_whole_seconds_and_not_twice_within_its_delay() -> None:
    jobs = [job(0.4, size(1)), job(1.2, size(1)), job(9.5, size(1))]
    there = site(1, scheduler=SchedulerParameters(backfill=False, batch_sched_delay=3.0))
    assert starts(jobs, there) == [1, 4, 10]


def test_launching_is_part_of_the_run_and_no_work() -> None:
    made = simulator([job(0, size(8), 100)], site(1, overhead=NodeOverhead(launch=2.0)))
    made.run()
    assert made.outcomes()["finished_s"].tolist() == [102]
    assert made.outcomes()["useful_work_s"].tolist() == [800]
