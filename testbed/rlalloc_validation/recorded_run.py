"""What became of a workload, job by job: the same record from the real site and from the engine."""

from pathlib import Path
from typing import Literal

import msgspec

from rlalloc.job import Allocation
from rlalloc_validation.validation_settings import Mode, ValidationError

StartedBy = Literal["main", "backfill", ""]


class RanJob(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """One job of a workload that has ended.

    ``number``       its id in the workload
    ``submitted_s``  when slurmctld had taken it, epoch seconds, to the millisecond (its log)
    ``noted_s``      the same as accounting has it, in whole seconds like ``started_s`` and ``ended_s``
    ``size``         what it had; what it asked for where it never ran
    ``nodes``        numbers of the nodes that it had, 0 the first
    ``started_by``   the scheduler that started it; empty where that is not known
    ``let_go_s``     when rlalloc released it; None where it did not wait for rlalloc
    ``decided``      the size that rlalloc decided, also in shadow mode; None where it did not decide
    """

    number: int
    submitted_s: float
    noted_s: float
    started_s: float | None
    ended_s: float
    state: str
    size: Allocation
    nodes: tuple[int, ...] = ()
    started_by: StartedBy = ""
    let_go_s: float | None = None
    decided: Allocation | None = None
    skip_code: str = ""

    @property
    def wait_s(self) -> float:
        """From submission to start; to the end where it never started."""
        return (self.ended_s if self.started_s is None else self.started_s) - self.noted_s

    @property
    def jct_s(self) -> float:
        """From submission to end."""
        return self.ended_s - self.noted_s


class Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A workload that has been run, in the order of submission.

    ``by`` says on what, with its version; ``policy`` is the version that decided, empty where none did. ``updates``
    counts those of waiting jobs that rlalloc sent.
    """

    mode: Mode
    by: str
    policy: str = ""
    load_of_machine: tuple[float, float, float] = (0.0, 0.0, 0.0)
    updates: int = 0
    jobs: tuple[RanJob, ...]

    @property
    def began_s(self) -> float:
        """When the first job was submitted."""
        return min(job.submitted_s for job in self.jobs)


def run_file(folder: Path, mode: Mode) -> Path:
    """Where the run in one mode is written."""
    return folder / f"{mode}.json"


def write_run(folder: Path, run: Run) -> Path:
    """Write a run beside its settings, whole or not at all. Raises ValidationError."""
    path = run_file(folder, run.mode)
    aside = path.with_suffix(".new")
    try:
        aside.write_bytes(msgspec.json.encode(run) + b"\n")
        aside.replace(path)
    except OSError as err:
        raise ValidationError(f"{path}: {err.strerror}; name a folder that you may write to") from err
    return path


def read_run(folder: Path, mode: Mode) -> Run:
    """Read the run in one mode. Raises ValidationError."""
    path = run_file(folder, mode)
    try:
        return msgspec.json.decode(path.read_bytes(), type=Run)
    except OSError as err:
        raise ValidationError(
            f"{path}: {err.strerror}; run the workload on the real site first (make validate)"
        ) from err
    except msgspec.MsgspecError as err:
        raise ValidationError(f"{path}: {err}; it was written by another version: run it again") from err
