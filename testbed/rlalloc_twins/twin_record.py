"""What became of a plan on one of the twin sites. Times are epoch seconds."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from rlalloc.job import Allocation, Bounds
from rlalloc_twins.twin_plan import SiteName, TwinError


class Run(msgspec.Struct, frozen=True, omit_defaults=True):
    """One run of one job or array task: what its script saw, each task of its step by its number, and srun's end.

    ``inner`` is what sbatch said to it.
    """

    batch: Mapping[str, str]
    steps: Mapping[int, Mapping[str, str]] = {}
    status: str = ""
    errors: str = ""
    inner: str = ""


class Happened(msgspec.Struct, frozen=True):
    """An event: the states and reasons of the job just before, and how the user's command ended."""

    states: tuple[str, ...]
    status: int
    said: str
    at_s: float


class Ended(msgspec.Struct, frozen=True):
    """What sacct says of a job or of an array task, in the words of its columns."""

    state: str
    exit_code: str
    submitted_s: float
    started_s: float | None
    ended_s: float | None
    limit_min: str
    tres: Mapping[str, float]


class Update(msgspec.Struct, frozen=True):
    """An entry of rlalloc's journal."""

    original: Allocation
    intended: Allocation
    state: str
    detail: str
    at_s: float


class Decided(msgspec.Struct, frozen=True):
    """A decision of rlalloc."""

    at_s: float
    request: Allocation
    allocation: Allocation | None
    bounds: Bounds | None
    reason: str
    skip_code: str
    updates: tuple[Update, ...]


class TwinJob(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One submission on one site.

    ``refused`` is what sbatch said to it where it took no job. ``tasks`` are the ends by Slurm's name of the task,
    less the job's id ("" for a job that is no array). ``records`` are the fields that ``scontrol show job`` printed
    at the end. ``stuck`` is the reason for which it waited when nothing else went on; it was cancelled then.
    """

    key: str
    job_id: int | None
    refused: str = ""
    stuck: str = ""
    tasks: Mapping[str, Ended] = {}
    records: tuple[Mapping[str, str], ...] = ()
    runs: Mapping[str, Run] = {}
    events: Mapping[int, Happened] = {}
    decisions: tuple[Decided, ...] = ()


class Waited(msgspec.Struct, frozen=True, array_like=True):
    """A job that waits, why, and its priority."""

    job_id: int
    reason: str
    priority: int


class NodeSeen(msgspec.Struct, frozen=True, array_like=True):
    """What a node has free, and its state in the words of scontrol."""

    name: str
    state: str
    gpus: int
    cpus: int
    mem_mib: int

    @property
    def takes_jobs(self) -> bool:
        """Whether it takes jobs: it may be reserved or planned for some, but no maintenance window is open there."""
        base, *flags = self.state.split("+")
        return base in ("IDLE", "MIXED", "ALLOCATED") and {"RESERVED", "PLANNED"}.issuperset(flags)


class Look(msgspec.Struct, frozen=True):
    """A look at the queue and the nodes."""

    at_s: float
    waited: tuple[Waited, ...]
    nodes: tuple[NodeSeen, ...]


class SiteRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Everything of one site, in the order of submission."""

    site: SiteName
    slurm: str
    began_s: float
    took_s: float
    load_of_machine: tuple[float, float, float]
    jobs: tuple[TwinJob, ...]
    looks: tuple[Look, ...] = ()
    log_errors: tuple[str, ...] = ()


def write_record(folder: Path, record: SiteRecord) -> None:
    """Write a record beside its plan. Raises TwinError."""
    path = folder / f"{record.site}.json"
    try:
        path.write_bytes(msgspec.json.encode(record) + b"\n")
    except OSError as err:
        raise TwinError(f"{path}: {err.strerror}; name a folder that you may write to") from err


def read_record(folder: Path, site: SiteName) -> SiteRecord:
    """Read the record of a site. Raises TwinError."""
    path = folder / f"{site}.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=SiteRecord)
    except OSError as err:
        raise TwinError(f"{path}: {err.strerror}; run the plan first") from err
    except msgspec.MsgspecError as err:
        raise TwinError(f"{path}: {err}; it was written by another version: run it again") from err
