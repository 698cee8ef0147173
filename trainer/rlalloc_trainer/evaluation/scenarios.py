"""What policies are compared on, frozen: nobody may choose a policy, or a constant of one, by what comes out here.

Lists change only together with the text above them that says why. ``validation`` is for choosing: which policy is
shipped, where it answers, which heuristic is its base. ``test`` is for the result.

The *modest site* is the headline: 30% of its jobs may be resized, limits and requests are as people choose them,
hardly anybody declares needs. Every other scenario differs from it in one thing.
"""

import hashlib
from pathlib import Path
from typing import Final, Literal

import msgspec

from rlalloc_simulator.knowledge import LEVELS, Knowledge
from rlalloc_simulator.truths.people import ALL_GPUS, MODEST, Habits
from rlalloc_simulator.truths.pollux_workloads import CLUSTER as POLLUX_CLUSTER
from rlalloc_simulator.truths.pollux_workloads import EVERYTHING, NUMBERS, pollux_jobs
from rlalloc_simulator.truths.scaling_mixture import SOURCES
from rlalloc_simulator.truths.sites import WeekWorkload, peopled
from rlalloc_simulator.workloads import ClusterDescription
from rlalloc_simulator.workloads.workload_errors import WorkloadError
from rlalloc_simulator.workloads.workload_job import NodeGroup
from rlalloc_trainer.evaluation.scenario_weeks import (
    LONGEST_RUN_S,
    generated,
    philly_week,
    pieces_of_file,
    thinned,
    window,
    within_limit,
)

LOADS: Final = (1.2,)
AS_RECORDED: Final = 0.0
"""A load: the source's own arrivals."""

# ISO weeks of 2017 in Philly's trace. Test weeks are those of the prototype that came before this project; of its
# train weeks 41 and 46, one busy and one calm, are taken out for validation. Other weeks are too thin: the trace
# begins in week 36 and has less than a tenth of the usual GPU time in weeks 50 and 51.
PHILLY_TRAIN_WEEKS: Final = (40, 42, 45, 48)
PHILLY_VALIDATION_WEEKS: Final = (41, 46)
PHILLY_TEST_WEEKS: Final = (43, 44, 47, 49)

# Seeds of generated workloads. Each is a week of its own for the statistics: workloads of different seeds share
# nothing. Nothing else of the project draws workloads from these numbers. Nothing was chosen on test seeds: of each
# pair, the first one had figures on 26 November 2026, the second one on the 27th. Seeds from 8,100,000, 9,100,000,
# 13,100,000 and 14,100,000 on were looked at while known-gain and the workloads were changed, or in experiments.
VALIDATION_SEEDS: Final = tuple(range(7_100_000, 7_100_016))
TEST_SEEDS: Final = tuple(first + number for number in range(16) for first in (10_100_000, 15_100_000))
# The headline gets all seeds, other workloads fewer, and other levels of knowledge the fewest.
USUAL_SEEDS: Final = 16
FEW_SEEDS: Final = 4

Split = Literal["test", "validation"]
DGX: Final = NodeGroup("dgx", 8, 8, 96, 768_000)
KALOS_NODE: Final = NodeGroup("kalos", 32, 8, 128, 2_048_000)
QUAD_NODE: Final = NodeGroup("quad", 12, 4, 24, 256_000)
PAIR_NODE: Final = NodeGroup("pair", 8, 2, 32, 256_000)
USUAL: Final[tuple[Knowledge, ...]] = ("limits", "history", "truth")
HISTORY: Final[tuple[Knowledge, ...]] = ("history",)
MODEST_SITE: Final = "modest site"


class PhillyWeeks(msgspec.Struct, frozen=True, tag="philly-weeks"):
    """Weeks of Philly's trace, thinned; the jobs that are left out are its past."""

    name: str
    path: Path
    digest: str
    cluster: ClusterDescription
    weeks: tuple[int, ...]
    habits: Habits = MODEST
    knowledge: tuple[Knowledge, ...] = HISTORY
    hours: float = 96.0

    @property
    def scaling(self) -> str | None:
        """The one table that all curves are drawn from; None for a mixture."""
        return self.habits.scaling

    def workload(self, week: int) -> WeekWorkload:
        """Return the workload of the window from Monday on, as the trace has it in time."""
        jobs = [within_limit(job, LONGEST_RUN_S) for job in window(philly_week(self.path, week), 0, self.hours)]
        week_workload, others = thinned(jobs, self.cluster, self.hours, week)
        return peopled(self.cluster, self.cluster.nodes[0], week_workload.jobs, others, self.habits, week)


class GeneratedWeeks(msgspec.Struct, frozen=True, tag="generated"):
    """Workloads of a fitted model, one a seed. Users ask as if all nodes were like ``asked_for``."""

    name: str
    model: str
    asked_for: NodeGroup
    cluster: ClusterDescription
    hours: float
    weeks: tuple[int, ...]
    habits: Habits = MODEST
    knowledge: tuple[Knowledge, ...] = HISTORY

    @property
    def scaling(self) -> str | None:
        """The one table that all curves are drawn from; None for a mixture."""
        return self.habits.scaling

    def workload(self, week: int) -> WeekWorkload:
        """Return the workload of one seed, at a load of 1."""
        week_workload, others = generated(self.model, self.asked_for, self.cluster, self.hours, week)
        return peopled(self.cluster, self.asked_for, week_workload.jobs, others, self.habits, week)


