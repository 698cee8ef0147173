"""A learned model of run times: gradient-boosted trees for three quantiles, with conformal offsets."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from rlalloc.errors import PolicyError

if TYPE_CHECKING:
    import lightgbm

QUANTILES: Final = (0.1, 0.5, 0.9)
NAMES: Final = ("low", "median", "high")


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
    """What conformal calibration adds to the lower and the upper quantile, log2 of seconds."""

    low: float = 0.0
    high: float = 0.0


class RunTimeModel:
    """Boosters of NAMES that read FEATURES and answer log2 of seconds."""

    def __init__(self, boosters: Mapping[str, "lightgbm.Booster"], offsets: Offsets) -> None:
        self.boosters = boosters
        self.offsets = offsets

    def raw(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return QUANTILES of log2 run time [s] as the boosters have them; a row a job."""
        answers = [self.boosters[name].predict(features, num_threads=1) for name in NAMES]
        return np.sort(np.stack([np.asarray(answer, np.float64) for answer in answers], axis=1), axis=1)

    def quantiles(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return calibrated QUANTILES of log2 run time [s]; a row a job."""
        return calibrated(self.raw(features), self.offsets)


def calibrated(raw: NDArray[np.float64], offsets: Offsets) -> NDArray[np.float64]:
    """Return quantiles with the offsets, a row a job; the median stays, and lies between the others."""
    low = np.minimum(raw[:, 0] + offsets.low, raw[:, 1])
    high = np.maximum(raw[:, 2] + offsets.high, raw[:, 1])
    return np.stack([low, raw[:, 1], high], axis=1)


def conformal_offsets(raw: NDArray[np.float64], log_runs: NDArray[np.float64]) -> Offsets:
    """Return the offsets with which the interval would have held 80 % of jobs that the model had not seen.

    Conformalized quantile regression (Romano, Patterson and Candès, NeurIPS 2019), each side by itself (Theorem 2).
    ``raw`` has QUANTILES, a row a job.
    """
    number = len(log_runs)
    if not number:
        return Offsets()
    level = min(1.0, QUANTILES[-1] * (1.0 + 1.0 / number))
    too_high = np.quantile(raw[:, 0] - log_runs, level, method="higher")
    too_low = np.quantile(log_runs - raw[:, 2], level, method="higher")
    return Offsets(low=-float(too_high), high=float(too_low))
