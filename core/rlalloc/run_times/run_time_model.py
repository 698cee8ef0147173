"""A learned model of run times: gradient-boosted trees for three quantiles, with conformal offsets."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from rlalloc.errors import PolicyError
from rlalloc.run_time import REMAINING_PARTS, require_parts
from rlalloc.run_times.relative_times import relative_to_expected

if TYPE_CHECKING:
    import lightgbm

QUANTILES: Final = (0.1, 0.5, 0.9)
NAMES: Final = ("low", "median", "high")
RELATIVE: Final = "relative"
"""A second booster of the median; models of earlier versions of rlalloc have none."""


def require_lightgbm() -> None:
    """Raise PolicyError with what to do where LightGBM cannot be imported."""
    try:
        import lightgbm  # noqa: F401
    except (ImportError, OSError) as err:  # OSError: the system has no libgomp.so.1
        raise PolicyError(
            f"run times are learned by LightGBM, which cannot be used here ({err}): install the Python package "
            "lightgbm, and libgomp1 of the system"
        ) from err


class Offsets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What conformal calibration adds to the lower and the upper quantile, log2 of seconds.

    Between the quantiles ``remaining_parts`` lies the 80 % interval of what remains of a running job. Raises
    ValueError for numbers that are not finite, and for parts that no estimate can have.
    """

    low: float = 0.0
    high: float = 0.0
    remaining_parts: tuple[float, float] = REMAINING_PARTS

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high)):
            raise ValueError(f"offsets {self.low}, {self.high}: give finite ones")
        require_parts(self.remaining_parts)


class RunTimeModel:
    """Boosters of NAMES that read FEATURES and answer log2 of seconds.

    The one of RELATIVE reads RELATIVE_FEATURES and answers by how much that differs from what is expected.
    """

    def __init__(self, boosters: Mapping[str, "lightgbm.Booster"], offsets: Offsets) -> None:
        self.boosters = boosters
        self.offsets = offsets

    def raw(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return QUANTILES of log2 run time [s]; a row a job. The median is the mean of both boosters' medians."""
        low, median, high = (self._answer(name, features) for name in NAMES)
        if RELATIVE in self.boosters:
            relative, expected = relative_to_expected(features)
            median = (median + expected + self._answer(RELATIVE, relative)) / 2.0
        return np.sort(np.stack([low, median, high], axis=1), axis=1)

    def _answer(self, name: str, features: NDArray[np.float32]) -> NDArray[np.float64]:
        return np.asarray(self.boosters[name].predict(features, num_threads=1), np.float64)


def calibrated(raw: NDArray[np.float64], offsets: Offsets) -> NDArray[np.float64]:
    """Return quantiles with the offsets, a row a job; the median stays, and lies between the others."""
    low = np.minimum(raw[:, 0] + offsets.low, raw[:, 1])
    high = np.maximum(raw[:, 2] + offsets.high, raw[:, 1])
    return np.stack([low, raw[:, 1], high], axis=1)


def finite_runs(
    quantiles: NDArray[np.float64], log_runs: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return those rows of which all numbers are finite: one NaN would make all that is calibrated by them NaN."""
    finite = np.isfinite(quantiles).all(axis=1) & np.isfinite(log_runs)
    return quantiles[finite], log_runs[finite]


class Misses:
    """How many jobs each side of the interval is to miss, so that a tenth is missed in the long run.

    Adaptive conformal inference (Gibbs and Candès, NeurIPS 2021), each side by itself: after a job that a side
    missed, it aims at ``rate`` * 0.9 fewer, after another one at ``rate`` * 0.1 more.
    """

    def __init__(self, rate: float = 0.0) -> None:
        self._rate = rate
        self.low = self.high = QUANTILES[0]

    def add(self, quantiles: NDArray[np.float64], log_run: float) -> None:
        """Note that a job ended of which those QUANTILES were predicted; NaN of one that was not."""
        if not np.isnan(quantiles[0]):
            self.low += self._rate * (QUANTILES[0] - (log_run < quantiles[0]))
            self.high += self._rate * (QUANTILES[0] - (log_run > quantiles[-1]))


NO_MISSES: Final = Misses()


def conformal_offsets(raw: NDArray[np.float64], log_runs: NDArray[np.float64], misses: Misses = NO_MISSES) -> Offsets:
    """Return the offsets with which each side would have missed so many jobs that the model had not seen.

    Conformalized quantile regression (Romano, Patterson and Candès, NeurIPS 2019), each side by itself (Theorem 2).
    ``raw`` has QUANTILES, a row a job. Jobs whose numbers are not all finite are left out.
    """
    raw, log_runs = finite_runs(raw, log_runs)
    number = len(log_runs)
    if not number:
        return Offsets()
    low, high = (min(max(0.0, (1.0 - each) * (1.0 + 1.0 / number)), 1.0) for each in (misses.low, misses.high))
    too_high = np.quantile(raw[:, 0] - log_runs, low, method="higher")
    too_low = np.quantile(log_runs - raw[:, 2], high, method="higher")
    return Offsets(low=-float(too_high), high=float(too_low))
