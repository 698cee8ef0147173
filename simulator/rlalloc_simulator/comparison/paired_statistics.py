"""Ratios of policies with bootstrap intervals: the one place that says how sure a figure is. Pure functions."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from rlalloc_simulator.comparison.workload_result import WorkloadResult

FloatArray = NDArray[np.float64]

RESAMPLES: Final = 2000
CONFIDENCE: Final = 0.9
"""Of the intervals that people are shown, unless they choose another one."""
THIRDS: Final = ("calm", "usual", "busy")


class Interval(msgspec.Struct, frozen=True):
    """An estimate with its bootstrap interval; both ends are NaN where nothing could be resampled."""

    estimate: float
    low: float
    high: float

    def __str__(self) -> str:
        if math.isnan(self.low):
            return f"{self.estimate:.3f} [?]"
        return f"{self.estimate:.3f} [{self.low:.3f}, {self.high:.3f}]"


def bootstrap_of_strata(strata: Sequence[FloatArray], confidence: float, seed: int = 0) -> tuple[float, float, float]:
    """Return the mean of the strata's means, and its interval by resampling within each stratum.

    A stratum has a value for each thing that is independent of the others (a week). Of n values n - 1 are drawn with
    replacement: with all n the variance of the mean would come out (n - 1)/n too small, which matters for the four
    weeks of a trace (Rao and Wu, "Resampling Inference with Complex Survey Data", JASA 1988). A stratum of a single
    value adds nothing to the interval; if there is no other, its ends are NaN.
    """
    if not strata or any(len(values) == 0 for values in strata):
        return math.nan, math.nan, math.nan
    estimate = float(np.mean([values.mean() for values in strata]))
    if all(len(values) == 1 for values in strata):
        return estimate, math.nan, math.nan
    generator = np.random.default_rng(seed)
    means = np.zeros(RESAMPLES)
    for values in strata:
        drawn = generator.integers(len(values), size=(RESAMPLES, max(1, len(values) - 1)))
        means += values[drawn].mean(axis=1) / len(strata)
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(means, (tail, 1.0 - tail))
    return estimate, float(low), float(high)


def ratio_of(strata: Sequence[FloatArray], confidence: float) -> Interval:
    """Likewise for logarithms of ratios: the geometric mean with its interval."""
    return Interval(*(math.exp(value) for value in bootstrap_of_strata(strata, confidence)))


def paired_ratio(values: Iterable[float], against: Iterable[float], confidence: float = CONFIDENCE) -> Interval:
    """Geometric mean of ``values`` over those ``against`` them, of the same workloads each, which are resampled."""
    return ratio_of([log_ratios(values, against)], confidence)


def jct_ratio(
    results: Sequence[WorkloadResult], against: Sequence[WorkloadResult], confidence: float = CONFIDENCE
) -> Interval:
    """Likewise of mean JCTs, a policy's over another one's; below 1 is better."""
    return paired_ratio((one.jct_s for one in results), (other.jct_s for other in against), confidence)


def jct_ratios_by_third(
    results: Sequence[WorkloadResult],
    against: Sequence[WorkloadResult],
    thirds: Mapping[str, NDArray[np.intp]],
    confidence: float = CONFIDENCE,
) -> dict[str, Interval]:
    """Likewise in each of ``thirds_by_wait``, by its name."""
    return {
        name: jct_ratio([results[row] for row in rows], [against[row] for row in rows], confidence)
        for name, rows in thirds.items()
    }


def log_ratios(values: Iterable[float], against: Iterable[float]) -> FloatArray:
    """Logarithms of the ratios of values that belong together, (values,)."""
    return np.array([math.log(one / other) for one, other in zip(values, against, strict=True)])


def thirds_by_wait(results: Sequence[WorkloadResult]) -> dict[str, NDArray[np.intp]]:
    """Divide workloads into thirds by the part of their JCT that is waiting: places in ``results`` by name.

    Of fewer than three workloads some thirds are empty, and left out.
    """
    waiting = np.array([result.wait_s / result.jct_s for result in results])
    parts = np.array_split(np.argsort(waiting, kind="stable"), len(THIRDS))
    return {name: rows for name, rows in zip(THIRDS, parts, strict=True) if len(rows)}
