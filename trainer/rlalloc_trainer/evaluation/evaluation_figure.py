"""The figure of an evaluation: mean JCT over as requested in the same order, a row a condition, a panel a setting."""

import io
from typing import Final

from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from rlalloc_simulator.comparison.compared_policy import REFERENCE
from rlalloc_simulator.comparison.paired_statistics import CONFIDENCE
from rlalloc_trainer.evaluation.paired_comparison import Comparison
from rlalloc_trainer.evaluation.result_tables import SETTING_NAMES, same_order

WIDTH_IN: Final = 5.0
ROW_IN: Final = 0.28
SPAN: Final = (0.3, 3.0)


def draw(comparison: Comparison, policy: str) -> bytes:
    """Return a PNG: ``policy`` with its interval, the others as points."""
    settings = list(dict.fromkeys(setting for _, setting in comparison.sides))
    conditions = comparison.conditions[::-1]
    figure = Figure(figsize=(WIDTH_IN * len(settings) + 2, 2 + ROW_IN * len(conditions)), layout="constrained")
    panels = figure.subplots(1, len(settings), sharey=True, squeeze=False)[0]
    for panel, setting in zip(panels, settings, strict=True):
        names = [name for name, of in comparison.sides if of == setting and name not in (policy, REFERENCE)]
        for place, name in enumerate((policy, *names)):
            ratios = [
                comparison.under(condition).ratio((name, setting), same_order(setting)) for condition in conditions
            ]
            rows = range(len(conditions))
            if name == policy:
                lows = [ratio.estimate - min(ratio.low, ratio.estimate) for ratio in ratios]
                highs = [max(ratio.high, ratio.estimate) - ratio.estimate for ratio in ratios]
                panel.errorbar(
                    [ratio.estimate for ratio in ratios], rows, xerr=[lows, highs], fmt="o", color="C0", label=name
                )
            else:
                panel.plot([ratio.estimate for ratio in ratios], rows, ".", color=f"C{place}", label=name)
        panel.axvline(1.0, color="grey", linewidth=0.8)
        panel.set_xscale("log")
        panel.set_xlim(*SPAN)
        panel.set_xticks((0.5, 1.0, 2.0), labels=("0.5", "1", "2"))
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.set_yticks(range(len(conditions)), labels=[str(condition) for condition in conditions])
        panel.set_title(SETTING_NAMES[setting])
        panel.grid(alpha=0.3)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(f"Mean JCT over {REFERENCE} in the same order; {CONFIDENCE:.0%} intervals")
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=100)
    return content.getvalue()
