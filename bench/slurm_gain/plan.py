"""Which streams are run, with which settings, and where their runs are kept."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from rlalloc_demo.configuration import GRACE_S
from rlalloc_demo.stream import read_streams
from rlalloc_trainer.streams import Header, StreamJob
from rlalloc_trainer.validation.app import prepare_stream
from rlalloc_trainer.validation.contention import contention
from rlalloc_trainer.validation.recorded import run_file
from rlalloc_trainer.validation.settings import (
    SETTINGS_FILE,
    Mode,
    ValidationError,
    ValidationSettings,
    read_settings,
)
from slurm_gain.demo_stream import NODES, demo_stream

StreamName = Literal["contention", "demo"]

BEFORE: Final[Mode] = "off"
SIZED: Final[tuple[Mode, ...]] = ("price-ef", "enforce")
COMPARED: Final[tuple[Mode, ...]] = (BEFORE, *SIZED)
NAMES: Final[dict[Mode, str]] = {"off": "as submitted", "price-ef": "price-EF", "enforce": "shipped"}


class Planned(msgspec.Struct, frozen=True):
    """One stream with one seed, run once in each of COMPARED. ``settings`` are of the site and of the stream."""

    stream: StreamName
    seed: int
    settings: ValidationSettings

    def folder(self, kept: Path) -> Path:
        """Where its runs are kept."""
        return kept / f"{self.stream}-{self.seed}"

    def missing(self, kept: Path) -> tuple[Mode, ...]:
        """Modes that have not been run yet."""
        return tuple(mode for mode in COMPARED if not run_file(self.folder(kept), mode).exists())

    def jobs(self) -> tuple[Header, list[StreamJob]]:
        """Make the stream. Raises DemoError, DemoStreamError."""
        if self.stream == "contention":
            return contention(self.settings)
        return demo_stream(read_streams().stream, self.seed)


def plan(streams: Sequence[StreamName], seeds: int, contended: ValidationSettings) -> tuple[Planned, ...]:
    """Return what is run: ``seeds`` of each stream; ``contended`` are the settings of the one with contention."""
    return tuple(
        Planned(stream, seed, settings_of(stream, seed, contended)) for stream in streams for seed in range(seeds)
    )


def settings_of(stream: StreamName, seed: int, contended: ValidationSettings) -> ValidationSettings:
    """Return the site and the stream. The demo's has its nodes and its grace, else the same scheduler."""
    if stream == "contention":
        return msgspec.structs.replace(contended, seed=seed)
    _, jobs = demo_stream(read_streams().stream, seed)
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
    """Make the folder of a stream, or see that the one that is there is of the same plan.

    Raises ValidationError, StreamError, DemoError, DemoStreamError.
    """
    folder = planned.folder(kept)
    if not (folder / SETTINGS_FILE).exists():
        prepare_stream(folder, planned.settings, *planned.jobs())
    elif read_settings(folder) != planned.settings:
        raise ValidationError(
            f"{folder} has runs with other settings: give the options that they were made with, or a new folder"
        )