class PolluxWeeks(msgspec.Struct, frozen=True, tag="pollux"):
    """Pollux's workloads of 160 jobs with the step times that it measured; its own arrivals.

    Weeks 1 to 4 are as published, others draws like them.
    """

    name: str
    folder: Path
    digest: str
    weeks: tuple[int, ...]
    factor: int
    knowledge: tuple[Knowledge, ...] = USUAL

    @property
    def scaling(self) -> str | None:
        """The one table that all curves are drawn from; None for a mixture."""
        return "pollux"

    def workload(self, week: int) -> WeekWorkload:
        """Return one workload."""
        number = week if week in NUMBERS else NUMBERS[week % len(NUMBERS)]
        jobs = pollux_jobs(self.folder, number, week, self.factor, drawn=week not in NUMBERS)
        return WeekWorkload(POLLUX_CLUSTER, jobs)


class FileWeeks(msgspec.Struct, frozen=True, tag="file"):
    """A workload's file (docs/reference/workloads.md), cut into its weeks, or its days where it is short."""

    name: str
    path: Path
    digest: str
    weeks: tuple[int, ...]
    knowledge: tuple[Knowledge, ...] = USUAL

    @property
    def scaling(self) -> str | None:
        """The one table that all curves are drawn from; nobody knows it."""
        return None

    def workload(self, week: int) -> WeekWorkload:
        """Return one of its pieces, as the file has it in time."""
        piece = pieces_of_file(self.path)[week]
        return WeekWorkload(piece.cluster, piece.jobs)


Scenario = PhillyWeeks | GeneratedWeeks | PolluxWeeks | FileWeeks


def scenarios(split: Split, philly: Path | None = None, pollux: Path | None = None, *, quick: bool) -> list[Scenario]:
    """Return the scenarios of the project, the modest site first.

    ``philly`` and ``pollux`` add those that need files. ``quick`` takes fewer of them, and FEW_SEEDS of each.
    """
    all_seeds: tuple[int, ...] = TEST_SEEDS if split == "test" else VALIDATION_SEEDS
    few = all_seeds[:FEW_SEEDS]
    seeds = few if quick else all_seeds[:USUAL_SEEDS]
    cluster = ClusterDescription(nodes=(DGX,))
    modest = GeneratedWeeks(
        MODEST_SITE, "philly", DGX, cluster, 96.0, few if quick else all_seeds, knowledge=USUAL if quick else LEVELS
    )
    found: list[Scenario] = [
        modest,
        GeneratedWeeks(
            "modest, large jobs",
            "kalos",
            KALOS_NODE,
            ClusterDescription(nodes=(KALOS_NODE,)),
            168.0,
            seeds,
            knowledge=HISTORY if quick else USUAL,
        ),
        _like(modest, "80% resizable", seeds, HISTORY if quick else USUAL, resizable=0.8),
        _like(modest, "80% resizable, ranges 1 to all", seeds, HISTORY, resizable=0.8, factor=ALL_GPUS),
    ]
    if not quick:
        found += _one_thing_different(modest, seeds)
    if pollux is not None:
        digest = folder_digest(pollux)
        # Published workloads are for choosing, draws like them for the result.
        numbers: tuple[int, ...] = tuple(seeds) if split == "test" else NUMBERS
        found += [
            PolluxWeeks("Pollux, ranges 1 to all", pollux, digest, numbers, EVERYTHING),
            PolluxWeeks("Pollux, ranges \u00f74 to \u00d74", pollux, digest, numbers, 4),
        ]
    if philly is not None:
        weeks = PHILLY_TEST_WEEKS if split == "test" else PHILLY_VALIDATION_WEEKS
        found.append(PhillyWeeks("modest, Philly's weeks", philly, file_digest(philly), cluster, weeks))
    return found


def _like(
    modest: GeneratedWeeks,
    name: str,
    seeds: tuple[int, ...],
    knowledge: tuple[Knowledge, ...],
    **habits: object,
) -> GeneratedWeeks:
    """The modest site whose people have some other habits."""
    asked = msgspec.structs.replace(MODEST, **habits)
    return msgspec.structs.replace(modest, name=name, knowledge=knowledge, weeks=seeds, habits=asked)


def _one_thing_different(modest: GeneratedWeeks, seeds: tuple[int, ...]) -> list[Scenario]:
    """What ``quick`` leaves out: each differs in one thing from the modest site, or from 80% resizable."""
    habits: dict[str, dict[str, object]] = {
        "10% resizable": {"resizable": 0.1},
        "modest, ranges \u00f72 to \u00d72": {"factor": 2},
        "modest, ranges 1 to all": {"factor": ALL_GPUS},
        "80% resizable, ranges \u00f72 to \u00d72": {"resizable": 0.8, "factor": 2},
        "80% resizable, users ask right": {"resizable": 0.8, "asking": "right"},
        "80% resizable, users over-ask": {"resizable": 0.8, "asking": "over"},
        "80% resizable, needs declared by 80%": {"resizable": 0.8, "declared": 0.8},
        **{f"80% resizable, scaling of {source}": {"resizable": 0.8, "scaling": source} for source in SOURCES},
    }
    mixed = ClusterDescription(nodes=(QUAD_NODE, PAIR_NODE))
    return [
        GeneratedWeeks("modest, other nodes", "philly", QUAD_NODE, mixed, 96.0, seeds),
        *(_like(modest, name, seeds, HISTORY, **of) for name, of in habits.items()),
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


def folder_digest(folder: Path) -> str:
    """SHA-256 of the tables in a folder. Raises WorkloadError where there are none."""
    tables = sorted(folder.rglob("*.csv"))
    if not tables:
        raise WorkloadError(f"{folder}: no table in it; name the folder of Pollux's tables and workloads")
    return hashlib.sha256("".join(file_digest(path) for path in tables).encode()).hexdigest()
