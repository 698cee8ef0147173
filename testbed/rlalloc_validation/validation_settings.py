"""What is run on both sides: the site, its scheduler, rlalloc's pace, the workload. A folder holds all of a run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from rlalloc.bounds import NodeShape
from rlalloc.errors import RlallocError
from rlalloc_simulator.engine import Interception, SchedulerParameters
from rlalloc_simulator.workloads import WorkloadJob

Mode = Literal["off", "shadow", "enforce", "late", "repaired"]
"""Without rlalloc; deciding but touching nothing; sizing jobs when they come; when they could start, as a site does
by default; the same where nobody declares a range of GPUs, so that only CPUs and memory are cut."""
MODES: Final[tuple[Mode, ...]] = ("off", "shadow", "enforce")
"""The modes in which the engine is compared with a real site."""

Count = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[int, msgspec.Meta(ge=1)]

SETTINGS_FILE: Final = "settings.json"
WORKLOAD_FILE: Final = "workload.jsonl"


class ValidationError(RlallocError):
    """A comparison is not possible; the message says what to do."""


class ValidationSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Both sides of a comparison. Times in seconds of the real run.

    ``compression`` seconds of a real site are one here: Slurm's own intervals (30 s of backfill, 60 s of the main
    scheduler) and the jobs are divided by it. What is fixed inside slurmctld is not, so the engine has it too: the
    30 s between its looks at time limits, and the window of 30 s in which backfill's prediction takes jobs together.
    ``load`` is offered GPU time over what the site has while jobs are submitted.
    """

    jobs: Count = 300
    seed: int = 0
    nodes: Count = 16
    gpus_per_node: Count = 8
    cpus_per_node: Count = 64
    mem_mib_per_node: Count = 512_000
    submit_for_s: Seconds = 480
    load: Annotated[float, msgspec.Meta(gt=0)] = 0.85
    compression: Count = 6
    bf_interval_s: Seconds = 5
    sched_interval_s: Seconds = 10
    bf_resolution_s: Seconds = 1
    bf_window_s: Seconds = 86_400
    batch_sched_delay_s: Seconds = 1
    grace_s: Seconds = 15
    poll_s: Seconds = 1

    @property
    def shape(self) -> NodeShape:
        """One of the nodes."""
        return NodeShape(gpus=self.gpus_per_node, cpus=self.cpus_per_node, mem_mib=self.mem_mib_per_node)

    @property
    def gpus(self) -> int:
        """GPUs of all nodes."""
        return self.nodes * self.gpus_per_node

    @property
    def scheduler(self) -> SchedulerParameters:
        """The scheduler as the engine takes it."""
        return SchedulerParameters(
            bf_interval=float(self.bf_interval_s),
            bf_window=float(self.bf_window_s),
            bf_resolution=float(self.bf_resolution_s),
            sched_interval=float(self.sched_interval_s),
            bf_max_job_test=1000,
            default_queue_depth=1000,
            batch_sched_delay=float(self.batch_sched_delay_s),
            prediction_window=30.0,
            time_limit_interval=30.0,
        )

    @property
    def interception(self) -> Interception:
        """What rlalloc does to jobs: each is decided when it comes, and never submitted again."""
        return Interception(grace=float(self.grace_s), decision_interval=float(self.poll_s), resubmit_killed=False)


def sizes_jobs(mode: Mode) -> bool:
    """Whether jobs get other sizes than they asked for."""
    return mode in ("enforce", "late", "repaired")


def decides_late(mode: Mode) -> bool:
    """Whether the sizes of waiting jobs are decided when they could start."""
    return mode in ("late", "repaired")


def submitted_in(jobs: Sequence[WorkloadJob], mode: Mode) -> list[WorkloadJob]:
    """The jobs as their users submit them in a mode: in ``repaired`` nobody declares a range of GPUs."""
    if mode != "repaired":
        return list(jobs)
    return [
        msgspec.structs.replace(
            job, directives=" ".join(word for word in job.directives.split() if not word.startswith("gpus="))
        )
        for job in jobs
    ]


def write_settings(folder: Path, settings: ValidationSettings) -> None:
    """Write the settings of a run into its folder. Raises ValidationError."""
    try:
        (folder / SETTINGS_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(settings)) + b"\n")
    except OSError as err:
        raise ValidationError(f"{folder}: {err.strerror}; name a folder that you may write to") from err


def read_settings(folder: Path) -> ValidationSettings:
    """Read the settings of a run. Raises ValidationError."""
    path = folder / SETTINGS_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=ValidationSettings)
    except OSError as err:
        raise ValidationError(f"{path}: {err.strerror}; name a folder that make validate filled") from err
    except msgspec.MsgspecError as err:
        raise ValidationError(f"{path}: {err}; it was written by another version: run it again") from err
