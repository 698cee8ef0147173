"""The plot of ``rlalloc history show``: run times against time limits."""

from pathlib import Path

import numpy as np

from rlalloc.history.history_summary import Spans


def plot_limits(spans: Spans, path: Path) -> None:
    """Draw run time against limit on log scales, dark where many jobs are; the suffix says which format.

    Raises OSError, ValueError (for a suffix that is no format).
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 5.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    limit_h, run_h = spans.limit_s / 3600, spans.run_s / 3600
    cells = axes.hexbin(limit_h, run_h, xscale="log", yscale="log", bins="log", gridsize=45, mincnt=1, cmap="viridis")
    figure.colorbar(cells, label="jobs")
    ends = np.array([limit_h.min() / 1.5, np.quantile(limit_h, 0.999) * 1.5])  # a few ask for years
    for factor, style in ((1, "-"), (10, "--"), (100, ":")):
        label = "run time = limit" if factor == 1 else f"limit / {factor}"
        axes.plot(ends, ends / factor, style, color="tab:red", linewidth=1, label=label)
    axes.set(
        xlabel="time limit [h]",
        ylabel="run time [h]",
        xlim=ends,
        ylim=(run_h.min() / 1.5, run_h.max() * 1.5),
        title=f"{len(run_h):,} jobs; in the median the limit is {np.median(limit_h / run_h):.3g} times the run time",
    )
    axes.legend(loc="lower right")
    figure.savefig(path)
