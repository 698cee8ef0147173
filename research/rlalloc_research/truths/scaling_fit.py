"""Fits a knee and an exponent to every measured curve: how jobs scale in ``rlalloc_simulator.truths``."""

import math
from collections import defaultdict
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from rlalloc_research.speed_model.measured_tables import all_families
from rlalloc_simulator.truths.pollux_tables import step_times_s

PARTS: Final = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
LEAST_POINTS: Final = 3
_BATCHES: Final = {
    "bert": (12, 24, 48, 96, 192, 384),
    "cifar10": (128, 256, 512, 1024, 2048, 4096),
    "ncf": (1024, 2048, 4096, 8192, 16384, 32768),
    "imagenet": (400, 800, 1600, 3200, 6400, 12800),
    "deepspeech2": (40, 80, 160, 320, 640),
    "yolov3": (16, 32, 64, 128, 256, 512),
}
"""Global batches of Pollux' applications, but for those that one GPU takes at once."""
_KNEES: Final = np.exp(np.linspace(math.log(0.5), math.log(2048.0), 70))
_EXPONENTS: Final = np.linspace(0.02, 0.98, 49)
_Points = dict[int, float]
"""Speed, in any unit, by number of GPUs."""


class Fit(NamedTuple):
    """A source: how many curves, quantiles PARTS of their knees and exponents, median error of a log speed."""

    source: str
    curves: int
    knees: tuple[float, ...]
    exponents: tuple[float, ...]
    error: float


def scaling_fit(data: Path) -> list[Fit]:
    """Fit the tables in ``data``. Raises ConfigError or WorkloadError where one is missing."""
    fits = []
    for source, curves in _curves(data).items():
        found = np.array([_fitted(points) for points in curves if len(points) >= LEAST_POINTS])
        knees, exponents = (
            tuple(round(float(each), 3) for each in np.quantile(found[:, place], PARTS)) for place in (0, 1)
        )
        fits.append(Fit(source, len(found), knees, exponents, float(np.median(found[:, 2]))))
    return fits


def _fitted(points: _Points) -> tuple[float, float, float]:
    """The knee and the exponent with the least squared error of log speeds, in an unknown unit; and that error."""
    gpus, log_speed = np.array(sorted(points), dtype=np.float64), np.log([points[count] for count in sorted(points)])
    knees, exponents = np.meshgrid(_KNEES, _EXPONENTS, indexing="ij")
    bend = np.log1p((gpus / knees[..., None]) ** 2)
    errors = log_speed - (np.log(gpus) - (1.0 - exponents[..., None]) / 2.0 * bend)
    squared = ((errors - errors.mean(axis=-1, keepdims=True)) ** 2).mean(axis=-1)
    # Where two fit alike (a curve that was measured on one side of its knee only) the usual knee is taken.
    place = np.unravel_index(np.argmin(squared + 1e-5 * np.log(knees / 16.0) ** 2 / len(gpus)), squared.shape)
    return float(knees[place]), float(exponents[place]), float(np.sqrt(squared[place]))


def _curves(data: Path) -> dict[str, list[_Points]]:
    curves: dict[str, list[_Points]] = defaultdict(list)
    for application, batches in _BATCHES.items():
        for batch in batches:
            steps_s = step_times_s(data / "pollux", application, batch)
            curves["pollux"].append({gpus: 1.0 / each for gpus, each in steps_s.items() if batch / gpus >= 1})
    for family in all_families(data):
        if family.table == "pollux":
            continue
        by_batch: dict[float, _Points] = defaultdict(dict)
        for point in family.points:
            if family.table == "gavel" and point.nodes != -(-point.gpus // 4):
                continue  # spread over more nodes than are needed
            best = by_batch[point.local_batch if family.table == "gavel" else 0.0]
            best[point.gpus] = max(best.get(point.gpus, 0.0), point.speed)
        curves[family.table] += by_batch.values()
    return curves
