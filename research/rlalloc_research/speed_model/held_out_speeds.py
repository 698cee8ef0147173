"""Predicts measured speeds that were held out: other GPU counts, other models, another type of GPU.

The prior never knows the model that is predicted: it is fitted to all others.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

import numpy as np

from rlalloc.allocation import TIME_LIMIT_MARGIN
from rlalloc.job import Allocation
from rlalloc.speed.longer_limits import QUANTILE, slowdowns
from rlalloc.speed.speed_belief import SpeedBelief
from rlalloc.speed.step_time import FloatArray, log_speed
from rlalloc_research.speed_model.measured_tables import Family

Row = Literal["other GPU counts", "other models", "another GPU type"]
TARGETS: Final[Mapping[Row, float]] = {"other GPU counts": 0.10, "other models": 0.20, "another GPU type": 0.25}
Priors = Mapping[str, SpeedBelief]
_FACTORS: Final = np.linspace(-4.0, 4.0, 161)
"""Logs of how much faster one type of GPU may be than another."""


class HeldOut(NamedTuple):
    """One way to predict a row: what was known, and predicted and measured log speeds by table."""

    row: Row
    known: str
    by_table: dict[str, list[tuple[float, float]]]

    def median_error(self, table: str | None = None) -> float:
        """Median relative error of a table, of all points if None."""
        pairs = [pair for name, found in self.by_table.items() if table in (None, name) for pair in found]
        return float(np.median([abs(np.expm1(predicted - measured)) for predicted, measured in pairs]))


def held_out(families: Sequence[Family], priors: Priors) -> list[HeldOut]:
    """Every row, in each way that was tried."""
    scaling = [family for family in families if family.tells_scaling]
    ways: list[tuple[Row, str, Iterator[tuple[str, FloatArray, FloatArray]]]] = [
        ("other GPU counts", "all other counts", _other_counts(scaling, priors, only_largest=False)),
        ("other GPU counts", "all smaller counts", _other_counts(scaling, priors, only_largest=True)),
        ("other models", "prior and one point", _other_models(scaling, priors, 1)),
        ("other models", "prior and two points", _other_models(scaling, priors, 2)),
    ]
    for known, shifts in _SHIFTS.items():
        ways.append(("another GPU type", known, _other_types(families, priors, np.array(shifts))))
    rows = []
    for row, known, predictions in ways:
        by_table: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
        for table, predicted, measured in predictions:
            by_table[table] += zip(predicted.tolist(), measured.tolist(), strict=True)
        rows.append(HeldOut(row, known, dict(by_table)))
    return rows


def _other_counts(
    families: Sequence[Family], priors: Priors, *, only_largest: bool
) -> Iterator[tuple[str, FloatArray, FloatArray]]:
    for family in families:
        measured = family.measurements()
        for count in family.counts[-1:] if only_largest else family.counts:
            out = measured.layouts.gpus == count
            seen, wanted = measured.chosen(~out), measured.chosen(out)
            belief = priors[family.model].updated(seen)
            yield family.table, belief.predicted(seen, wanted.layouts, 0), wanted.log_speed


def _other_models(
    families: Sequence[Family], priors: Priors, points: int
) -> Iterator[tuple[str, FloatArray, FloatArray]]:
    """Known: the point of the least GPUs, and that of the middle count; of each the one of the most usual batch."""
    for family in families:
        measured = family.measurements()
        unusual = np.abs(np.log(measured.layouts.local_batch))
        known = np.zeros(len(unusual), dtype=np.bool_)
        for count in (family.counts[0], family.counts[len(family.counts) // 2])[:points]:
            known[np.where(measured.layouts.gpus == count, unusual, np.inf).argmin()] = True
        seen, wanted = measured.chosen(known), measured.chosen(~known)
        belief = priors[family.model].updated(seen)
        yield family.table, belief.predicted(seen, wanted.layouts, 0), wanted.log_speed


_SHIFTS: Final[Mapping[str, tuple[float, ...]]] = {
    "other type; all faster alike": (0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
    "other type; overhead and sync as long": (1.0, 1.0, 1.0, 0.0, 0.0, 0.0),
    "other type; overhead and sync half as much": (0.5, 0.5, 0.5, 0.0, 0.0, 0.0),
    "other type; only sync as long": (0.0, 1.0, 1.0, 0.0, 0.0, 0.0),
}
"""By what is assumed: how parameters, which are times over that of computing, grow with the log of the factor."""


def _other_types(
    families: Sequence[Family], priors: Priors, shifts: FloatArray
) -> Iterator[tuple[str, FloatArray, FloatArray]]:
    """Known: all points on one type, and how much faster the second is for other models; none of it on the second."""
    pairs = [
        (first, second)
        for first in families
        for second in families
        if first is not second and first[:3] == second[:3]  # table, model and variant
    ]
    predictors = {(first, second): _on_other_type(first, second, priors, shifts) for first, second in pairs}
    fitting = {pair: _best_factor(predict, pair[1]) for pair, predict in predictors.items()}
    for first, second in pairs:
        by_model: defaultdict[str, list[float]] = defaultdict(list)
        for (one, other), factor in fitting.items():
            same_types = (one.table, one.gpu_type, other.gpu_type) == (first.table, first.gpu_type, second.gpu_type)
            if same_types and one.model != first.model:
                by_model[one.model].append(factor)
        if by_model:
            factor = float(np.median([np.median(factors) for factors in by_model.values()]))
            measured = second.measurements().log_speed
            yield first.table, predictors[first, second](factor), measured


def _on_other_type(
    first: Family, second: Family, priors: Priors, shifts: FloatArray
) -> Callable[[float], FloatArray]:
    """Return log speeds at the points of ``second`` by the log of the factor, from what is known of ``first``."""
    seen = first.measurements()
    wanted = second.measurements(units_of=first).layouts
    belief = priors[first.model].updated(seen)
    unit = float(np.mean(seen.log_speed - log_speed(belief.mean, seen.layouts)))

    def predicted(factor: float) -> FloatArray:
        return np.asarray(unit + factor + log_speed(belief.mean + factor * shifts, wanted))

    return predicted


def _best_factor(predict: Callable[[float], FloatArray], second: Family) -> float:
    measured = second.measurements().log_speed
    return float(min(_FACTORS, key=lambda factor: float(np.median(np.abs(predict(factor) - measured)))))


class Allowed(NamedTuple):
    """How often the slowdown that a limit allows for held, by table: measured pairs of the same global batch."""

    table: str
    pairs: int
    held: float
    held_by_the_curve: float


def limits_held(
    families: Sequence[Family], priors: Priors, by_curve: Callable[[Allocation, Allocation], float]
) -> list[Allowed]:
    """Compare measured slowdowns with the quantile of a prior that knows neither the model nor a point of it.

    ``by_curve`` is the slowdown that another rule expects. Both get the margin of ``allocation_for``.
    """
    found: defaultdict[str, list[tuple[bool, bool]]] = defaultdict(list)
    for family in families:
        if not family.tells_scaling:
            continue
        quantiles: dict[tuple[Allocation, Allocation], float] = {}
        for large in family.points:
            for small in family.points:
                batches = large.local_batch * large.gpus, small.local_batch * small.gpus
                shrunk = small.gpus < large.gpus and small.nodes <= large.nodes
                if not shrunk or abs(np.log(batches[0] / batches[1])) > _SAME_BATCH:
                    continue
                sizes = _allocation(large.gpus, large.nodes), _allocation(small.gpus, small.nodes)
                if sizes not in quantiles:
                    quantiles[sizes] = float(np.quantile(slowdowns(*sizes, priors[family.model]), QUANTILE))
                slower = large.speed / small.speed / TIME_LIMIT_MARGIN
                found[family.table].append((slower <= quantiles[sizes], slower <= by_curve(*sizes)))
    return [Allowed(table, len(pairs), *np.mean(pairs, axis=0).tolist()) for table, pairs in found.items()]


_SAME_BATCH: Final = 0.05


def _allocation(gpus: int, nodes: int) -> Allocation:
    return Allocation(nodes, max(1, gpus // nodes), 1, 8 * max(1, gpus // nodes), 1, 3600)


def cpu_errors(sensitivities: Sequence[Sequence[float]]) -> list[float]:
    """Relative errors of min(1, CPUs / needed) where one CPU and all CPUs are known, at the counts between."""
    errors = []
    for speeds in sensitivities:
        for cpus, speed in enumerate(speeds[1:-1], 2):
            if speed > 0:
                errors.append(abs(min(speeds[-1], cpus * speeds[0]) / speed - 1.0))
    return errors
