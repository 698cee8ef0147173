"""How well run times are predicted, strictly in time order: only jobs that had ended at a submission are known."""

import math
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from rlalloc.errors import HistoryError
from rlalloc.past_job import PastJob
from rlalloc.progress import ProgressCallback, part_of
from rlalloc.rank_correlation import rank_correlation
from rlalloc.run_time import RunTimeEstimate, expected_remaining_s, remaining_quantiles_s
from rlalloc.run_times.baselines import BASELINES, MIX, SimplePredictors
from rlalloc.run_times.predictor import within_limit
from rlalloc.run_times.recent_runs import RecentRuns
from rlalloc.run_times.replay import submissions
from rlalloc.run_times.training import LearningSettings, Rolling, RunTimes, predict_in_time_order

PREDICTOR: Final = "predictor"
BLOCKS: Final = 24
"""So often are models learned anew in an evaluation; a site learns every night."""

LEAST_JOBS: Final = 200
MOMENTS: Final = 1000
MOST_QUESTIONS: Final = 100_000
"""About running jobs, over all moments: on a site that runs many at a time, there are fewer moments."""
LIMIT_ALONE: Final = "limit alone"


class Figures(msgspec.Struct, frozen=True):
    """How well run times were predicted.

    ``log2_error`` is the mean absolute difference of log2 of seconds (1: a factor of two), a run of under a second
    counting as one second. ``rank_correlation`` is Spearman's. ``coverage`` is the part of the jobs inside the 80 %
    interval, None for a predictor that gives none.
    """

    log2_error: float
    rank_correlation: float
    coverage: float | None = None


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of each predictor on ``jobs`` jobs, those after the first ``skipped``.

    ``remaining`` has the figures of how long running jobs went on: at each of MOMENTS, evenly spaced over the time in
    which those jobs ran, each of them that ran. So a job counts as often as a scheduler sees it run.
    """

    skipped: int
    jobs: int
    predictors: dict[str, Figures]
    running: int
    remaining: dict[str, Figures]

    @property
    def best_baseline(self) -> float:
        """The least mean error of BASELINES, log2 of seconds."""
        return min(self.predictors[name].log2_error for name in BASELINES)

    @property
    def error_ratio(self) -> float:
        """The predictor's mean error over that of the best baseline; infinite where a baseline is never wrong."""
        best = self.best_baseline
        return self.predictors[PREDICTOR].log2_error / best if best > 0.0 else math.inf

    @property
    def beats_baselines(self) -> bool:
        """Whether the predictor's error is below, and its rank correlation not below, those of all baselines."""
        best = max(self.predictors[name].rank_correlation for name in BASELINES)
        return self.error_ratio < 1.0 and self.predictors[PREDICTOR].rank_correlation >= best


def evaluate(
    jobs: Sequence[PastJob], settings: LearningSettings, report: ProgressCallback, blocks: int = BLOCKS
) -> Evaluation:
    """Predict all jobs but the first fifth, which are in the order of their submission.

    Raises HistoryError where there are fewer than LEAST_JOBS, and PolicyError where LightGBM is missing.
    """
    if len(jobs) < LEAST_JOBS:
        raise HistoryError(f"found {len(jobs)} jobs that ran: give at least {LEAST_JOBS} to learn from")
    first = len(jobs) // 5
    runs = RunTimes.of(jobs, RecentRuns(), part_of(report, 0.0, 0.15))
    rolling = predict_in_time_order(runs, first, blocks, settings, part_of(report, 0.15, 1.0))
    return compared(jobs, runs, rolling)


def compared(jobs: Sequence[PastJob], runs: RunTimes, rolling: Rolling) -> Evaluation:
    """Return the figures of ``rolling`` and of the baselines on the same jobs."""
    first = rolling.first
    actual = runs.log_runs[first:]
    simple = simple_predictions(jobs)[first:]
    quantiles = rolling.quantiles
    inside = (actual >= quantiles[:, 0]) & (actual <= quantiles[:, 2])
    figures = {name: figures_of(simple[:, column], actual) for column, name in enumerate((*BASELINES, MIX))}
    figures[PREDICTOR] = figures_of(quantiles[:, 1], actual, float(inside.mean()))
    running, remaining = remaining_figures(jobs[first:], quantiles, rolling.remaining_parts)
    return Evaluation(skipped=first, jobs=len(actual), predictors=figures, running=running, remaining=remaining)


def remaining_figures(
    jobs: Sequence[PastJob], quantiles: NDArray[np.float64], parts: NDArray[np.float64]
) -> tuple[int, dict[str, Figures]]:
    """Return at how many moments a job ran, and how well it was predicted then how long it goes on.

    ``quantiles`` are those of log2 of the run time [s] at the submission of each job, a row a job.
    ``parts`` are the quantiles of what remains between which the 80 % interval lies, likewise.
    """
    started_s, ended_s = (np.array([getattr(job, name) for job in jobs]) for name in ("started_s", "ended_s"))
    seconds = np.exp2(np.clip(quantiles, 0.0, 40.0)).tolist()
    estimates = [
        within_limit(RunTimeEstimate(low_s, median_s, high_s, PREDICTOR, (low, high)), job)
        for job, (low_s, median_s, high_s), (low, high) in zip(jobs, seconds, parts.tolist(), strict=True)
    ]
    limits_s = [job.limit or 0.0 for job in jobs]
    predicted_s, actual_s = [], []
    span_s = max(ended_s.max() - started_s.min(), 1.0)
    running_on_average = max((ended_s - started_s).sum() / span_s, 1.0)
    moments = max(1, min(MOMENTS, round(MOST_QUESTIONS / running_on_average)))
    for now_s in np.linspace(started_s.min(), ended_s.max(), moments + 2)[1:-1].tolist():
        for number in np.flatnonzero((started_s <= now_s) & (now_s < ended_s)).tolist():
            limit_s, elapsed_s = limits_s[number], now_s - jobs[number].started_s
            by_limit_s = expected_remaining_s(limit_s, elapsed_s, math.nan, math.nan, math.nan)
            predicted_s.append((by_limit_s, *remaining_quantiles_s(limit_s, elapsed_s, estimates[number])))
            actual_s.append(jobs[number].ended_s - now_s)
    if not actual_s:
        return 0, {}
    actual = np.log2(np.maximum(actual_s, 1.0))
    by_limit, low, median, high = np.log2(np.maximum(predicted_s, 1.0)).T
    inside = float(((actual >= low) & (actual <= high)).mean())
    return len(actual), {
        LIMIT_ALONE: figures_of(by_limit, actual),
        PREDICTOR: figures_of(median, actual, inside),
    }


def simple_predictions(jobs: Sequence[PastJob]) -> NDArray[np.float64]:
    """Return what BASELINES and MIX say of each job at its submission, log2 of seconds; a row a job."""
    simple = SimplePredictors()
    rows = np.empty((len(jobs), len(BASELINES) + 1))
    for number, facts in submissions(jobs, simple.add):
        rows[number] = simple.predict(facts)
    return rows


def figures_of(predicted: NDArray[np.float64], actual: NDArray[np.float64], coverage: float | None = None) -> Figures:
    """Return the figures of predictions of at least one job, log2 of seconds."""
    return Figures(float(np.abs(predicted - actual).mean()), rank_correlation(predicted, actual) or 0.0, coverage)
