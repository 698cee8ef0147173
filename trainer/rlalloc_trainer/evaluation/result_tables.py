"""The tables of an evaluation, as text cells; the terminal and Markdown show the same ones."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from rlalloc_simulator.comparison.compared_policy import REFERENCE
from rlalloc_simulator.comparison.paired_statistics import CONFIDENCE
from rlalloc_trainer.evaluation.paired_comparison import Comparison, Measured, Side
from rlalloc_trainer.evaluation.scenario_runs import Setting
from rlalloc_trainer.evaluation.site_choice import Site
from rlalloc_trainer.evaluation.targets import targets

REFERENCE_SIDE: Final[Side] = (REFERENCE, "sizes")
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
    """Return all tables of an evaluation of ``policy``."""
    settings = list(dict.fromkeys(setting for _, setting in comparison.sides))
    return [
        *(_overview(comparison, setting) for setting in settings),
        *(_by_scenario(comparison, setting) for setting in settings if len(comparison.scenarios) > 1),
        *(_further(comparison, setting) for setting in settings),
        *(_against(comparison, policy, setting) for setting in settings),
        _targets(comparison, policy),
    ]


def _overview(comparison: Comparison, setting: Setting) -> Table:
    loads = comparison.loads
    columns = (
        "policy",
        "JCT, all",
        *(f"{load:g}" for load in loads),
        "p95",
        "p99",
        "JCT h",
        "wait h",
        "slowdown",
        "GPU-h",
        "use",
        "worst user",
        "killed",
        *(("requeued",) if setting == "requeue" else ()),
    )
    rows = []
    for side in _sides(comparison, setting):
        worst = comparison.worst_user(side, REFERENCE_SIDE)

        def mean(measured: Measured, side: Side = side) -> float:
            return comparison.mean(side, measured)

        rows.append(
            (
                side[0],
                str(comparison.ratio(side, REFERENCE_SIDE)),
                *(f"{comparison.ratio(side, REFERENCE_SIDE, loads=[load]).estimate:.3f}" for load in loads),
                *(f"{comparison.ratio(side, REFERENCE_SIDE, p).estimate:.3f}" for p in _QUANTILES),
                f"{mean('jct_s') / 3600:.2f}",
                f"{mean('wait_s') / 3600:.2f}",
                f"{mean('bounded_slowdown'):.1f}",
                f"{mean('gpu_hours'):,.0f}",
                f"{mean('gpu_use'):.2f}",
                "-" if worst is None else f"{worst[0]:.2f}",
                f"{mean('killed'):.1f}",
                *((f"{mean('requeues'):.1f}",) if setting == "requeue" else ()),
            )
        )
    title = (
        f"{SETTING_NAMES[setting]}: JCT ratio versus {REFERENCE} (mean, by load, and quantiles) "
        f"[{CONFIDENCE:.0%} interval], and means over workloads"
    )
    return Table(title, columns, tuple(rows))


_QUANTILES: Final[tuple[Measured, Measured]] = ("jct_p95_s", "jct_p99_s")


def _by_scenario(comparison: Comparison, setting: Setting) -> Table:
    rows = tuple(
        (side[0], *(str(comparison.ratio(side, REFERENCE_SIDE, scenarios=[name])) for name in comparison.scenarios))
        for side in _sides(comparison, setting)
    )
    return Table(
        f"{SETTING_NAMES[setting]}: mean JCT ratio versus {REFERENCE}, by scenario, over all loads",
        ("policy", *comparison.scenarios),
        rows,
    )


def _further(comparison: Comparison, setting: Setting) -> Table:
    figures = {side[0]: comparison.further(side) for side in _sides(comparison, setting)}
    names = tuple(dict.fromkeys(name for each in figures.values() for name in each))
    rows = []
    for policy, each in figures.items():
        values = [each.get(name) for name in names]
        rows.append((policy, *("-" if value is None else f"{value:,.4g}" for value in values)))
    title = f"{SETTING_NAMES[setting]}: further figures (docs/reference/plugins.md), means over workloads"
    return Table(title, ("policy", *names), tuple(rows))


def _against(comparison: Comparison, policy: str, setting: Setting) -> Table:
    mine: Side = (policy, setting)
    rows = tuple(
        (
            other[0],
            str(comparison.ratio(mine, other)),
            *(str(comparison.ratio(mine, other, loads=[load])) for load in comparison.loads),
            str(comparison.ratio(mine, other, "jct_p95_s")),
        )
        for other in _sides(comparison, setting)
        if other[0] != policy
    )
    return Table(
        f"{SETTING_NAMES[setting]}: mean JCT ratio of {policy} versus each policy",
        ("policy", "all", *(f"{load:g}" for load in comparison.loads), "p95"),
        rows,
    )


def _targets(comparison: Comparison, policy: str) -> Table:
    said = {True: "met", False: "missed", None: "-"}
    rows = tuple((each.wanted, each.figure, said[each.met]) for each in targets(comparison, policy))
    return Table(f"Targets for {policy}", ("target", "figure", ""), rows)


def served_table(served: Mapping[Site, Sequence[str]]) -> Table:
    """Return the policy that each site chose; pieces of a file may have chosen differently."""
    return Table(
        "Policy that each site chooses by its validation weeks (a file: by its earlier pieces)",
        ("scenario", "setting", "policy"),
        tuple((site.scenario, SETTING_NAMES[site.setting], ", ".join(names)) for site, names in served.items()),
    )


def _sides(comparison: Comparison, setting: Setting) -> Sequence[Side]:
    """Policies that ran in ``setting``, best first."""
    mine = [side for side in comparison.sides if side[1] == setting]
    return sorted(mine, key=lambda side: _estimate(comparison, side))


def _estimate(comparison: Comparison, side: Side) -> float:
    estimate = comparison.ratio(side, REFERENCE_SIDE).estimate
    return math.inf if math.isnan(estimate) else estimate
