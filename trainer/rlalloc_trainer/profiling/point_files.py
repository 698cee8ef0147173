"""The files in which the programs of one point meet: in a folder of its own, on a disk that all its nodes see.

::

    task.json           what is to be measured
    log.txt             what the programs printed
    measured.json       from the first process: speeds
    full.json           from a process whose GPU's memory was full
    node-0.json         from each node: peak memory, and how torchrun ended
"""

import re
from pathlib import Path
from typing import Annotated, Final, TypeVar

import msgspec

from rlalloc.errors import ProfileError
from rlalloc.speed.profile_file import Conditions, Measured, ProfilePoint, Size

TASK: Final = "task.json"
LOG: Final = "log.txt"
_MEASURED: Final = "measured.json"
_FULL: Final = "full.json"
_TOLD_CHARACTERS: Final = 300

_File = TypeVar("_File", bound=msgspec.Struct)


class PointTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is to be measured. ``text`` is the file with the data, ``timeout_s`` the most that the point may take."""

    conditions: Conditions
    size: Size
    text: str
    timeout_s: Annotated[float, msgspec.Meta(gt=0)]


class Speeds(msgspec.Struct, frozen=True, kw_only=True):
    """What the first process of a point measured; see ``Measured``."""

    tokens_per_s: float
    step_s: float
    step_p90_s: float
    noise: float
    stalled: float
    gpu_mem_mib: int
    accelerator: str


class GpuFull(msgspec.Struct, frozen=True, kw_only=True):
    """A process found the memory of its GPU full."""

    said: str


class NodeEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a point ended on one node: torchrun's exit status, peak memory, and whether we ended it and why."""

    status: int
    host_mem_mib: int
    too_much_memory: bool = False
    too_long: bool = False


def write_task(folder: Path, task: PointTask) -> None:
    """Begin a point: the folder holds nothing but the task. Raises ProfileError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
    except OSError as err:
        raise ProfileError(f"cannot write to {folder}: {err.strerror}; name a profile in a folder of yours") from err
    _write(folder / TASK, task)


def read_task(folder: Path) -> PointTask:
    """The task of a point. Raises ProfileError."""
    found = _read(folder / TASK, PointTask)
    if found is None:
        raise ProfileError(f"{folder / TASK}: missing or damaged; does this node see that folder?")
    return found


def write_speeds(folder: Path, speeds: Speeds) -> None:
    """Note what was measured."""
    _write(folder / _MEASURED, speeds)


def write_gpu_full(folder: Path, said: str) -> None:
    """Note that the GPU's memory was full."""
    _write(folder / _FULL, GpuFull(said=said[:_TOLD_CHARACTERS]))


def write_node_end(folder: Path, node: int, end: NodeEnd) -> None:
    """Note how the point ended on a node."""
    _write(folder / f"node-{node}.json", end)


def is_for(folder: Path, task: PointTask) -> bool:
    """Whether what lies in the folder belongs to this very task."""
    return _read(folder / TASK, PointTask) == task


def speeds_of(folder: Path) -> Speeds | None:
    """What the first process measured; None as long as it has not."""
    return _read(folder / _MEASURED, Speeds)


def has_ended(folder: Path, size: Size) -> bool:
    """Whether all nodes of the point have told how they ended."""
    return all(_read(folder / f"node-{node}.json", NodeEnd) is not None for node in range(size.nodes))


def point_of(folder: Path, size: Size, ended: str = "") -> ProfilePoint:
    """What came of a point that has ended; ``ended`` says how, in Slurm's words, for one that told nothing itself."""
    nodes = [end for node in range(size.nodes) if (end := _read(folder / f"node-{node}.json", NodeEnd)) is not None]
    speeds, full = speeds_of(folder), _read(folder / _FULL, GpuFull)
    if full is not None:
        return ProfilePoint(size=size, outcome="out-of-memory", why=f"the memory of a GPU was full: {full.said}")
    if any(end.too_much_memory for end in nodes) or ended == "OUT_OF_MEMORY":
        peak = max((end.host_mem_mib for end in nodes), default=0)
        needed = f"a node's processes had {peak} MiB" if peak else "Slurm ended it"
        return ProfilePoint(size=size, outcome="out-of-memory", why=f"host memory: {needed}")
    if speeds is not None and len(nodes) == size.nodes and not any(end.status for end in nodes):
        return ProfilePoint(
            size=size,
            outcome="measured",
            measured=Measured(
                tokens_per_s=_rounded(speeds.tokens_per_s),
                step_s=_rounded(speeds.step_s),
                step_p90_s=_rounded(speeds.step_p90_s),
                noise=_rounded(speeds.noise),
                stalled=_rounded(speeds.stalled),
                gpu_mem_mib=speeds.gpu_mem_mib,
                host_mem_mib=max(1, *(end.host_mem_mib for end in nodes)),
            ),
        )
    how = "it took too long" if any(end.too_long for end in nodes) else ended or "torchrun failed"
    return ProfilePoint(size=size, outcome="failed", why=f"{how}; {folder / LOG}: {_last_words(folder / LOG)}"[:2000])


def _rounded(value: float) -> float:
    """Five digits are more than a measurement has."""
    return float(f"{value:.5g}")


def _last_words(log: Path) -> str:
    """The line of the log that says most: the last exception, else the last error, else the last line."""
    try:
        lines = [
            re.sub(r"^\[rank\d+\]: ", "", line).strip()
            for line in log.read_text(encoding="utf-8", errors="replace").splitlines()
        ]
    except OSError:
        return "there is no log: does the node see this folder?"
    lines = [line for line in lines if line]
    errors = [line for line in lines if "error: " in line]
    exceptions = [line for line in lines if re.match(r"[\w.]+(Error|Exception): .", line)]
    return ([*lines, *errors, *exceptions] or ["nothing was printed"])[-1][:_TOLD_CHARACTERS]


def _write(path: Path, content: msgspec.Struct) -> None:
    """The file appears whole: others look for it meanwhile. Raises ProfileError."""
    aside = path.with_suffix(".new")
    try:
        aside.write_bytes(msgspec.json.encode(content))
        aside.replace(path)
    except OSError as err:
        raise ProfileError(f"cannot write {path}: {err.strerror}") from err


def _read(path: Path, kind: type[_File]) -> _File | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
