"""Pictures of simulated workloads: a Gantt chart by node, the queue and use over time, CDFs of wait and JCT.

Colours are those of Okabe and Ito ("Color Universal Design", 2008), which people with any kind of colour vision can
tell apart; lines differ in their dashes too.
"""

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
from matplotlib import pyplot
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator
from PIL import Image

from rlalloc_simulator.report.capacity_use import Reals, capacity, queue_steps, use_steps
from rlalloc_simulator.report.gantt import bars, lanes_of
from rlalloc_simulator.report.history import History
from rlalloc_simulator.report.job_figures import jct_s, wait_s

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Histories = Mapping[str, History]
"""From the name of a policy to what happened under it; all of the same workload."""

STATE_COLOURS: Final = {
    "COMPLETED": "#0072B2",
    "FAILED": "#E69F00",
    "TIMEOUT": "#D55E00",
    "OUT_OF_MEMORY": "#CC79A7",
    "CANCELLED": "#999999",
    "NODE_FAIL": "#000000",
    "REQUEUED": "#F0E442",
}
LINE_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES: Final = ("-", "--", "-.", ":")
BINS: Final = 240
"""Points of a line over time, each a mean: single events of a long workload are thinner than a pixel."""
DPI: Final = 110
LEAST_S: Final = 1.0
"""Where logarithmic axes of time begin; what is shorter counts as that long."""
_MARKS: Final = (
    (1, "1 s"), (10, "10 s"), (60, "1 min"), (600, "10 min"), (3600, "1 h"), (6 * 3600, "6 h"), (86_400, "1 d"),
    (7 * 86_400, "1 week"), (28 * 86_400, "4 weeks"),
)  # fmt: skip


def shown_until_s(histories: Histories) -> float:
    """Where axes of time end: at the last end, or where 98% of the jobs have ended if that leaves out a long tail."""
    last_s = max(history.end_s for history in histories.values())
    begin_s = min(history.begin_s for history in histories.values())
    ends_s = [[job.end_s for job in history.jobs if job.end_s is not None] for history in histories.values()]
    most_s = max((float(np.quantile(ends, 0.98)) for ends in ends_s if ends), default=last_s)
    return most_s if most_s - begin_s < 0.7 * (last_s - begin_s) else last_s


def draw_gantt(history: History, title: str, until_s: float) -> bytes:
    """Draw who held which nodes when, coloured by how the run ended, jobs in different shades; return a PNG.

    Two charts of different policies compare by eye if both are drawn until the same ``until_s``.
    """
    lanes = lanes_of(history)
    figure, axes = pyplot.subplots(figsize=(12, min(16.0, max(3.2, 1.4 + 0.35 * len(lanes)))), layout="constrained")
    begin_s = history.begin_s
    unit_s, _ = _unit(until_s - begin_s)
    thinnest = (until_s - begin_s) / unit_s / 1200  # what is shorter than a pixel can be seen too
    corners, colours = [], []
    for bar in bars(history):
        run = history.runs[bar.run]
        left, right = ((time_s - begin_s) / unit_s for time_s in (run.start_s, run.end_s))
        right = max(right, left + thinnest)
        low, high = bar.lane, bar.lane + bar.lanes
        corners.append(((left, low), (left, high), (right, high), (right, low)))
        colours.append(_shade(STATE_COLOURS[run.state], run.job))
    axes.add_collection(PolyCollection(corners, facecolors=colours, linewidths=0))
    axes.set(
        xlim=(0, max(1.0, until_s - begin_s) / unit_s),
        ylim=(sum(lanes), 0),
        xlabel=_time_label(begin_s, until_s, history.end_s),
    )
    axes.set_ylabel("nodes, a lane a GPU" if any(node.gpus for node in history.nodes) else "nodes, a lane a CPU")
    _name_nodes(axes, lanes, history.node_names)
    there = {run.state for run in history.runs}
    axes.legend(
        handles=[
            Patch(color=colour, label=state.lower().replace("_", " "))
            for state, colour in STATE_COLOURS.items()
            if state in there
        ],
        loc="lower left", bbox_to_anchor=(0, 1), ncols=7, frameon=False, fontsize=9,
    )  # fmt: skip
    axes.set_title(title, loc="right", fontsize=10)
    return _png(figure)


