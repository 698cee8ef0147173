"""Reads published measurements of training speed into one form: families of measured points.

The tables stay where they are; ``--data`` names the folder. A family is one model with one way to train it on one
type of GPU. Speeds are samples a second, or for MLPerf the inverse of the time to train.
"""

import csv
import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from rlalloc.errors import ConfigError
from rlalloc.speed.speed_belief import Measurements
from rlalloc.speed.step_time import Layouts

NOISE: Final = 0.1
"""What two measurements of the same are taken to differ by; the logs of speeds, so 10%."""
_GAVEL_GPUS_A_NODE: Final = 4
LEAST_LAYOUTS: Final = 3
"""GPUs and nodes that a family must have been measured in, to say how it scales."""


class Point(NamedTuple):
    """One measurement. ``global_batch`` is 0 where the speed does not depend on convergence."""

    gpus: int
    nodes: int
    local_batch: float
    global_batch: float
    speed: float


class Family(NamedTuple):
    """All points of one model, trained in one way, on one type of GPU; ``model`` is what is left out together."""

    table: str
    model: str
    variant: str
    gpu_type: str
    points: tuple[Point, ...]

    @property
    def counts(self) -> list[int]:
        """Its different numbers of GPUs, ascending."""
        return sorted({point.gpus for point in self.points})

    @property
    def tells_scaling(self) -> bool:
        """Whether it was measured in at least three layouts."""
        return len({(point.gpus, point.nodes) for point in self.points}) >= LEAST_LAYOUTS

    def measurements(self, units_of: "Family | None" = None) -> Measurements:
        """Its points as the belief takes them: batches in units of the median of ``units_of``, itself if None."""
        columns = np.array(self.points, dtype=np.float64).T
        local, whole = (units_of or self).units
        layouts = Layouts(columns[0], columns[1], columns[2] / local, columns[3] / whole)
        group = np.zeros(len(self.points), dtype=np.int64)
        return Measurements(layouts, np.log(columns[4]), group, np.full(len(self.points), NOISE))

    @property
    def units(self) -> tuple[float, float]:
        """Median local and global batch."""
        whole = [math.log(point.global_batch) for point in self.points if point.global_batch > 0]
        local = [math.log(point.local_batch) for point in self.points]
        return math.exp(np.median(local)), math.exp(np.median(whole)) if whole else 1.0


_Row = tuple[str, str, str, Point]
"""Model, variant, type of GPU, and what was measured."""


def all_families(data: Path) -> list[Family]:
    """Read every table in ``data``. Raises ConfigError where one is missing."""
    readers: dict[str, Callable[[Path], Iterator[_Row]]] = {
        "pollux": _pollux,
        "gavel": _gavel,
        "mpt": _mpt,
        "mlperf": _mlperf,
    }
    families = []
    for table, reader in readers.items():
        found: defaultdict[tuple[str, str, str], list[Point]] = defaultdict(list)
        try:
            for model, variant, gpu_type, point in reader(data):
                found[model, variant, gpu_type].append(point)
        except (OSError, KeyError, ValueError) as err:
            raise ConfigError(f"cannot read the table {table} in {data}: {err!r}") from err
        families += [Family(table, *key, tuple(points)) for key, points in sorted(found.items())]
    return families


def cpu_sensitivities(data: Path) -> list[list[float]]:
    """Synergy's speeds by CPUs a GPU, from 1 on, with all of the memory; a list for each model and kind of server.

    Raises ConfigError where the table is missing.
    """
    try:
        table = json.loads((data / "synergy" / "cpu_mem_sensitivity_extracted.json").read_text())
        servers = table["models"].values()
        return [[row[-1] for row in model["tput_cpu_x_mem"]] for models in servers for model in models.values()]
    except (OSError, KeyError, ValueError) as err:
        raise ConfigError(f"cannot read the table synergy in {data}: {err!r}") from err


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open(newline="") as file:
        yield from csv.DictReader(file)


def _pollux(data: Path) -> Iterator[_Row]:
    for folder in sorted(path for path in (data / "pollux").iterdir() if (path / "placements.csv").exists()):
        for row in _rows(folder / "placements.csv"):
            digits = [int(digit) for digit in row["placement"]]
            yield folder.name, "", "T4", _pollux_point(sum(digits), len(digits), row)
        for row in _rows(folder / "scalability.csv"):
            yield folder.name, "", "T4", _pollux_point(int(row["num_replicas"]), int(row["num_nodes"]), row)


def _pollux_point(gpus: int, nodes: int, row: dict[str, str]) -> Point:
    batch = float(row["local_bsz"])
    return Point(gpus, nodes, batch, 0.0, gpus * batch / float(row["step_time"]))


def _gavel(data: Path) -> Iterator[_Row]:
    table = json.loads((data / "gavel" / "simulation_throughputs.json").read_text())
    for kind, jobs in table.items():
        gpu_type, _, spread = kind.partition("_")
        for key, with_others in jobs.items():
            found = re.match(r"\('(.*?)(?: \(batch size (\d+)\))?', (\d+)\)", key)
            steps_a_second = with_others["null"]
            if not found or steps_a_second <= 0 or (spread and found[3] == "1"):
                continue
            batch, gpus = float(found[2] or 1), int(found[3])
            nodes = gpus if spread else -(-gpus // _GAVEL_GPUS_A_NODE)
            yield found[1], "", gpu_type, Point(gpus, nodes, batch, 0.0, steps_a_second * batch)


def _mpt(data: Path) -> Iterator[_Row]:
    for row in _rows(data / "llm-scaling" / "mpt-throughput.csv"):
        gpus, length = int(row["gpus"]), row["seqlen_t"]
        recomputed = " recomputing" if row["activation_checkpointing"] == "True" else ""
        variant = f"{length} tokens{recomputed}{' fp8' if 'fp8' in row['precision'] else ''}"
        batch = float(row["microbatchsize"])
        yield (
            f"MPT {row['model']}",
            variant,
            row["gpu"],
            Point(gpus, -(-gpus // 8), batch, 0.0, float(row["throughput_t_s"])),
        )


def _mlperf(data: Path) -> Iterator[_Row]:
    for row in _rows(data / "llm-scaling" / "mlperf-training-4.0.csv"):
        gpus, whole = int(row["accelerators"]), float(row["global_batch_size"] or 0)
        seconds = float(row["time_to_train_s_median"])
        if whole <= 0 or "NVIDIA" not in row["accelerator"]:
            continue
        point = Point(gpus, int(row["nodes"]), whole / gpus, whole, 1.0 / seconds)
        yield row["benchmark"], "", row["accelerator"].removeprefix("NVIDIA ").replace("SXM5-", "SXM-"), point
