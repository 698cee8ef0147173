"""Learns a model of run times, and predicts a site's past in strict time order, as nightly trainings would have."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from rlalloc.errors import PolicyError
from rlalloc.past_job import PastJob
from rlalloc.progress import ProgressCallback
from rlalloc.run_time import PAST_THE_LIMIT_S
from rlalloc.run_times.bursts import burst_weights
from rlalloc.run_times.expert_mix import ExpertMix, Groups, answers_of
from rlalloc.run_times.recent_runs import FEATURES, RecentRuns, user_and_alike
from rlalloc.run_times.relative_times import RELATIVE_FEATURES, relative_to_expected
from rlalloc.run_times.remaining_parts import remaining_parts
from rlalloc.run_times.replay import features_at_submission
from rlalloc.run_times.run_time_model import (
    NAMES,
    QUANTILES,
    RELATIVE,
    Misses,
    Offsets,
    RunTimeModel,
    calibrated,
    conformal_offsets,
    require_lightgbm,
)

if TYPE_CHECKING:
    import lightgbm

_LEAST_ROWS: Final = 20
_LIMIT: Final = FEATURES.index("limit")
DAY_S: Final = 86400.0


class LearningSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How trees learn; the same for every site (docs/explanation/run-times.md says how they were chosen).

    A past job counts half after ``half_life_days``. At most the last ``most_jobs`` are learned from. The interval is
    calibrated on the last ``calibration_jobs`` that a model predicted before they ended; in an evaluation
    ``calibrations`` times between two trainings. The interval of what remains is calibrated on so many jobs and on
    ``remaining_jobs``; each of its ends is the wider one of the two. ``adaptation`` is how fast an interval that
    misses too many or too few jobs widens or narrows.
    """

    trees: int = 150
    learning_rate: float = 0.1
    leaves: int = 8
    least_jobs_in_leaf: int = 60
    bins: int = 63
    part_of_features: float = 0.5
    part_of_jobs: float = 0.8
    half_life_days: float = 200.0
    most_jobs: int = 50_000
    calibration_jobs: int = 1_000
    remaining_jobs: int = 10_000
    calibrations: int = 10
    adaptation: float = 0.01
    seed: int = 0


class RunTimes(msgspec.Struct, frozen=True):
    """Past jobs, in the order of their submission, as a model reads them: row i of each is job i.

    ``features`` are those at submission; ``log_runs`` is log2 of the run time [s]; times in seconds.
    """

    features: NDArray[np.float32]
    groups: Sequence[Groups]
    log_runs: NDArray[np.float64]
    submitted_s: NDArray[np.float64]
    ended_s: NDArray[np.float64]

    @classmethod
    def of(cls, jobs: Sequence[PastJob], recent: RecentRuns, report: ProgressCallback) -> "RunTimes":
        """Replay jobs, in the order of their submission; ``recent`` is what was known before them."""
        return cls(
            features=features_at_submission(jobs, recent, report),
            groups=[user_and_alike(job) for job in jobs],
            log_runs=np.log2(np.maximum([job.run_s_as_requested for job in jobs], 1.0)),
            submitted_s=np.array([job.submitted_s for job in jobs]),
            ended_s=np.array([job.ended_s for job in jobs]),
        )

    def ended_before(self, number: int) -> NDArray[np.int64]:
        """Return the numbers of the jobs that had ended when job ``number`` was submitted, of those before it."""
        return np.flatnonzero(self.ended_s[:number] <= self.submitted_s[number])


def learn(
    runs: RunTimes, numbers: NDArray[np.int64], now_s: float, settings: LearningSettings
) -> dict[str, "lightgbm.Booster"]:
    """Return a booster for each of NAMES and for RELATIVE, learned from those jobs, which ended by ``now_s`` [s].

    Raises PolicyError where LightGBM is missing, or hardly a job had ended (a large array can be all there is).
    """
    require_lightgbm()
    import lightgbm

    numbers = numbers[-settings.most_jobs :]
    weights = 0.5 ** ((now_s - runs.ended_s[numbers]) / (settings.half_life_days * DAY_S))
    parameters = {
        "learning_rate": settings.learning_rate,
        "num_leaves": settings.leaves,
        "min_data_in_leaf": settings.least_jobs_in_leaf,
        "max_bin": settings.bins,
        "feature_fraction": settings.part_of_features,
        "bagging_fraction": settings.part_of_jobs,
        "bagging_freq": 1,
        "seed": settings.seed,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1,
        "verbosity": -1,
        "objective": "quantile",
    }
    if len(numbers) < _LEAST_ROWS:
        raise PolicyError(f"only {len(numbers)} jobs had ended when later ones were submitted: too few to learn from")
    features, log_runs = runs.features[numbers], runs.log_runs[numbers]
    data = lightgbm.Dataset(features, log_runs, weight=weights, feature_name=list(FEATURES), params=parameters)
    boosters = {
        name: lightgbm.train({**parameters, "alpha": quantile}, data, num_boost_round=settings.trees)
        for name, quantile in zip(NAMES, QUANTILES, strict=True)
    }
    relative, expected = relative_to_expected(features)
    of_bursts = burst_weights([runs.groups[number][1] for number in numbers], runs.submitted_s[numbers].tolist())
    names = list(RELATIVE_FEATURES)
    data = lightgbm.Dataset(
        relative, log_runs - expected, weight=weights * of_bursts, feature_name=names, params=parameters
    )
    boosters[RELATIVE] = lightgbm.train({**parameters, "alpha": 0.5}, data, num_boost_round=settings.trees)
    return boosters