def draw_timeline(histories: Histories, until_s: float) -> bytes:
    """Draw queue length and what jobs hold of GPUs, CPUs and memory over time, a line a policy; return a PNG."""
    begin_s = min(history.begin_s for history in histories.values())
    unit_s, _ = _unit(until_s - begin_s)
    edges_s = np.linspace(begin_s, max(until_s, begin_s + 1.0), BINS + 1)
    middle = ((edges_s[1:] + edges_s[:-1]) / 2 - begin_s) / unit_s
    figure, panels = pyplot.subplots(4, 1, figsize=(12, 9), sharex=True, layout="constrained")
    for place, (name, history) in enumerate(histories.items()):
        style = _style(place)
        panels[0].plot(middle, queue_steps(history).means(edges_s), label=name, **style)
        held = zip(panels[1:], use_steps(history), capacity(history), strict=True)
        for axes, steps, there in held:
            axes.plot(middle, 100 * steps.means(edges_s) / max(1.0, there), **style)
    panels[0].set_ylabel("queue [jobs]")
    panels[0].set_ylim(bottom=0)
    panels[0].yaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
    for axes, what in zip(panels[1:], ("GPUs", "CPUs", "memory"), strict=True):
        axes.set_ylabel(f"{what} held [%]")
        axes.set_ylim(0, 103)
    for axes in panels:
        axes.grid(visible=True, alpha=0.3)
    last_s = max(history.end_s for history in histories.values())
    a_point = f"each point the mean of {(edges_s[1] - edges_s[0]) / 60:.3g} min"
    panels[-1].set_xlabel(f"{_time_label(begin_s, until_s, last_s)}; {a_point}")
    panels[-1].set_xlim(0, float(edges_s[-1] - begin_s) / unit_s)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=5, frameon=False)
    return _png(figure)


def draw_cdfs(histories: Histories) -> bytes:
    """Draw the shares of jobs that waited, and took from submission to end, at most so long; return a PNG."""
    figure, panels = pyplot.subplots(1, 2, figsize=(12, 4.6), sharey=True, layout="constrained")
    for axes, what, of_job in zip(panels, ("wait until the start", "JCT"), (wait_s, jct_s), strict=True):
        longest_s = LEAST_S
        for place, (name, history) in enumerate(histories.items()):
            ran = [job for job in history.jobs if job.first_start_s is not None and job.end_s is not None]
            values_s = np.maximum(LEAST_S, np.sort([of_job(job) for job in ran]))
            if len(values_s):
                longest_s = max(longest_s, float(values_s[-1]))
                axes.plot(*_staircase(values_s), label=name, **_style(place))
        axes.set_xscale("log")
        axes.set_xlim(LEAST_S, 1.5 * longest_s)
        marks = [(time_s, text) for time_s, text in _MARKS if time_s <= 1.5 * longest_s]
        axes.set_xticks([time_s for time_s, _ in marks], [text for _, text in marks], fontsize=9)
        axes.set_xticks([], minor=True)
        axes.set(xlabel=f"{what}, logarithmic; less than {LEAST_S:g} s counts as that", ylim=(0, 1.01))
        axes.grid(visible=True, alpha=0.3)
    panels[0].set_ylabel("share of the jobs that ran")
    panels[0].yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.0%}"))
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=5, frameon=False)
    return _png(figure)


def _staircase(values_s: Reals) -> tuple[Reals, Reals]:
    """The empirical distribution of sorted values, from the left edge to its end, with upright steps."""
    shares = np.arange(1, len(values_s) + 1) / len(values_s)
    times_s = np.concatenate(([LEAST_S], np.repeat(values_s, 2)))
    return times_s, np.concatenate(([0.0, 0.0], np.repeat(shares, 2)[:-1]))


def _name_nodes(axes: "Axes", lanes: Sequence[int], names: Sequence[str]) -> None:
    """Name the nodes at their middles, as many as can be read, and draw lines between them."""
    borders = np.concatenate(([0], np.cumsum(lanes)))
    every = max(1, -(-len(lanes) // 40))
    axes.set_yticks(((borders[1:] + borders[:-1]) / 2)[::every], [*names][::every], fontsize=8)
    axes.tick_params(axis="y", length=0)
    if len(lanes) <= 100:
        axes.hlines(borders, *axes.get_xlim(), colors="#555555", linewidths=0.5)


def _style(place: int) -> dict[str, object]:
    return {
        "color": LINE_COLOURS[place % len(LINE_COLOURS)],
        "linestyle": DASHES[place % len(DASHES)],
        "linewidth": 1.6,
    }


def _unit(span_s: float) -> tuple[float, str]:
    """Seconds of the unit in which a time axis of this length reads well, and its name."""
    for unit_s, name in ((86_400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if span_s >= 3 * unit_s:
            return unit_s, name
    return 1.0, "seconds"


def _shade(colour: str, job: int) -> tuple[float, ...]:
    """One of three shades of ``colour``, so that jobs beside each other can be told apart."""
    white = 0.22 * (job % 3)
    return tuple(channel + white * (1 - channel) for channel in to_rgb(colour))


def _time_label(begin_s: float, until_s: float, last_s: float) -> str:
    """The label of an axis of time, which says what lies beyond its end."""
    unit_s, unit = _unit(until_s - begin_s)
    beyond = f"; the last job ends at {(last_s - begin_s) / unit_s:.1f}" if last_s > until_s else ""
    return f"time [{unit}]{beyond}"


def _png(figure: "Figure") -> bytes:
    """Render with 256 colours: a quarter of the bytes, and nothing that the eye would miss in flat colours."""
    rendered, reduced = io.BytesIO(), io.BytesIO()
    figure.savefig(rendered, format="png", dpi=DPI)
    pyplot.close(figure)
    with Image.open(rendered) as image:
        image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(reduced, format="png", optimize=True)
    return reduced.getvalue()
