"""The targets that the project has set itself for a learned policy (its issue 5, statement 7), met or missed."""

import math
from collections.abc import Iterable
from typing import Final

import msgspec

from rlalloc_simulator.comparison.paired_statistics import Interval
from rlalloc_trainer.evaluation.paired_comparison import Comparison, Measured, Side

BASE: Final = "price-ef"
NOT_MEASURED: Final = "not measured"


class Target(msgspec.Struct, frozen=True):
    """What was wanted, what came out, and whether that meets it; None where it was not measured."""

    wanted: str
    figure: str
    met: bool | None


def targets(comparison: Comparison, policy: str) -> list[Target]:
    """Return each target with its figure for ``policy``; ratios are of mean JCT on the same workloads."""
    there = set(comparison.sides)
    sizes: Side = (policy, "sizes")
    urgency: Side = (policy, "urgency")
    base: Side = (BASE, "sizes")

    def ratio(
        side: Side, against: Side, loads: Iterable[float] | None = None, measured: Measured = "jct_s"
    ) -> Interval | None:
        if not {side, against} <= there:
            return None
        found = comparison.ratio(side, against, measured, loads=loads)
        return None if math.isnan(found.estimate) else found

    found = [
        _at_most(f"at most 0.94 of {name}", ratio(sizes, (name, "sizes")), 0.94)
        for name in ("efficiency-adaptive", "marginal-gain")
    ]
    overall = ratio(sizes, base)
    found.append(_at_most(f"at most 0.98 of {BASE}, the interval below 1", overall, 0.98, sure=True))
    high = [load for load in comparison.loads if load >= 1.4]
    found.append(_at_most(f"at most 0.95 of {BASE} at loads from 1.4 on", ratio(sizes, base, high), 0.95))
    by_load = [(load, ratio(sizes, base, [load])) for load in comparison.loads]
    found.append(_everywhere(f"at no load above 1.01 of {BASE}", by_load, 1.01))
    p95 = ratio(sizes, base, measured="jct_p95_s")
    found.append(_at_most(f"95th percentile of JCT not above {BASE}'s", p95, 1.0))
    for load, most in ((1.0, 0.88), (1.5, 0.70)):
        wanted = f"with urgency, at most {most:.2f} of {BASE} without it at load {load:g}"
        found.append(_at_most(wanted, ratio(urgency, base, [load]), most))
    found.append(_worst_user(comparison, sizes, urgency))
    rivals = sorted({name for name, setting in there if setting == "sizes" and name != policy})
    experts = [(name, ratio(sizes, (name, "sizes"))) for name in rivals]
    found.append(_everywhere("behind none of those compared, over all", experts, 1.0))
    found.append(_surely_behind(comparison, policy))
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


def _surely_behind(comparison: Comparison, policy: str) -> Target:
    """Single scenarios have few weeks: behind is who is so with the whole interval."""
    wanted = "in no scenario behind one of them with the whole interval, with sizes or with urgency"
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
