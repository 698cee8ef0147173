"""Calibrates the 80 % interval of how long running jobs go on: between which quantiles of what remains it lies.

The distribution of what remains is the run time's, truncated at the elapsed time (``rlalloc.run_time``). If that is
right, the interval lies between its 10 and 90 % quantiles. Otherwise it lies between the two quantiles each of which
would have missed a tenth of the questions about the last runs that have ended. A scheduler asks about a job while it
runs, so a run of a day counts 1,440 times as much as one of a minute.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from rlalloc.run_time import LOG_ODDS, REMAINING_PARTS
from rlalloc.run_times.run_time_model import finite_runs

MOMENTS_A_RUN: Final = 16
"""At which a run is asked about afterwards: evenly spaced."""
_PSEUDO_OBSERVATIONS: Final = 30.0
"""Runs that ended as predicted, added to those that did end: often few long runs make up most of the time."""
_PSEUDO_PARTS: Final = (np.arange(100) + 0.5) / 100
_LEAST_PART: Final = 0.01
"""No interval goes beyond the 1 and 99 % quantiles: three quantiles of the run time say little about those."""
_LEAST_SPREAD: Final = 1e-9


def ended_parts(quantiles: NDArray[np.float64], log_runs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return which quantile of what remained was what did remain: at MOMENTS_A_RUN of each run, a row a run.

    ``quantiles`` (10, 50 and 90 %) and ``log_runs`` are log2 of the run time [s].
    """
    low, median, high = (column[:, None] for column in quantiles.T)

    def log_odds(log_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of having ended by then; log-logistic on either side of the median, as ``expected_remaining_s``."""
        beyond = log_s - median
        spread = np.where(beyond > 0.0, high - median, median - low)
        return np.asarray(LOG_ODDS * beyond / np.maximum(spread, _LEAST_SPREAD))

    ends = log_runs[:, None]
    elapsed = ends + np.log2((np.arange(MOMENTS_A_RUN) + 0.5) / MOMENTS_A_RUN)
    # Of the jobs that have run so long, those that end before this one: 1 less the ratio of two survival functions.
    return np.asarray(-np.expm1(np.logaddexp(0.0, log_odds(elapsed)) - np.logaddexp(0.0, log_odds(ends))))


def remaining_parts(quantiles: NDArray[np.float64], log_runs: NDArray[np.float64]) -> tuple[float, float]:
    """Return the two quantiles between which 80 % of what remained of these runs would have been.

    Arguments as of ``ended_parts``. Split conformal prediction with weights, each side by itself; the number of runs
    in its correction for few runs is the effective one (Kish, Survey Sampling, 1965). Runs whose numbers are not all
    finite are left out.
    """
    quantiles, log_runs = finite_runs(quantiles, log_runs)
    if not len(log_runs):
        return REMAINING_PARTS
    run_s = np.exp2(log_runs)
    asked_about_s = float((run_s**2).sum() / run_s.sum())  # mean run time of the jobs that questions are about
    effective_runs = float(run_s.sum()) / asked_about_s
    pseudo_s = np.full(len(_PSEUDO_PARTS), _PSEUDO_OBSERVATIONS * asked_about_s / len(_PSEUDO_PARTS))
    parts = np.concatenate([ended_parts(quantiles, log_runs).ravel(), _PSEUDO_PARTS])
    weights = np.concatenate([np.repeat(run_s / MOMENTS_A_RUN, MOMENTS_A_RUN), pseudo_s])
    order = np.argsort(parts, kind="stable")
    until = np.cumsum(weights[order]) / weights.sum()
    held = REMAINING_PARTS[1] * (1.0 + 1.0 / (effective_runs + _PSEUDO_OBSERVATIONS))
    low, high = parts[order][np.searchsorted(until, (1.0 - held, held))]
    return float(np.clip(low, _LEAST_PART, 0.5)), float(np.clip(high, 0.5, 1.0 - _LEAST_PART))
