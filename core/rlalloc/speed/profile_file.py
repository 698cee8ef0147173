"""The file that ``rlalloc profile`` writes: how one model trains on a site's machines, point by point.

YAML, typed, one point a line, made to be read and edited by people. ``Profile`` says what each key means.
"""

import math
import os
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
import yaml

from rlalloc.counted import counted
from rlalloc.errors import ProfileError
from rlalloc.system.shared_files import read_regular_file

FORMAT: Final = "rlalloc-profile-1"
SUFFIX: Final = ".yaml"
_LARGEST_BYTES: Final = 1 << 20
_MOST_POINTS: Final = 4096

Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
Megabytes = Annotated[int, msgspec.Meta(ge=1, le=1 << 40)]
Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Pattern = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Positive = Annotated[float, msgspec.Meta(gt=0, lt=1e15)]
Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]
Device = Literal["cuda", "cpu"]
Outcome = Literal["measured", "out-of-memory", "does-not-fit", "failed"]


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of all parts: immutable, no unknown keys."""


class ProfiledModel(_Part, frozen=True, kw_only=True):
    """The GPT that was trained: how many parameters, and its shape."""

    name: Name
    parameters: Annotated[int, msgspec.Meta(ge=1, le=10**15)]
    layers: Count
    width: Count
    heads: Count
    vocabulary: Count


class Conditions(_Part, frozen=True, kw_only=True):
    """How it was trained. All points of a profile share this, so their speeds can be compared.

    The global batch (sequences a step) stays whatever the size, as rlalloc leaves a job's. ``accelerator`` is what
    the driver calls the GPU, or the CPU's model. ``loader_workers`` 0 stands for as many as a point has CPUs a GPU.
    """

    model: ProfiledModel
    global_batch: Count
    micro_batch: Count
    sequence: Count
    precision: Literal["float32", "bfloat16"]
    device: Device
    backend: Literal["nccl", "gloo"]
    loader_workers: Annotated[int, msgspec.Meta(ge=0, le=1024)]
    warmup_steps: Count
    steps: Count
    accelerator: str = ""


class AppliesTo(_Part, frozen=True, kw_only=True):
    """Which jobs the profile speaks for.

    ``jobs`` are patterns of job names (``*`` and ``?``), and ``users`` of users: a job that matches both trains this
    model. ``gpu_types`` are types in Slurm's GRES: other jobs on such GPUs are expected to scale a little alike.
    """

    jobs: tuple[Pattern, ...] = ()
    users: tuple[Pattern, ...] = ("*",)
    gpu_types: tuple[Pattern, ...] = ()


class Size(_Part, frozen=True, kw_only=True):
    """What one point is measured with: GPUs and nodes of the whole job, CPUs and MiB of host memory for each GPU.

    Without GPUs, a process that computes on CPUs counts as a GPU. ``mem_mib_per_gpu`` 0 is no limit.
    """

    gpus: Count
    nodes: Count
    cpus_per_gpu: Count
    mem_mib_per_gpu: Annotated[int, msgspec.Meta(ge=0, le=1 << 40)] = 0

    def __post_init__(self) -> None:
        if self.nodes > self.gpus:
            raise ValueError(
                f"{counted(self.nodes, 'node')} for {counted(self.gpus, 'GPU')}: each node has at least one"
            )

    def describe(self) -> str:
        """One line for people, such as ``8 GPUs on 2 nodes, 4 CPUs and 16384 MiB per GPU``."""
        memory = f" and {self.mem_mib_per_gpu} MiB" if self.mem_mib_per_gpu else ""
        return (
            f"{self.gpus} GPU{'s' * (self.gpus > 1)} on {self.nodes} node{'s' * (self.nodes > 1)}, "
            f"{self.cpus_per_gpu} CPU{'s' * (self.cpus_per_gpu > 1)}{memory} per GPU"
        )


class Measured(_Part, frozen=True, kw_only=True):
    """What a point showed.

    tokens_per_s      of the whole job, over all measured steps
    step_s            median step
    step_p90_s        90% quantile of the steps
    noise             standard deviation of the logarithm of ``tokens_per_s``, from the scatter of the steps
    stalled           part of the time in which a GPU had nothing to do because its data loader had no batch, for the
                      GPU that was stalled longest; on CPUs, in which the process waited
    gpu_mem_mib       peak of the fullest GPU, as the driver counts it (reserved); 0 on CPUs
    host_mem_mib      peak of the fullest node: resident memory of all processes of the point, MiB
    """

    tokens_per_s: Positive
    step_s: Positive
    step_p90_s: Positive
    noise: Annotated[float, msgspec.Meta(ge=0, le=10)]
    stalled: Fraction
    gpu_mem_mib: Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
    host_mem_mib: Megabytes


class ProfilePoint(_Part, frozen=True, kw_only=True, omit_defaults=True):
    """One size and what came of it; ``why`` says for people what went wrong."""

    size: Size
    outcome: Outcome
    measured: Measured | None = None
    why: Annotated[str, msgspec.Meta(max_length=2000)] = ""

    def __post_init__(self) -> None:
        if (self.outcome == "measured") != (self.measured is not None):
            raise ValueError("a point has `measured` if and only if its outcome is measured")


class Profile(_Part, frozen=True, kw_only=True):
    """The whole file."""

    format: Literal["rlalloc-profile-1"] = FORMAT
    name: Name
    created_s: Positive
    applies_to: AppliesTo = AppliesTo()
    conditions: Conditions
    points: Annotated[tuple[ProfilePoint, ...], msgspec.Meta(max_length=_MOST_POINTS)] = ()

    def __post_init__(self) -> None:
        sizes = [point.size for point in self.points]
        if len(set(sizes)) != len(sizes):
            raise ValueError("a size is listed twice: leave one of its points")

    def point(self, size: Size) -> ProfilePoint | None:
        """What came of ``size``; None if it was not tried."""
        return next((point for point in self.points if point.size == size), None)

    def with_point(self, point: ProfilePoint) -> "Profile":
        """The profile with this point, in place of one of the same size."""
        others = [each for each in self.points if each.size != point.size]
        return msgspec.structs.replace(self, points=tuple(sorted([*others, point], key=_order)))


def read_profile(path: Path) -> Profile:
    """Read a profile. Raises ProfileError with the key, what was found, and what to do."""
    try:
        text = read_regular_file(path, follow=True)
    except OSError as err:
        raise ProfileError(f"{path}: {err.strerror}; rlalloc profile run writes profiles") from err
    if len(text) > _LARGEST_BYTES:
        raise ProfileError(f"{path}: larger than any profile (1 MiB); name the file that rlalloc profile wrote")
    try:
        tree = yaml.safe_load(text)
        if isinstance(tree, dict) and tree.get("format", FORMAT) != FORMAT:
            found = tree["format"]
            raise ProfileError(f"{path}: format: found {found!r}; this rlalloc reads {FORMAT}; measure again")
        profile = msgspec.convert(tree, Profile)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as err:
        said = " ".join(str(err).split())
        raise ProfileError(f"{path}: no profile that can be used: {said}; correct it or measure again") from err
    for point in profile.points:
        if point.measured is not None and not all(map(math.isfinite, msgspec.structs.astuple(point.measured))):
            raise ProfileError(
                f"{path}: a point has a figure that is not finite: remove it ({point.size.describe()})"
            )
    return profile


def write_profile(profile: Profile, path: Path) -> None:
    """Write a profile; the file appears whole or stays as it was. Raises ProfileError."""
    plain: dict[str, Any] = msgspec.to_builtins(profile)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with aside.open("x", encoding="utf-8") as file:
            yaml.safe_dump(plain, file, sort_keys=False, default_flow_style=None, width=1000)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except OSError as err:
        aside.unlink(missing_ok=True)
        raise ProfileError(f"cannot write {path}: {err.strerror}; name a file in a folder of yours") from err


def _order(point: ProfilePoint) -> tuple[int, ...]:
    size = point.size
    return size.gpus, size.nodes, size.cpus_per_gpu, size.mem_mib_per_gpu
