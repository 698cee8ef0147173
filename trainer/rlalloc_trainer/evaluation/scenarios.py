"""What policies are compared on, frozen: nobody may choose a policy, or a constant of one, by what comes out here.

Lists change only together with the text above them that says why. ``validation`` is for choosing: which policy is
shipped, where it answers, which heuristic is its base. ``test`` is for the result.
"""

import hashlib
from pathlib import Path
from typing import Final, Literal

import msgspec

from rlalloc_simulator.workloads import ClusterDescription
from rlalloc_simulator.workloads.workload_errors import WorkloadError
from rlalloc_simulator.workloads.workload_job import NodeGroup
from rlalloc_trainer.evaluation.scenario_weeks import (
    WeekWorkload,
    generated,
    philly_week,
    pieces_of_file,
    thinned,
    window,
)

LOADS: Final = (0.6, 0.8, 1.0, 1.2, 1.5)

# ISO weeks of 2017 in Philly's trace. Test weeks are those of the prototype that came before this project; of its
# train weeks 41 and 46, one busy and one calm, are taken out for validation. Other weeks are too thin: the trace
# begins in week 36 and has less than a tenth of the usual GPU time in weeks 50 and 51.
PHILLY_TRAIN_WEEKS: Final = (40, 42, 45, 48)
PHILLY_VALIDATION_WEEKS: Final = (41, 46)
PHILLY_TEST_WEEKS: Final = (43, 44, 47, 49)

# Seeds of generated workloads. Each is a week of its own for the statistics: workloads of different seeds share
# nothing. Nothing else of the project draws workloads from these numbers.
VALIDATION_SEEDS: Final = tuple(range(7_000_000, 7_000_008))
TEST_SEEDS: Final = tuple(range(8_000_000, 8_000_008))

Split = Literal["test", "validation"]
DGX: Final = NodeGroup("dgx", 16, 8, 96, 768_000)
KALOS_NODE: Final = NodeGroup("kalos", 32, 8, 128, 2_048_000)
QUAD_NODE: Final = NodeGroup("quad", 48, 4, 24, 256_000)
PAIR_NODE: Final = NodeGroup("pair", 16, 2, 32, 256_000)


class PhillyWeeks(msgspec.Struct, frozen=True, tag="philly-weeks"):
    """Weeks of Philly's trace, thinned to 16 nodes of 8 GPUs; two windows of ``hours`` a week."""

    name: str
    path: Path
    digest: str
    cluster: ClusterDescription
    weeks: tuple[int, ...]
    parts: int = 2
    hours: float = 96.0

    def workload(self, week: int, part: int) -> WeekWorkload:
        """Return the workload of one window, as the trace has it in time."""
        jobs = window(philly_week(self.path, week), part, self.hours)
        return thinned(jobs, self.cluster, self.hours, 100 * week + part)


class GeneratedWeeks(msgspec.Struct, frozen=True, tag="generated"):
    """Workloads of a fitted model, one a seed. Users ask as if all nodes were like ``asked_for``."""

    name: str
    model: str
    asked_for: NodeGroup
    cluster: ClusterDescription
    hours: float
    weeks: tuple[int, ...]
    parts: int = 1

    def workload(self, week: int, part: int) -> WeekWorkload:
        """Return the workload of one seed, at a load of 1."""
        return generated(self.model, self.asked_for, self.cluster, self.hours, week + part)


class FileWeeks(msgspec.Struct, frozen=True, tag="file"):
    """A workload's file (docs/reference/workloads.md), cut into its weeks, or its days where it is short."""

    name: str
    path: Path
    digest: str
    weeks: tuple[int, ...]
    parts: int = 1

    def workload(self, week: int, part: int) -> WeekWorkload:
        """Return one of its pieces, as the file has it in time."""
        del part  # a piece is one workload
        return pieces_of_file(self.path)[week]


Scenario = PhillyWeeks | GeneratedWeeks | FileWeeks


def scenarios(split: Split, philly: Path | None, *, quick: bool) -> list[Scenario]:
    """Return the scenarios of the project: Philly, large LLM jobs, and a shifted cluster.

    Without Philly's trace the model that was fitted to it stands in. ``quick`` takes half of the weeks, a single
    window a week, and a quarter of the first cluster or half of the hours.
    """
    seeds = TEST_SEEDS if split == "test" else VALIDATION_SEEDS
    weeks: tuple[int, ...] = PHILLY_TEST_WEEKS if split == "test" else PHILLY_VALIDATION_WEEKS
    if quick:
        seeds, weeks = seeds[: len(seeds) // 2], weeks[: max(2, len(weeks) // 2)]
    part = 0.5 if quick else 1.0
    cluster = ClusterDescription(nodes=(msgspec.structs.replace(DGX, count=4) if quick else DGX,))
    first: Scenario
    if philly is not None:
        first = PhillyWeeks("Philly", philly, file_digest(philly), cluster, weeks, 1 if quick else 2)
    else:
        first = GeneratedWeeks("Philly model", "philly", DGX, cluster, 96.0, seeds)
    return [
        first,
        GeneratedWeeks(
            "Kalos model", "kalos", KALOS_NODE, ClusterDescription(nodes=(KALOS_NODE,)), 336.0 * part, seeds
        ),
        GeneratedWeeks(
            "shifted cluster",
            "philly",
            QUAD_NODE,
            ClusterDescription(nodes=(QUAD_NODE, PAIR_NODE)),
            12.0 * part,
            seeds,
        ),
    ]


def scenario_of_file(name: str, path: Path) -> FileWeeks:
    """Return a workload's file as a scenario. Raises WorkloadError if it cannot be cut into pieces."""
    return FileWeeks(name, path, file_digest(path), tuple(range(len(pieces_of_file(path)))))


def file_digest(path: Path) -> str:
    """SHA-256 of a file. Raises WorkloadError where it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as err:
        raise WorkloadError(f"{path}: {err.strerror}; name a file that exists") from err
