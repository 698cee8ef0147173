"""Step times that Pollux measured (Qiao et al., OSDI 2021; petuum/adaptdl, branch osdi21-artifact), as speed curves.

The folder has ``<application>/placements.csv`` (placement, local_bsz, step_time, sync_time; a placement has a digit
for each node, its GPUs) and ``scalability.csv`` (num_nodes, num_replicas instead), measured on 16 nodes of 4 T4.
The global batch stays: more GPUs get smaller local batches, and what a GPU cannot hold is accumulated in steps
without synchronisation, by the rules of Pollux's own simulator.
"""

import csv
import math
from collections import defaultdict
from pathlib import Path
from typing import Final

import numpy as np

from rlalloc_simulator.workloads.workload_errors import WorkloadError

GPUS_PER_NODE: Final = 4
_COUNTS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Of which there are measurements on as few nodes as hold them; between them curves are linear in log-log."""
_LARGEST_LOCAL_BATCH: Final = {"yolov3": 8}
"""Where the simulator of Pollux sets another than the largest that was measured."""
_FIRST_BATCH: Final = {"bert": 12, "cifar10": 128, "ncf": 256, "imagenet": 200, "deepspeech2": 20, "yolov3": 8}
"""Global batches that the applications were tuned for; on one GPU a larger one is accumulated at least once."""

_Times = dict[int, tuple[float, float]]
"""Step and synchronisation time [s] by local batch."""


def step_times_s(folder: Path, application: str, global_batch: int) -> dict[int, float]:
    """Return the time of a step [s] by number of GPUs, packed on nodes of four.

    Raises WorkloadError where the tables cannot be read, or have no such application.
    """
    measured = _measured(folder, application)
    return {gpus: _step_s(measured[gpus], application, global_batch, gpus) for gpus in _COUNTS if measured.get(gpus)}


def _step_s(times: _Times, application: str, global_batch: int, gpus: int) -> float:
    local = math.ceil(global_batch / gpus - 1e-8)
    most = _LARGEST_LOCAL_BATCH.get(application, max(times))
    accumulated = math.ceil(local / most - 1e-8) - 1
    if gpus == 1 and global_batch > _FIRST_BATCH[application]:
        accumulated = max(1, accumulated)
    at_once = math.ceil(local / (accumulated + 1) - 1e-8)
    batches = sorted(times)
    step_s, sync_s = (
        float(np.interp(at_once, batches, [times[batch][place] for batch in batches])) for place in (0, 1)
    )
    return step_s + accumulated * (step_s - sync_s)


def _measured(folder: Path, application: str) -> dict[int, _Times]:
    """Times by GPUs on as few nodes as hold them."""
    found: dict[int, _Times] = defaultdict(dict)
    if application not in _FIRST_BATCH:
        raise WorkloadError(f"{application}: Pollux measured {', '.join(_FIRST_BATCH)}")
    for row in _rows(folder / application / "placements.csv"):
        placement = [int(digit) for digit in row["placement"]]
        _add(found, len(placement), sum(placement), max(placement) - min(placement), row)
    for row in _rows(folder / application / "scalability.csv"):
        _add(found, int(row["num_nodes"]), int(row["num_replicas"]), 0, row)
    return found


def _add(found: dict[int, _Times], nodes: int, gpus: int, unevenness: int, row: dict[str, str]) -> None:
    if nodes == math.ceil(gpus / GPUS_PER_NODE) and unevenness == 0:
        found[gpus][int(row["local_bsz"])] = (float(row["step_time"]), float(row["sync_time"]))


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(newline="") as file:
            return list(csv.DictReader(file))
    except OSError as err:
        raise WorkloadError(
            f"{path}: {err.strerror}; name a folder with the tables and workloads of Pollux (petuum/adaptdl)"
        ) from err
