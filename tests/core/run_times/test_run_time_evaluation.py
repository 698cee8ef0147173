"""The predictor in strict time order: nothing of the future is known, and the interval holds what it says."""

import msgspec
import numpy as np
import pytest

from rlalloc.past_job import PastJob, in_order_of_submission
from rlalloc.run_time import REMAINING_PARTS
from rlalloc.run_times.baselines import SimplePredictors
from rlalloc.run_times.evaluation import (
    LIMIT_ALONE,
    MOST_QUESTIONS,
    PREDICTOR,
    evaluate,
    figures_of,
    remaining_figures,
    simple_predictions,
)
from rlalloc.run_times.recent_runs import FEATURES, RecentRuns
from rlalloc.run_times.replay import submissions
from rlalloc.run_times.run_time_model import Misses, calibrated, conformal_offsets
from rlalloc.run_times.training import LearningSettings, RunTimes, predict_in_time_order
from tests.core.run_times.synthetic_site import synthetic_jobs

pytest.importorskip("lightgbm")
QUICK = LearningSettings(trees=30)


def silent(_what: str, _done: float) -> None:
    pass


def predicted(jobs: list[PastJob]) -> np.ndarray:
    """Quantiles of the run time, and between which ones the interval of what remains lies."""
    runs = RunTimes.of(jobs, RecentRuns(), silent)
    rolling = predict_in_time_order(runs, len(jobs) // 5, 4, QUICK, silent)
    return np.concatenate([rolling.quantiles, rolling.remaining_parts], axis=1)


def test_what_happens_later_changes_no_prediction() -> None:
    """The run times of all jobs that had not ended at a moment are changed; predictions up to then stay the same."""
    jobs = synthetic_jobs(600)
    moment_s = jobs[400].submitted_s

    def changed(job: PastJob) -> PastJob:
        if job.ended_s <= moment_s:
            return job
        # The end stays behind the moment: what runs then is known to run.
        return msgspec.structs.replace(job, ended_s=max(moment_s, job.started_s) + 50_000.0, state="FAILED")

    other = [changed(job) for job in jobs]
    assert sum(ours != theirs for ours, theirs in zip(jobs, other, strict=True)) > 150
    known = 400 - len(jobs) // 5 + 1
    before, after = predicted(jobs), predicted(other)
    np.testing.assert_array_equal(before[:known], after[:known])
    assert not np.array_equal(before[known:], after[known:])
    simple_before, simple_after = simple_predictions(jobs), simple_predictions(other)
    np.testing.assert_array_equal(simple_before[:401], simple_after[:401])


def test_at_a_submission_exactly_the_jobs_that_ended_are_known() -> None:
    jobs = synthetic_jobs(200)
    ended: list[PastJob] = []
    for number, facts in submissions(jobs, ended.append):
        assert facts == jobs[number]
        assert {job.job_id for job in ended} == {
            job.job_id for job in jobs[:number] if job.ended_s <= facts.submitted_s
        }
        assert [job.ended_s for job in ended] == sorted(job.ended_s for job in ended)


def test_jobs_that_run_are_known_to_run() -> None:
    jobs = synthetic_jobs(200)
    recent = RecentRuns()
    column = FEATURES.index("running")
    for number, facts in submissions(jobs, recent.add, recent.started):
        running = [
            job
            for job in jobs[:number]
            if job.user == facts.user and job.started_s <= facts.submitted_s < job.ended_s
        ]
        assert recent.features([facts], facts.submitted_s)[0, column] == len(running)


def test_the_predictor_learns_and_its_interval_holds() -> None:
    result = evaluate(synthetic_jobs(4000), QUICK, silent, blocks=6)
    figures = result.predictors[PREDICTOR]
    assert (result.skipped, result.jobs) == (800, 3200)
    assert result.beats_baselines
    assert figures.coverage is not None
    assert 0.75 <= figures.coverage <= 0.85
    running = result.remaining[PREDICTOR]
    assert running.coverage is not None
    assert 0.75 <= running.coverage <= 0.85
    assert running.log2_error < result.remaining[LIMIT_ALONE].log2_error


def test_of_a_known_distribution_the_remaining_times_hold_what_they_say() -> None:
    """All jobs run log-logistic times about 1,000 s, and that is told of each; they start at any time."""
    random = np.random.default_rng(3)
    log_odds = np.log(1.0 / random.uniform(0.001, 0.999, 6000) - 1.0)
    jobs = [
        msgspec.structs.replace(job, started_s=job.submitted_s, ended_s=job.submitted_s + run_s, limit_s=None)
        for job, run_s in zip(synthetic_jobs(6000), 1000.0 * np.exp(0.5 * log_odds), strict=True)
    ]
    spread = 0.5 * np.log2(9.0)
    quantiles = np.tile([-spread, 0.0, spread], (6000, 1)) + np.log2(1000.0)
    running, figures = remaining_figures(jobs, quantiles, np.tile(REMAINING_PARTS, (6000, 1)))
    assert running > 1000
    assert figures[PREDICTOR].coverage == pytest.approx(0.8, abs=0.04)
    assert remaining_figures([jobs[0]], np.full((1, 3), 9.0), np.array([REMAINING_PARTS]))[0] > 0


def test_where_many_jobs_run_at_a_time_fewer_moments_are_asked_about() -> None:
    jobs = [msgspec.structs.replace(job, started_s=0.0, ended_s=1000.0) for job in synthetic_jobs(3000)]
    running, _ = remaining_figures(jobs, np.full((3000, 3), 9.0), np.tile(REMAINING_PARTS, (3000, 1)))
    assert MOST_QUESTIONS / 2 < running <= MOST_QUESTIONS


def test_the_interval_holds_where_the_boosters_are_wrong() -> None:
    random = np.random.default_rng(1)
    log_runs = random.normal(8.0, 2.0, 4000)
    offsets = conformal_offsets(np.tile([8.0, 8.0, 8.1], (2000, 1)), log_runs[:2000])
    inside = (log_runs[2000:] >= 8.0 + offsets.low) & (log_runs[2000:] <= 8.1 + offsets.high)
    assert 0.77 <= inside.mean() <= 0.83


def test_where_run_times_drift_the_interval_still_holds() -> None:
    """Run times spread ever wider: what held 80 % of the last jobs holds fewer of the next ones."""
    spread = np.geomspace(1.0, 30.0, 1500)
    log_runs = 8.0 + spread * np.random.default_rng(2).normal(size=1500)
    raw = np.tile([7.0, 8.0, 9.0], (1500, 1))

    def part_inside(rate: float) -> float:
        misses, inside = Misses(rate), []
        for number in range(50, 1500):
            past = slice(max(0, number - 1000), number)
            (quantiles,) = calibrated(raw[:1], conformal_offsets(raw[past], log_runs[past], misses))
            inside.append(quantiles[0] <= log_runs[number] <= quantiles[2])
            misses.add(quantiles, float(log_runs[number]))
        return float(np.mean(inside))

    assert part_inside(0.0) < 0.7
    assert part_inside(0.01) == pytest.approx(0.8, abs=0.03)


def test_calibration_narrows_an_interval_that_is_too_wide() -> None:
    log_runs = np.random.default_rng(1).normal(8.0, 1.0, 1000)
    offsets = conformal_offsets(np.tile([0.0, 8.0, 20.0], (1000, 1)), log_runs)
    assert offsets.low == pytest.approx(8.0 - 1.28, abs=0.2)
    assert offsets.high == pytest.approx(8.0 + 1.28 - 20.0, abs=0.2)


def test_the_same_jobs_give_the_same_predictions() -> None:
    jobs = synthetic_jobs(300)
    np.testing.assert_array_equal(predicted(jobs), predicted(jobs))


def test_simple_predictors() -> None:
    first, second, third = synthetic_jobs(3)
    jobs = [
        msgspec.structs.replace(
            job,
            user="ann",
            cpus=8,
            gpus=0,
            limit_s=limit_s,
            started_s=job.submitted_s,
            ended_s=job.submitted_s + run_s,
        )
        for job, limit_s, run_s in ((first, 1000.0, 200.0), (second, 1000.0, 600.0), (third, 2000.0, 500.0))
    ]
    simple = SimplePredictors()
    for job in jobs:
        simple.add(job)
    seconds = np.exp2(simple.predict(jobs[0]))
    # Uses are .2, .25, .6; the last two took 600 and 500 s; those with the limit of 1000 s took 200 and 600 s.
    np.testing.assert_allclose(seconds, [250.0, 550.0, 400.0, (250.0 * 400.0 * 500.0) ** (1 / 3)])
    np.testing.assert_allclose(np.exp2(simple.predict(second)), [3600.0 * 4 * 0.25] * 4)


def test_figures() -> None:
    exact = figures_of(np.array([1.0, 2.0, 3.0]), np.array([2.0, 3.0, 5.0]))
    assert exact.log2_error == pytest.approx(4 / 3)
    assert exact.rank_correlation == pytest.approx(1.0)
    assert figures_of(np.zeros(3), np.array([2.0, 3.0, 5.0])).rank_correlation == 0.0


def test_jobs_that_never_ran_are_left_out() -> None:
    job = synthetic_jobs(1)[0]
    never = msgspec.structs.replace(job, ended_s=job.started_s - 1.0)
    early = msgspec.structs.replace(job, submitted_s=1.0)
    assert in_order_of_submission([job, never, early]) == [early, job]
