"""The fitted model of a workload: a small JSON file in which everything can be looked at and changed by hand.

Shares are of 1; distributions are quantiles at ``PROBABILITIES``; the shipped ones lie in ``models/``.
"""

import bisect
import math
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from rlalloc_simulator.workloads.assumptions import ByClass, Share
from rlalloc_simulator.workloads.workload_errors import WorkloadError
from rlalloc_simulator.workloads.workload_job import Count, EndState, NotNegativeInt, Positive, Seconds, Word

PROBABILITIES: Final = (
    0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85,
    0.9, 0.925, 0.95, 0.97, 0.98, 0.99, 0.995, 0.998, 1.0,
)  # fmt: skip
"""Denser where the tail is: it holds most of the GPU time."""


class Quantiles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A distribution of positive numbers: its values at PROBABILITIES, log-linear between them."""

    values: tuple[Positive, ...]

    def __post_init__(self) -> None:
        if len(self.values) != len(PROBABILITIES):
            raise ValueError(f"{len(self.values)} quantiles: write {len(PROBABILITIES)}, at {PROBABILITIES}")
        if any(later < earlier for earlier, later in zip(self.values, self.values[1:], strict=False)):
            raise ValueError("quantiles must not descend")

    @classmethod
    def of(cls, sample: Sequence[float] | NDArray[np.float64], least: float) -> "Quantiles":
        """Of a sample that is not empty; smaller values count as ``least``. Four digits are kept."""
        values = np.quantile(np.maximum(np.asarray(sample, dtype=np.float64), least), PROBABILITIES)
        return cls(tuple(float(f"{value:.4g}") for value in values))

    def at(self, probability: float) -> float:
        """The quantile."""
        right = min(max(1, bisect.bisect_right(PROBABILITIES, probability)), len(PROBABILITIES) - 1)
        low, high = self.values[right - 1], self.values[right]
        part = (probability - PROBABILITIES[right - 1]) / (PROBABILITIES[right] - PROBABILITIES[right - 1])
        return low * math.exp(part * math.log(high / low)) if high > low else low


class Arrivals(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Submissions: a rate with a daily and a weekly rhythm (weights of mean 1, Monday first), and bursts.

    Bursts multiply each hour's rate by a log-normal of mean 1 and ``burst_log_deviation``, whose logarithms are an
    AR(1) process with ``burst_memory`` from an hour to the next.
    """

    jobs_per_hour: Positive
    hour_of_day: Annotated[tuple[Seconds, ...], msgspec.Meta(min_length=24, max_length=24)]
    day_of_week: Annotated[tuple[Seconds, ...], msgspec.Meta(min_length=7, max_length=7)]
    burst_log_deviation: Seconds
    burst_memory: Share


class SizeShare(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number of GPUs and its share of all jobs."""

    gpus: Count
    share: Share


class EndShare(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An end, its share among the jobs of the group, and the seconds until then (``workload_job.End``)."""

    state: EndState
    while_pending: bool
    share: Share
    seconds: Quantiles


class SizeGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sizes that end alike."""

    sizes: Annotated[tuple[SizeShare, ...], msgspec.Meta(min_length=1)]
    ends: Annotated[tuple[EndShare, ...], msgspec.Meta(min_length=1)]


class Account(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An account's share of all jobs, and that of each of its users among its own, descending."""

    name: Word
    share: Share
    users: Annotated[tuple[Share, ...], msgspec.Meta(min_length=1)]


class Requests(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is asked beside GPUs, and how much of it is needed."""

    cpus_per_gpu: Quantiles
    cpu_fraction: Quantiles
    mem_share: Quantiles
    """Memory asked over the GPUs' part of the node's."""
    mem_fraction: Quantiles
    """Memory needed over asked; above 1 the job runs out of memory."""
    limit_used: Quantiles
    """Run time over time limit; above 1 the job runs into it."""
    progress_at_end: Quantiles
    """Of failed and cancelled jobs."""
    task_per_gpu: Share


class Molding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Classes, bounds and speed models; no published trace knows any of it, a site's own may."""

    classes: ByClass
    moldable: Share
    repairable: Share
    down: tuple[tuple[Positive, Share], ...]
    """Request over the least GPUs, and its share of the moldable jobs."""
    up: tuple[tuple[Positive, Share], ...]
    """The most GPUs over the request."""
    speed_exponent: Quantiles
    checkpointed: ByClass


class WorkloadModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a workload was fitted to. ``modelled`` names what its source lacked: there the model repeats assumptions.

    ``cpu_jobs_left_out`` is how many jobs without GPUs there were: the generator makes none. ``size_repeat`` is how
    often a user's job is as large as the same user's last one, beyond chance.
    """

    format: Literal["rlalloc-workload-model"] = "rlalloc-workload-model"
    version: Annotated[int, msgspec.Meta(ge=1, le=1)] = 1
    origin: str
    command: str
    modelled: tuple[str, ...]
    jobs: Count
    cpu_jobs_left_out: NotNegativeInt
    hours: Positive
    arrivals: Arrivals
    groups: Annotated[tuple[SizeGroup, ...], msgspec.Meta(min_length=1)]
    accounts: Annotated[tuple[Account, ...], msgspec.Meta(min_length=1)]
    size_repeat: Share
    requests: Requests
    molding: Molding


def shipped_models() -> tuple[str, ...]:
    """Names of the models that come with the package."""
    folder = resources.files("rlalloc_simulator.workloads") / "models"
    return tuple(
        sorted(entry.name.removesuffix(".json") for entry in folder.iterdir() if entry.name.endswith(".json"))
    )


def load_model(name: str) -> WorkloadModel:
    """Load a shipped model by its name or any by its path. Raises WorkloadError."""
    if name in shipped_models():
        data = (resources.files("rlalloc_simulator.workloads") / "models" / f"{name}.json").read_bytes()
    else:
        try:
            data = Path(name).read_bytes()
        except OSError as err:
            raise WorkloadError(
                f"{name}: {err.strerror}; name a model that rlalloc simulate fit wrote, or one of "
                f"{', '.join(shipped_models())}"
            ) from err
    try:
        return msgspec.json.decode(data, type=WorkloadModel)
    except msgspec.MsgspecError as err:
        raise WorkloadError(f"{name}: not a model of workloads: {err}; make one with rlalloc simulate fit") from err


def save_model(model: WorkloadModel, path: Path) -> None:
    """Write it, indented. Raises WorkloadError."""
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(model), indent=1) + b"\n")
    except OSError as err:
        raise WorkloadError(f"{path}: {err.strerror}; name a file in a folder that you may write to") from err
