"""Which workloads are run, with which settings, and where their runs are kept."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from rlalloc_demo.demo_configuration import GRACE_S
from rlalloc_demo.demo_workload import read_workloads
from rlalloc_simulator.workloads import Header, WorkloadJob
from rlalloc_validation.contention import contention, modest
from rlalloc_validation.recorded_run import run_file
from rlalloc_validation.validate import prepare_workload
from rlalloc_validation.validation_settings import (
    SETTINGS_FILE,
    Mode,
    ValidationError,
    ValidationSettings,
    read_settings,
)
from slurm_gain.demo_as_workload import NODES, demo_workload

WorkloadName = Literal["contention", "modest", "demo"]

BEFORE: Final[Mode] = "off"
SIZED: Final[tuple[Mode, ...]] = ("repaired", "enforce", "late")
COMPARED: Final[tuple[Mode, ...]] = (BEFORE, *SIZED)
NAMES: Final[dict[Mode, str]] = {
    "off": "as submitted",
    "repaired": "repaired",
    "enforce": "shipped, on arrival",
    "late": "shipped",
}
"""What ships answers by a heuristic, the best that there is; as a site runs it, it decides late."""


class Planned(msgspec.Struct, frozen=True):
    """One workload with one seed, run once in each of COMPARED. ``settings`` are of the site and of the workload."""

    workload: WorkloadName
    seed: int
    settings: ValidationSettings

    def folder(self, kept: Path) -> Path:
        """Where its runs are kept."""
        return kept / f"{self.workload}-{self.seed}"

    def missing(self, kept: Path) -> tuple[Mode, ...]:
        """Modes that have not been run yet."""
        return tuple(mode for mode in COMPARED if not run_file(self.folder(kept), mode).exists())

    def jobs(self) -> tuple[Header, list[WorkloadJob]]:
        """Make the workload. Raises DemoError, DemoWorkloadError."""
        if self.workload == "contention":
            return contention(self.settings)
        if self.workload == "modest":
            return modest(self.settings)
        return demo_workload(read_workloads().workload, self.seed)


def plan(workloads: Sequence[WorkloadName], seeds: int, contended: ValidationSettings) -> tuple[Planned, ...]:
    """Return what is run: ``seeds`` of each workload; ``contended`` are the settings of the one with contention."""
    return tuple(
        Planned(workload, seed, settings_of(workload, seed, contended))
        for workload in workloads
        for seed in range(seeds)
    )


def settings_of(workload: WorkloadName, seed: int, contended: ValidationSettings) -> ValidationSettings:
    """Return the site and the workload. The demo's has its nodes and its grace, else the same scheduler."""
    if workload != "demo":
        return msgspec.structs.replace(contended, seed=seed)
    _, jobs = demo_workload(read_workloads().workload, seed)
    last_s = max(job.submit_s for job in jobs)
    return msgspec.structs.replace(
        contended,
        seed=seed,
        jobs=len(jobs),
        nodes=NODES.count,
        gpus_per_node=NODES.gpus,
        cpus_per_node=NODES.cpus,
        mem_mib_per_node=NODES.mem_mib,
        submit_for_s=round(last_s),
        load=sum(job.gpu_s for job in jobs) / (NODES.count * NODES.gpus) / last_s,
        grace_s=GRACE_S,
    )


def prepare(planned: Planned, kept: Path) -> None:
    """Make the folder of a workload, or check that an existing one is of the same plan.

    Raises ValidationError, WorkloadError, DemoError, DemoWorkloadError.
    """
    folder = planned.folder(kept)
    if not (folder / SETTINGS_FILE).exists():
        prepare_workload(folder, planned.settings, *planned.jobs())
    elif read_settings(folder) != planned.settings:
        raise ValidationError(
            f"{folder} has runs with other settings: give the options that they were made with, or a new folder"
        )
