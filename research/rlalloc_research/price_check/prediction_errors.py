"""How well predictions of a size agree with what came of it, by part, and what a second of the cluster costs."""

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlalloc.rank_correlation import rank_correlation
from rlalloc_research.price_check.forced_sizes import ForcedSize, Parts, RetakenDecision

FloatArray = NDArray[np.float64]
PARTS: Final[dict[str, Callable[[Parts], float]]] = {
    "own wait": lambda parts: parts.wait_s,
    "own JCT": lambda parts: parts.jct_s,
    "others' wait": lambda parts: parts.others_s,
    "cost": lambda parts: parts.total_s,
}
"""What is compared. The last two are differences from the request, of sizes other than the request."""
_OVER_REQUEST: Final = frozenset({"others' wait", "cost"})


class PartRow(NamedTuple):
    """One part over many sizes [s]; ``rank_correlation`` is Spearman's, NaN where one side is constant."""

    part: str
    sizes: int
    predicted_s: float
    came_s: float
    median_error_s: float
    rank_correlation: float


class PriceRow(NamedTuple):
    """Job-seconds that other jobs wait per second of the whole cluster, as charged and as it came.

    ``error`` is the standard error of what came, by decisions.
    """

    jobs: str
    decisions: int
    charged: float
    came: float
    error: float


def part_rows(decisions: Sequence[RetakenDecision]) -> list[PartRow]:
    """Return a row for each of PARTS."""
    return [_part_row(name, part, decisions) for name, part in PARTS.items()]


def _part_row(name: str, part: Callable[[Parts], float], decisions: Sequence[RetakenDecision]) -> PartRow:
    pairs = []
    for decision in decisions:
        request = decision.sizes[0]
        for size in decision.sizes[1:] if name in _OVER_REQUEST else decision.sizes:
            predicted, came = part(size.predicted), part(size.came)
            if name == "cost":
                predicted, came = predicted - part(request.predicted), came - part(request.came)
            if math.isfinite(predicted) and math.isfinite(came):
                pairs.append((predicted, came))
    both = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    if not len(both):
        return PartRow(name, 0, math.nan, math.nan, math.nan, math.nan)
    predicted_s, came_s = both.mean(axis=0).tolist()
    median_s = float(np.median(np.abs(both[:, 0] - both[:, 1])))
    correlation = rank_correlation(both[:, 0], both[:, 1])
    return PartRow(name, len(both), predicted_s, came_s, median_s, math.nan if correlation is None else correlation)


def price_rows(decisions: Sequence[RetakenDecision]) -> list[PriceRow]:
    """Return the price of a second of the cluster: by which sizes fit, and by the run time that is expected."""
    rows = (_price_row(name, decisions, is_it) for name, is_it in _KINDS.items())
    return [row for row in rows if row.decisions]


def _run_s(decision: RetakenDecision) -> float:
    return decision.sizes[0].predicted.run_s


_SHORT_S, _LONG_S = 900.0, 7200.0
_KINDS: Final[dict[str, Callable[[RetakenDecision, ForcedSize], bool]]] = {
    "all": lambda _decision, _size: True,
    "size and request fit": lambda decision, size: size.fits and decision.sizes[0].fits,
    "only the size fits": lambda decision, size: size.fits and not decision.sizes[0].fits,
    "the size does not fit": lambda _decision, size: not size.fits,
    "under 15 minutes": lambda decision, _size: _run_s(decision) < _SHORT_S,
    "15 minutes to 2 hours": lambda decision, _size: _SHORT_S <= _run_s(decision) < _LONG_S,
    "over 2 hours": lambda decision, _size: _run_s(decision) >= _LONG_S,
}


def _price_row(
    name: str, decisions: Sequence[RetakenDecision], is_it: Callable[[RetakenDecision, ForcedSize], bool]
) -> PriceRow:
    """The ratio of sums over all sizes: what others wait more for what was taken, and how much was taken."""
    chosen = [[size for size in each.sizes[1:] if is_it(each, size)] for each in decisions]
    chosen = [sizes for sizes in chosen if sizes]
    taken, charged, came = (
        np.array([sum(of(size) for size in sizes) for sizes in chosen]) for of in (_taken_s, _charged_s, _came_s)
    )
    whole = float(taken.sum()) if chosen else 0.0
    if whole == 0.0:
        return PriceRow(name, len(chosen), math.nan, math.nan, math.nan)
    price = came.sum() / whole
    error = math.sqrt(float(((came - price * taken) ** 2).sum())) / whole
    return PriceRow(name, len(chosen), float(charged.sum() / whole), float(price), error)


def _taken_s(size: ForcedSize) -> float:
    return abs(size.taken_s)


def _charged_s(size: ForcedSize) -> float:
    return math.copysign(1.0, size.taken_s) * size.predicted.others_s


def _came_s(size: ForcedSize) -> float:
    return math.copysign(1.0, size.taken_s) * size.came.others_s


def chosen_gain(decisions: Sequence[RetakenDecision], least_gain: float) -> tuple[float, float, float]:
    """What the size of the least predicted cost saved over the request [s], a decision's mean, and its error.

    Another size has to be predicted to save the part ``least_gain`` of the request's cost. The third figure is the
    mean of what was predicted.
    """
    saved, promised = [], []
    for decision in decisions:
        request = decision.sizes[0]
        within = (1.0 - least_gain) * (request.predicted.total_s + decision.request_others_s)
        best = min(decision.sizes, key=lambda size: size.predicted.total_s)
        chosen = best if best.predicted.total_s + decision.request_others_s < within else request
        saved.append(request.came.total_s - chosen.came.total_s)
        promised.append(request.predicted.total_s - chosen.predicted.total_s)
    return float(np.mean(saved)), float(np.std(saved) / math.sqrt(len(saved))), float(np.mean(promised))