class Rolling(msgspec.Struct, frozen=True):
    """Predictions of jobs ``first`` to the last, each by a model of jobs that had ended: a row a job.

    ``quantiles`` are calibrated QUANTILES of log2 of seconds. Between the quantiles ``remaining_parts`` lies the 80 %
    interval of what remains while the job runs. ``offsets`` are for jobs that come afterwards.
    """

    first: int
    quantiles: NDArray[np.float64]
    remaining_parts: NDArray[np.float64]
    offsets: Offsets


def predict_in_time_order(
    runs: RunTimes, first: int, blocks: int, settings: LearningSettings, report: ProgressCallback
) -> Rolling:
    """Predict jobs from number ``first`` on; before each of ``blocks``, models are learned anew.

    They are calibrated ``settings.calibrations`` times a block, as a site learns and calibrates more often than that.

    The first block is calibrated on the last fifth of the jobs before it, which a model of the others predicts.
    """
    edges = np.unique(np.linspace(first, len(runs.log_runs), blocks + 1).astype(int))
    begin = int(first * 0.8)
    raw = np.full((len(runs.log_runs), len(QUANTILES)), np.nan)
    parts: list[NDArray[np.int64]] = []
    for number, (start, stop) in enumerate(zip([begin, *edges[:-1]], edges, strict=True)):
        report("learning run times", number / len(edges))
        boosters = learn(runs, runs.ended_before(start), float(runs.submitted_s[start]), settings)
        raw[start:stop] = RunTimeModel(boosters, Offsets()).raw(runs.features[start:stop])
        parts += [part for part in np.array_split(np.arange(start, stop), settings.calibrations) if len(part)]
    return corrected_in_time_order(runs, first, raw, parts, settings)


def corrected_in_time_order(
    runs: RunTimes,
    first: int,
    raw: NDArray[np.float64],
    parts: Sequence[NDArray[np.int64]],
    settings: LearningSettings,
) -> Rolling:
    """Mix and calibrate what models said (``raw``): each job by those that had ended when it was submitted.

    Offsets are found anew before each of ``parts``, which follow each other.
    """
    answers = answers_of(runs.features, raw)
    mixed, quantiles, remaining = raw.copy(), np.full_like(raw, np.nan), np.full((len(raw), 2), np.nan)
    mix, misses = ExpertMix(), Misses(settings.adaptation)
    by_end = np.argsort(runs.ended_s, kind="stable").tolist()
    learned = missed = 0
    for part in parts:
        until_s = float(runs.submitted_s[part[0]])
        while missed < learned and runs.ended_s[by_end[missed]] <= until_s:
            misses.add(quantiles[by_end[missed]], float(runs.log_runs[by_end[missed]]))
            missed += 1
        offsets = _offsets(runs, mixed, quantiles, runs.ended_before(int(part[0])), misses, settings)
        for number in part.tolist():
            while (other := by_end[learned]) < number and runs.ended_s[other] <= runs.submitted_s[number]:
                if not np.isnan(raw[other, 0]):
                    submitted_s, log_run = float(runs.submitted_s[other]), float(runs.log_runs[other])
                    mix.learn(runs.groups[other], answers[other], submitted_s, log_run)
                learned += 1
            mixed[number] += mix.shift([runs.groups[number]], answers[number : number + 1])
        quantiles[part] = calibrated(mixed[part], offsets)
        remaining[part] = offsets.remaining_parts
    for other in by_end[missed:]:
        misses.add(quantiles[other], float(runs.log_runs[other]))
    offsets = _offsets(runs, mixed, quantiles, np.arange(len(raw)), misses, settings)
    return Rolling(first, quantiles[first:], remaining[first:], offsets)


def _offsets(
    runs: RunTimes,
    mixed: NDArray[np.float64],
    quantiles: NDArray[np.float64],
    ended: NDArray[np.int64],
    misses: Misses,
    settings: LearningSettings,
) -> Offsets:
    """Return the offsets by the last jobs that ended of those that were predicted before (``mixed`` is not NaN).

    ``quantiles`` are what was answered for them.
    """
    predicted = ended[~np.isnan(mixed[ended, 0])]
    by_end = predicted[np.argsort(runs.ended_s[predicted], kind="stable")]
    latest = by_end[-settings.calibration_jobs :]
    offsets = conformal_offsets(mixed[latest], runs.log_runs[latest], misses)
    # The last thousand jobs say what is new, but they may have ended within a day or two, in a few bursts.
    parts = [
        remaining_parts(_at_most_the_limit(runs, quantiles, numbers), runs.log_runs[numbers])
        for numbers in (latest, by_end[-settings.remaining_jobs :])
    ]
    low, high = min(low for low, _ in parts), max(high for _, high in parts)
    return msgspec.structs.replace(offsets, remaining_parts=(low, high))


def _at_most_the_limit(
    runs: RunTimes, quantiles: NDArray[np.float64], numbers: NDArray[np.int64]
) -> NDArray[np.float64]:
    most = np.log2(np.exp2(runs.features[numbers, _LIMIT]) + PAST_THE_LIMIT_S)  # NaN of a job without a limit
    return np.asarray(np.fmin(quantiles[numbers], most[:, None]))
