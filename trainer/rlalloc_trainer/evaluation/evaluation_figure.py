"""The figure of an evaluation: mean JCT ratio versus as-requested, by load, one panel for each scenario."""

import io
from collections.abc import Sequence
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rlalloc_simulator.comparison.compared_policy import REFERENCE
from rlalloc_simulator.comparison.paired_statistics import CONFIDENCE
from rlalloc_trainer.evaluation.paired_comparison import Comparison, Side
from rlalloc_trainer.evaluation.result_tables import REFERENCE_SIDE, SETTING_NAMES

SHOWN_POLICIES: Final = ("repaired", "efficiency-adaptive", "marginal-gain", "price-ef")
STYLES: Final = {"sizes": "-", "urgency": "--", "requeue": ":"}
WIDTH_IN: Final = 4.2
HEIGHT_IN: Final = 4.0


def draw(comparison: Comparison, policy: str) -> bytes:
    """Return a PNG: ``policy`` in every setting and the strongest others with sizes only, with intervals."""
    shown = [side for side in comparison.sides if side[0] == policy]
    shown += [(name, "sizes") for name in SHOWN_POLICIES if (name, "sizes") in comparison.sides and name != policy]
    panels: list[str | None] = [*comparison.scenarios, *([None] if len(comparison.scenarios) > 1 else [])]
    figure = Figure(figsize=(WIDTH_IN * len(panels), HEIGHT_IN), layout="constrained")
    axes: Sequence[Axes] = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for panel, scenario in zip(axes, panels, strict=True):
        _panel(panel, comparison, shown, scenario)
    axes[0].set_ylabel(f"mean JCT ratio versus {REFERENCE}")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(f"Paired on the same workloads; {CONFIDENCE:.0%} intervals over weeks")
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=110)
    return content.getvalue()


def _panel(axes: Axes, comparison: Comparison, shown: Sequence[Side], scenario: str | None) -> None:
    scenarios = None if scenario is None else [scenario]
    names = list(dict.fromkeys(name for name, _ in shown))
    for place, side in enumerate(shown):
        ratios = [
            comparison.ratio(side, REFERENCE_SIDE, loads=[load], scenarios=scenarios) for load in comparison.loads
        ]
        # Points of one load stand side by side, so that their intervals can be told apart.
        loads = [load + 0.008 * (place - len(shown) / 2) for load in comparison.loads]
        axes.errorbar(
            loads,
            [ratio.estimate for ratio in ratios],
            yerr=[
                # Alike weeks make intervals of no width, where rounding may turn the sign.
                [ratio.estimate - min(ratio.low, ratio.estimate) for ratio in ratios],
                [max(ratio.high, ratio.estimate) - ratio.estimate for ratio in ratios],
            ],
            label=f"{side[0]}, {SETTING_NAMES[side[1]]}",
            color=f"C{names.index(side[0])}",
            linestyle=STYLES[side[1]],
            marker=".",
            capsize=2,
        )
    axes.axhline(1.0, color="grey", linewidth=0.8)
    axes.set_title(scenario or "all scenarios")
    axes.set_xlabel("offered load")
    axes.grid(alpha=0.3)
