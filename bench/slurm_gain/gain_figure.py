"""One PNG: mean JCT by seed on both sides, and each real gain against the predicted one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes

from rlalloc_validation.validation_pictures import save
from rlalloc_validation.validation_settings import Mode
from slurm_gain.gain_plan import COMPARED, NAMES, SIZED, WorkloadName
from slurm_gain.gains import Measured

COLOURS: Final[dict[Mode, str]] = {"off": "#999999", "repaired": "#0072B2", "enforce": "#009E73", "late": "#D55E00"}
MARKERS: Final[dict[WorkloadName, str]] = {"contention": "o", "modest": "^", "demo": "s"}
WIDTH: Final = 0.8 / len(COMPARED)
"""Of a bar; the bars of one seed stand together."""


def draw(measured: Sequence[Measured], path: Path) -> None:
    """Draw all workloads and seeds. Raises ValidationError where ``path`` cannot be written."""
    figure, (bars, points) = pyplot.subplots(
        1, 2, figsize=(11.0, 4.5), layout="constrained", width_ratios=(max(2, len(measured)), 3)
    )
    _bars(bars, measured)
    _points(points, measured)
    save(figure, path)


def _bars(axes: Axes, measured: Sequence[Measured]) -> None:
    """Real mean JCT as bars, the predicted one as a line across each."""
    places = np.arange(len(measured))
    for row, mode in enumerate(COMPARED):
        at = places + (row - (len(COMPARED) - 1) / 2) * WIDTH
        axes.bar(at, [each.taken[mode].jct_s for each in measured], WIDTH, color=COLOURS[mode], label=NAMES[mode])
        predicted_s = [each.taken[mode].on("predicted") for each in measured]
        axes.hlines(
            predicted_s,
            at - WIDTH / 2,
            at + WIDTH / 2,
            color="black",
            linewidth=1.5,
            label="predicted" if mode == COMPARED[-1] else "",
        )
    axes.set_xticks(places, [f"{each.workload}\nseed {each.seed}" for each in measured], fontsize="small")
    axes.set_ylabel("mean JCT [s]")
    axes.margins(y=0.25)  # room for the legend
    axes.legend(fontsize="small", ncols=2, loc="upper left")


def _points(axes: Axes, measured: Sequence[Measured]) -> None:
    """Each gain, a point per seed; on the line the simulator predicted it exactly."""
    for mode in SIZED:
        for workload in dict.fromkeys(each.workload for each in measured):
            those = [each for each in measured if each.workload == workload]
            axes.plot(
                [each.ratio(mode, "predicted") for each in those],
                [each.ratio(mode, "real") for each in those],
                MARKERS[workload],
                color=COLOURS[mode],
                markersize=5,
                label=f"{NAMES[mode]}, {workload}",
            )
    axes.axline((1.0, 1.0), slope=1.0, color="#999999", linewidth=0.8, zorder=0)
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.1)
    axes.set_xlabel("mean JCT over as submitted, predicted")
    axes.set_ylabel("the same, real (sacct)")
    axes.legend(fontsize="small")
