"""The figure of the speed model: errors at points that were held out, a panel a row."""

import io
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rlalloc_research.speed_model.held_out_speeds import TARGETS, HeldOut, Row


def draw(rows: Sequence[HeldOut]) -> bytes:
    """Return a PNG: each way to predict a row as the cumulative share of points by relative error."""
    figure = Figure(figsize=(4.2 * len(TARGETS), 4.0), layout="constrained")
    for panel, (row, target) in zip(figure.subplots(1, len(TARGETS), sharey=True), TARGETS.items(), strict=True):
        _panel(panel, row, target, [way for way in rows if way.row == row])
    figure.axes[0].set_ylabel("share of held-out points")
    figure.suptitle("Relative error of predicted speeds; the dotted lines are the target for the median")
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=110)
    return content.getvalue()


def _panel(axes: Axes, row: Row, target: float, ways: Sequence[HeldOut]) -> None:
    for way in ways:
        pairs = np.array([pair for found in way.by_table.values() for pair in found])
        errors = np.sort(np.abs(np.expm1(pairs[:, 0] - pairs[:, 1])))
        axes.plot(errors, np.arange(1, len(errors) + 1) / len(errors), label=way.known)
    axes.axvline(target, color="0.4", linestyle=":")
    axes.axhline(0.5, color="0.4", linestyle=":")
    axes.set(title=row, xlabel="relative error", xlim=(0.0, 1.0), ylim=(0.0, 1.0))
    axes.legend(loc="lower right", fontsize=7)
