"""The tables of an evaluation, as text cells; the terminal and Markdown show the same ones."""

import math
from collections.abc import Sequence
from typing import Final

import msgspec

from rlalloc_simulator.comparison.compared_policy import REFERENCE
from rlalloc_simulator.comparison.paired_statistics import CONFIDENCE
from rlalloc_trainer.evaluation.never_worse import ConditionVerdict, verdicts
from rlalloc_trainer.evaluation.paired_comparison import Comparison, Measured, Side
from rlalloc_trainer.evaluation.scenario_runs import Condition, Setting
from rlalloc_trainer.evaluation.targets import targets

SETTING_NAMES: Final[dict[Setting, str]] = {
    "sizes": "sizes only",
    "urgency": "sizes and urgency",
    "requeue": "urgency, and a requeue an hour (reference)",
}


class Table(msgspec.Struct, frozen=True):
    """Rows of cells under columns; the first column names what a row is of."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        """Return it as a Markdown table under its title."""
        lines = [" | ".join(self.columns), " | ".join(["---"] + ["---:"] * (len(self.columns) - 1))]
        lines += [" | ".join(row) for row in self.rows]
        return f"**{self.title}**\n\n" + "\n".join(f"| {line} |" for line in lines) + "\n"


def tables(comparison: Comparison, policy: str) -> list[Table]:
    """Return all tables of an evaluation of ``policy``: of the first scenario in full, of the others in short."""
    settings = list(dict.fromkeys(setting for _, setting in comparison.sides))
    first = comparison.conditions[0].scenario if comparison.conditions else ""
    levels = [condition for condition in comparison.conditions if condition.scenario == first]
    return [
        *(_in_full(comparison.under(condition), condition, setting) for condition in levels for setting in settings),
        *(_by_condition(comparison, setting, "jct_s", "mean JCT") for setting in settings),
        *(_by_condition(comparison, setting, "jct_p95_s", "95th percentile of JCT") for setting in settings),
        _bar(verdicts(comparison, policy), policy),
        *_targets(comparison, policy),
        *(_further(comparison, setting) for setting in settings),
    ]


def same_order(setting: Setting) -> Side:
    """As requested in the same order: in the queue's own, or smallest area first where urgency counts."""
    return REFERENCE, setting


def _in_full(comparison: Comparison, condition: Condition, setting: Setting) -> Table:
    rows = []
    own_order: Side = (REFERENCE, "sizes")
    for side in _sides(comparison, setting):
        worst = comparison.worst_user(side, same_order(setting))
        rows.append(
            (
                side[0],
                str(comparison.ratio(side, same_order(setting))),
                str(comparison.ratio(side, same_order(setting), "jct_p95_s")),
                str(comparison.ratio(side, own_order)),
                f"{comparison.killed_part(side):.2%}",
                "-" if worst is None else f"{worst.usual:.2f} ({worst.largest:.1f})",
                f"{comparison.mean(side, 'jct_s'):,.0f}",
                f"{comparison.mean(side, 'wait_s'):,.0f}",
                f"{comparison.mean(side, 'gpu_use'):.2f}",
            )
        )
    columns = (
        "policy",
        "JCT",
        "p95",
        "JCT, queue's own order",
        "killed",
        "worst user (largest)",
        "JCT s",
        "wait s",
        "use",
    )
    title = f"{condition}, {SETTING_NAMES[setting]}: over {REFERENCE} in the same order [{CONFIDENCE:.0%} interval]"
    return Table(title, columns, tuple(rows))


def _by_condition(comparison: Comparison, setting: Setting, measured: Measured, words: str) -> Table:
    names = [name for name, of in comparison.sides if of == setting and name != REFERENCE]

    def ratio(name: str, condition: Condition) -> str:
        against = same_order(setting)
        return f"{comparison.under(condition).ratio((name, setting), against, measured).estimate:.3f}"

    rows = tuple((str(condition), *(ratio(name, condition) for name in names)) for condition in comparison.conditions)
    return Table(f"{SETTING_NAMES[setting]}: {words} over {REFERENCE} in the same order", ("", *names), rows)


def _bar(found: Sequence[ConditionVerdict], policy: str) -> Table:
    rows = tuple(
        (
            f"{each.condition}, {each.setting}",
            str(each.jct),
            str(each.p95),
            f"{each.killed:.2%}",
            "-" if each.worst_user is None else f"{each.worst_user:.2f}",
            "-" if each.by_chance is None else f"{each.by_chance:.2f}",
            "yes" if each.passed else f"no: {', '.join(each.failures)}",
        )
        for each in found
    )
    passed = sum(each.passed for each in found)
    title = f"{policy}, never worse than as requested in the same order: {passed} of {len(found)}"
    return Table(title, ("", "JCT", "p95", "killed", "worst user", "by chance", "passed"), rows)


def _targets(comparison: Comparison, policy: str) -> list[Table]:
    rows = tuple((each.wanted, each.figure, "met" if each.met else "missed") for each in targets(comparison, policy))
    return [Table(f"Targets for {policy}", ("target", "figure", ""), rows)] if rows else []


def _further(comparison: Comparison, setting: Setting) -> Table:
    figures = {side[0]: comparison.further(side) for side in _sides(comparison, setting)}
    names = tuple(dict.fromkeys(name for each in figures.values() for name in each))
    rows = []
    for policy, each in figures.items():
        values = [each.get(name) for name in names]
        rows.append((policy, *("-" if value is None else f"{value:,.4g}" for value in values)))
    title = f"{SETTING_NAMES[setting]}: further figures (docs/reference/plugins.md), means over workloads"
    return Table(title, ("policy", *names), tuple(rows))


def _sides(comparison: Comparison, setting: Setting) -> Sequence[Side]:
    """Policies that ran in ``setting``, best first."""

    def estimate(side: Side) -> float:
        found = comparison.ratio(side, same_order(setting)).estimate
        return math.inf if math.isnan(found) else found

    return sorted((side for side in comparison.sides if side[1] == setting), key=estimate)
