"""Pictures of a comparison: starts against starts, and queue and use over time, the real site beside the engine."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rlalloc_validation.job_comparison import Compared, Reals
from rlalloc_validation.recorded_run import Run
from rlalloc_validation.validation_settings import ValidationError

REAL_COLOUR: Final = "#0072B2"
ENGINE_COLOUR: Final = "#D55E00"
DPI: Final = 100
Steps = Callable[[Run], tuple[Reals, Reals]]
"""Times and what holds from each on."""


def draw(compared: Sequence[Compared], path: Path) -> None:
    """Draw all modes into one PNG, a column each. Raises ValidationError where it cannot be written."""
    figure, grid = pyplot.subplots(
        3, len(compared), figsize=(4.2 * len(compared), 9.0), layout="constrained", squeeze=False
    )
    for column, each in enumerate(compared):
        began_s = each.real.began_s
        _starts(grid[0][column], each, began_s)
        _lines(grid[1][column], each, began_s, "jobs waiting", _waiting)
        _lines(grid[2][column], each, began_s, "GPUs held", _held)
        grid[0][column].set_title(each.mode)
    grid[1][0].legend(fontsize="small")
    save(figure, path)


def save(figure: Figure, path: Path) -> None:
    """Write a picture, and forget it. Raises ValidationError where ``path`` cannot be written."""
    try:
        figure.savefig(path, dpi=DPI, metadata={"Software": None})
    except OSError as err:
        raise ValidationError(f"{path}: {err.strerror}; name a file in a folder that you may write to") from err
    finally:
        pyplot.close(figure)


def _starts(axes: Axes, compared: Compared, began_s: float) -> None:
    pairs = [pair for pair in compared.pairs if pair.real.started_s is not None]
    real = np.array([pair.real.started_s for pair in pairs], dtype=np.float64) - began_s
    engine = np.array([pair.simulated.started_s or np.nan for pair in pairs], dtype=np.float64) - began_s
    axes.plot([0, real.max()], [0, real.max()], color="#999999", linewidth=0.8)
    axes.plot(real, engine, ".", color=REAL_COLOUR, markersize=3)
    axes.set_xlabel("start, real [s]")
    axes.set_ylabel("start, engine [s]")


def _lines(axes: Axes, compared: Compared, began_s: float, what: str, steps_of: Steps) -> None:
    for run, name, colour, dash in (
        (compared.real, "real", REAL_COLOUR, "-"),
        (compared.simulated, "engine", ENGINE_COLOUR, "--"),
    ):
        times_s, values = steps_of(run)
        axes.step(times_s - began_s, values, where="post", label=name, color=colour, linestyle=dash, linewidth=1.0)
    axes.set_xlabel("time [s]")
    axes.set_ylabel(what)


def _waiting(run: Run) -> tuple[Reals, Reals]:
    """Jobs submitted and not started: times and how many from then on."""
    changes = [(job.noted_s, 1.0) for job in run.jobs]
    changes += [(job.noted_s + job.wait_s, -1.0) for job in run.jobs]
    return _summed(changes)


def _held(run: Run) -> tuple[Reals, Reals]:
    """GPUs of running jobs: times and how many from then on."""
    ran = [job for job in run.jobs if job.started_s is not None]
    changes = [(job.noted_s + job.wait_s, float(job.size.gpus)) for job in ran]
    changes += [(job.ended_s, -float(job.size.gpus)) for job in ran]
    return _summed(changes)


def _summed(changes: Sequence[tuple[float, float]]) -> tuple[Reals, Reals]:
    # In one second what comes is counted before what goes: nothing falls below 0.
    ordered = np.array(sorted(changes, key=lambda change: (change[0], -change[1])), dtype=np.float64)
    return ordered[:, 0], np.cumsum(ordered[:, 1])
