"""What measurements of one model say of other models on the same GPUs, by how much families are taken to share.

Priors are fitted without the two models of a pair, so neither takes part in its own prior.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from rlalloc.progress import ProgressCallback, silent
from rlalloc.speed.profiled_speeds import shared_belief
from rlalloc.speed.speed_belief import SpeedBelief
from rlalloc.speed.step_time import FloatArray, log_speed
from rlalloc_research.speed_model.fitted_prior import fitted_prior
from rlalloc_research.speed_model.measured_tables import Family, all_families

SHARED: Final = (0.0, 0.25, 0.5, 0.75, 0.9)
_TOLERANCE: Final = 0.05
"""By so much (a logarithm) a measurement may exceed a quantile: it has an error of its own."""
_SAMPLES: Final = 512


class Predicted(NamedTuple):
    """Means over the predicted families: relative error of speed-ups, and part of them below their 95% quantile."""

    shared: float
    families: int
    error: float
    median_error: float
    coverage: float


def shared_speeds(data: Path, report: ProgressCallback = silent) -> list[Predicted]:
    """A row for each value of SHARED. Raises ConfigError where a table is missing."""
    families = [family for family in all_families(data) if family.tells_scaling]
    pairs = list(_pairs(families))
    priors: dict[frozenset[str], SpeedBelief] = {}
    draws = np.random.default_rng(0).standard_normal((_SAMPLES, len(fitted_prior(families).mean)))
    found: dict[float, dict[Family, list[tuple[float, float]]]] = {each: defaultdict(list) for each in SHARED}
    for number, (profiled, other) in enumerate(pairs):
        models = frozenset((profiled.model, other.model))
        if models not in priors:
            priors[models] = fitted_prior(family for family in families if family.model not in models)
        after = priors[models].updated(profiled.measurements())
        for shared in SHARED:
            found[shared][other].append(_prediction(other, shared_belief(priors[models], after, shared), draws))
        report("predicts other models", (number + 1) / len(pairs))
    return [_row(shared, [np.mean(each, axis=0) for each in found[shared].values()]) for shared in SHARED]


def _pairs(families: Sequence[Family]) -> Iterator[tuple[Family, Family]]:
    for profiled in families:
        for other in families:
            same_machines = (profiled.table, profiled.gpu_type) == (other.table, other.gpu_type)
            if same_machines and profiled.model != other.model:
                yield profiled, other


def _prediction(family: Family, belief: SpeedBelief, draws: FloatArray) -> tuple[float, float]:
    """Median relative error over the points of a family, and the part below the 95% quantile."""
    measured = family.measurements()
    speeds = log_speed(belief.samples(draws), measured.layouts)
    first = int(np.argmin(measured.layouts.gpus))
    others = np.arange(len(measured.log_speed)) != first
    expected = (speeds - speeds[:, [first]])[:, others]
    seen = (measured.log_speed - measured.log_speed[first])[others]
    error = np.abs(np.exp(np.median(expected, axis=0) - seen) - 1.0)
    held = seen <= np.quantile(expected, 0.95, axis=0) + _TOLERANCE
    return float(np.median(error)), float(np.mean(held))


def _row(shared: float, by_family: Sequence[FloatArray]) -> Predicted:
    errors, held = np.array(by_family).T
    return Predicted(shared, len(errors), float(errors.mean()), float(np.median(errors)), float(held.mean()))
