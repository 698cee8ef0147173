"""The nightly training of run times: from the site's past jobs, kept only where it beats simple rules."""

import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from rlalloc.past_job import PastJob, in_order_of_submission
from rlalloc.progress import ProgressCallback, part_of
from rlalloc.run_times.evaluation import BLOCKS, PREDICTOR, Evaluation, compared
from rlalloc.run_times.model_files import RunTimeManifest, save_model
from rlalloc.run_times.recent_runs import RecentRuns
from rlalloc.run_times.run_time_model import Offsets, RunTimeModel
from rlalloc.run_times.training import LearningSettings, RunTimes, learn, predict_in_time_order

LEAST_PAST_JOBS: Final = 1000
JUDGED_PART: Final = 1 / 3
"""The last part of the past jobs is predicted in strict time order, and judges the model."""


class LearnedRunTimes(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a night: the folder of a new model, or why there is none."""

    reason: str
    jobs: int
    folder: str | None = None
    evaluation: Evaluation | None = None


def learn_run_times(
    past_jobs: Iterable[PastJob], directory: Path, report: ProgressCallback, settings: LearningSettings
) -> LearnedRunTimes:
    """Learn from the last jobs; store the model in ``directory`` if it is better than the baselines.

    Raises PolicyError where LightGBM is missing or the model cannot be stored.
    """
    jobs = in_order_of_submission(deque(past_jobs, maxlen=settings.most_jobs))
    if len(jobs) < LEAST_PAST_JOBS:
        return LearnedRunTimes(
            reason=f"run times: {len(jobs):,} past jobs, {LEAST_PAST_JOBS:,} are needed: run "
            "`rlalloc history import`. Until then, estimates come from similar past jobs",
            jobs=len(jobs),
        )
    runs = RunTimes.of(jobs, RecentRuns(), part_of(report, 0.0, 0.2))
    first = round(len(jobs) * (1 - JUDGED_PART))
    rolling = predict_in_time_order(runs, first, BLOCKS // 3, settings, part_of(report, 0.2, 0.9))
    evaluation = compared(jobs, runs, rolling)
    figures = evaluation.predictors[PREDICTOR]
    in_words = (
        f"mean |log2 error| {figures.log2_error:.2f}, {evaluation.error_ratio:.2f} of the best baseline's, "
        f"on the last {evaluation.jobs:,} past jobs"
    )
    if not evaluation.beats_baselines:
        return LearnedRunTimes(
            reason=f"run times: no new model, the simple rules are as good ({in_words})",
            jobs=len(jobs),
            evaluation=evaluation,
        )
    until_s = float(runs.ended_s.max())
    model = RunTimeModel(learn(runs, np.arange(len(jobs)), until_s, settings), rolling.offsets)
    folder = save_model(
        directory,
        model,
        RunTimeManifest(
            created_s=time.time(),
            jobs=len(jobs),
            until_s=until_s,
            inputs=(),
            offsets=Offsets(),
            files={},
            evaluation=msgspec.to_builtins(evaluation),
        ),
    )
    return LearnedRunTimes(
        reason=f"run times: stored {folder.name} ({in_words})",
        jobs=len(jobs),
        folder=str(folder),
        evaluation=evaluation,
    )
