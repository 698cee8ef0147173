"""How well run times are predicted, strictly in time order: only jobs that had ended at a submission are known."""

import math
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from rlalloc.errors import HistoryError
from rlalloc.past_job import PastJob
from rlalloc.run_times.baselines import BASELINES, MIX, SimplePredictors
from rlalloc.run_times.recent_runs import RecentRuns
from rlalloc.run_times.replay import Report, submissions
from rlalloc.run_times.training import LearningSettings, Rolling, RunTimes, predict_in_time_order

PREDICTOR: Final = "predictor"
BLOCKS: Final = 24
"""So often are models learned anew in an evaluation; a site learns every night."""


LEAST_JOBS: Final = 200


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
    """Figures of each predictor on ``jobs`` jobs, those after the first ``skipped``."""

    skipped: int
    jobs: int
    predictors: dict[str, Figures]

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


def evaluate(jobs: Sequence[PastJob], settings: LearningSettings, report: Report, blocks: int = BLOCKS) -> Evaluation:
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
    return Evaluation(skipped=first, jobs=len(actual), predictors=figures)


def simple_predictions(jobs: Sequence[PastJob]) -> NDArray[np.float64]:
    """Return what BASELINES and MIX say of each job at its submission, log2 of seconds; a row a job."""
    simple = SimplePredictors()
    rows = np.empty((len(jobs), len(BASELINES) + 1))
    for number, facts in submissions(jobs, simple.add):
        rows[number] = simple.predict(facts)
    return rows


def figures_of(predicted: NDArray[np.float64], actual: NDArray[np.float64], coverage: float | None = None) -> Figures:
    """Return the figures of predictions of at least one job, log2 of seconds."""
    from scipy.stats import rankdata

    ranks = np.stack([rankdata(predicted), rankdata(actual)])
    spread = ranks.std(axis=1)
    correlation = 0.0 if not spread.all() else float(np.corrcoef(ranks)[0, 1])
    return Figures(float(np.abs(predicted - actual).mean()), correlation, coverage)


def part_of(report: Report, begin: float, end: float) -> Report:
    """Return a callback for a part of the work: its progress 0 to 1 becomes ``begin`` to ``end`` of the whole."""
    return lambda what, done: report(what, begin + (end - begin) * done)
