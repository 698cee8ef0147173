"""The project's targets for a learned policy, met or missed."""

import math
from collections.abc import Iterable
from typing import Final

import msgspec

from rlalloc_simulator.comparison.paired_statistics import Interval
from rlalloc_trainer.evaluation.paired_comparison import Comparison, Measured, Side

PRICE_EF: Final = "price-ef"
NOT_MEASURED: Final = "not measured"


class Target(msgspec.Struct, frozen=True):
    """What is wanted, what was measured, and whether that meets it; None where it was not measured."""

    wanted: str
    figure: str
    met: bool | None


def targets(comparison: Comparison, policy: str) -> list[Target]:
    """Return each target with its figure for ``policy``; ratios are of mean JCT on the same workloads."""
    there = set(comparison.sides)
    sizes: Side = (policy, "sizes")
    urgency: Side = (policy, "urgency")
    price_ef: Side = (PRICE_EF, "sizes")

    def ratio(
        side: Side, against: Side, loads: Iterable[float] | None = None, measured: Measured = "jct_s"
    ) -> Interval | None:
        if not {side, against} <= there:
            return None
        found = comparison.ratio(side, against, measured, loads=loads)
        return None if math.isnan(found.estimate) else found

    found = [
        _at_most(f"mean JCT ratio at most 0.94 versus {name}", ratio(sizes, (name, "sizes")), 0.94)
        for name in ("efficiency-adaptive", "marginal-gain")
    ]
    overall = ratio(sizes, price_ef)
    wanted = f"mean JCT ratio at most 0.98 versus {PRICE_EF}, the interval below 1"
    found.append(_at_most(wanted, overall, 0.98, sure=True))
    high = ratio(sizes, price_ef, [load for load in comparison.loads if load >= 1.4])
    found.append(_at_most(f"mean JCT ratio at most 0.95 versus {PRICE_EF} at loads from 1.4 on", high, 0.95))
    by_load = [(load, ratio(sizes, price_ef, [load])) for load in comparison.loads]
    found.append(_everywhere(f"mean JCT ratio at most 1.01 versus {PRICE_EF} at each load", by_load, 1.01))
    p95 = ratio(sizes, price_ef, measured="jct_p95_s")
    found.append(_at_most(f"ratio of the 95th percentile of JCT at most 1 versus {PRICE_EF}", p95, 1.0))
    for load, most in ((1.0, 0.88), (1.5, 0.70)):
        wanted = f"with urgency, mean JCT ratio at most {most:.2f} versus {PRICE_EF} without it at load {load:g}"
        found.append(_at_most(wanted, ratio(urgency, price_ef, [load]), most))
    found.append(_worst_user(comparison, sizes, urgency))
    others = sorted({name for name, setting in there if setting == "sizes" and name != policy})
    compared = [(name, ratio(sizes, (name, "sizes"))) for name in others]
    found.append(_everywhere("not worse than any compared policy, over all", compared, 1.0))
    found.append(_surely_worse(comparison, policy))
    return found


def _at_most(wanted: str, ratio: Interval | None, most: float, *, sure: bool = False) -> Target:
    if ratio is None:
        return Target(wanted, NOT_MEASURED, None)
    return Target(wanted, str(ratio), ratio.estimate <= most and (not sure or ratio.high < 1.0))


def _everywhere(wanted: str, ratios: Iterable[tuple[float | str, Interval | None]], most: float) -> Target:
    known = [(ratio.estimate, where, ratio) for where, ratio in ratios if ratio is not None]
    if not known:
        return Target(wanted, NOT_MEASURED, None)
    estimate, where, ratio = max(known, key=lambda each: each[0])
    return Target(wanted, f"{ratio} ({where})", estimate <= most)


def _surely_worse(comparison: Comparison, policy: str) -> Target:
    """Compare by scenario. Each has few weeks, so that only the whole interval counts."""
    wanted = "in no scenario worse than a compared policy by the whole interval, with sizes or with urgency"
    ratios = [
        (comparison.ratio((policy, setting), (name, setting), scenarios=[scenario]), name, setting, scenario)
        for name, setting in comparison.sides
        if name != policy and setting != "requeue" and (policy, setting) in comparison.sides
        for scenario in comparison.scenarios
    ]
    known = [each for each in ratios if not math.isnan(each[0].low)]  # a single week has no interval
    if not known:
        return Target(wanted, NOT_MEASURED, None)
    ratio, name, setting, scenario = max(known, key=lambda each: each[0].low)
    return Target(wanted, f"{ratio} ({name} on {scenario}, {setting})", ratio.low <= 1.0)


def _worst_user(comparison: Comparison, sizes: Side, urgency: Side) -> Target:
    wanted = "no user's mean JCT more than a tenth worse with urgency than without"
    if not {sizes, urgency} <= set(comparison.sides):
        return Target(wanted, NOT_MEASURED, None)
    worst = comparison.worst_user(urgency, sizes)
    if worst is None:
        return Target(wanted, NOT_MEASURED, None)
    return Target(wanted, f"{worst[0]:.3f} ({worst[1]})", worst[0] <= 1.1)
