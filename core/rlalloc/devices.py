"""What Slurm counts as a job's devices: whole GPUs of some type, slices of GPUs (MIG), or shards of GPUs.

A job has devices of one kind. Counts of different kinds are never added up: two slices are not two GPUs.
"""

import functools
import re
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

import msgspec

Kind = Literal["gpu", "mig", "shard"]

_SLICE: Final = re.compile(r"\dg[._-]?\d+gb", re.IGNORECASE)
# gpu:a100:8(S:0-1) · gres/gpu:2 · gpu:1g.10gb:2(IDX:2-3) · shard:a100:6(4/4,2/4,0/4)
_NODE_GRES: Final = re.compile(
    r"(?:^|,)(?:gres[:/])?(gpu|shard)(?::([^:,()]+))?[:=](\d+)(?:\(([^)]*)\))?(?=,|$)", re.MULTILINE
)


class Device(NamedTuple):
    """One kind of device; ``type`` is a type of Slurm's GRES, empty where any will do or none is configured."""

    kind: Kind
    type: str = ""

    @property
    def whole(self) -> bool:
        """Whether it is a whole GPU."""
        return self.kind == "gpu"

    def describe(self, count: int) -> str:
        """So many of them, for people: ``4 a100 GPUs``, ``2 slices 1g.10gb``, ``3 shards``."""
        plural = "" if count == 1 else "s"
        if self.kind == "gpu":
            return f"{count} {self.type} GPU{plural}" if self.type else f"{count} GPU{plural}"
        word = "slice" if self.kind == "mig" else "shard"
        return f"{count} {word}{plural} {self.type}".rstrip()


ANY_GPU: Final = Device("gpu")
NOWHERE: Final = -1


class NodeDevices(msgspec.Struct, frozen=True):
    """The devices of one kind and type on a node. ``used`` are those that no job can get at this moment.

    ``per_gpu`` is how many of them one GPU has: above 1 for shards.
    """

    device: Device
    count: int
    used: int = 0
    per_gpu: int = 1


@functools.lru_cache(maxsize=1024)
def gpu_device(gpu_type: str) -> Device:
    """The device that a type of GRES ``gpu`` names."""
    return Device("mig" if is_slice(gpu_type) else "gpu", gpu_type)


def is_slice(gpu_type: str) -> bool:
    """Whether a type is a MIG profile, such as ``1g.10gb`` or ``a100_3g.20gb``."""
    return _SLICE.search(gpu_type) is not None


@functools.lru_cache(maxsize=4096)
def place_of(devices: tuple[Device, ...], asked: Device) -> int:
    """Which of a node's kinds of devices a job gets that asks for ``asked``; NOWHERE where it gets none.

    Where it names no type: the GPUs, if they are all whole ones of one type.
    """
    if asked.type or asked.kind == "shard":
        alike = (
            number
            for number, device in enumerate(devices)
            if device.kind == asked.kind and asked.type in ("", device.type)
        )
        return next(alike, NOWHERE)
    gpus = [number for number, device in enumerate(devices) if device.kind != "shard"]
    return gpus[0] if len(gpus) == 1 and devices[gpus[0]].whole else NOWHERE


def node_devices(gres: str, used: str = "") -> tuple[NodeDevices, ...]:
    """The devices in a node's GRES (``gpu:a100:4(S:0-1),shard:a100:16``), of which ``used`` has those that jobs hold.

    Whole GPUs and shards are the same hardware: a GPU that jobs share is not free as a whole, and one that a job has
    as a whole has no free shards.
    """
    counts = {(match[1], match[2] or ""): int(match[3]) for match in _NODE_GRES.finditer(gres)}
    held = {(match[1], match[2] or ""): (int(match[3]), match[4] or "") for match in _NODE_GRES.finditer(used)}
    found = []
    alone = sum(name == "gpu" for name, _ in counts) == 1
    for (name, gpu_type), count in counts.items():
        usual = held.get((name, ""), (0, "")) if alone else (0, "")  # without its type: TRES may have none
        in_use, detail = held.get((name, gpu_type), usual)
        if name == "gpu":
            shared = held.get(("shard", gpu_type)) or held.get(("shard", "")) or (0, "")
            whole = not is_slice(gpu_type)
            in_use += _gpus_with_shards(*shared) if whole else 0
            found.append(NodeDevices(gpu_device(gpu_type), count, min(count, in_use)))
        else:
            per_gpu = max(1, count // max(1, _whole_gpus(counts, gpu_type)))
            taken = _whole_gpus({key: number for key, (number, _) in held.items()}, gpu_type)
            in_use = _shards_in(detail, in_use, per_gpu) + taken * per_gpu
            found.append(NodeDevices(Device("shard", gpu_type), count, min(count, in_use), per_gpu))
    return tuple(each for each in found if each.count)


def _whole_gpus(counts: Mapping[tuple[str, str], int], gpu_type: str) -> int:
    """GPUs that shards of a type are shards of."""
    return sum(
        count
        for (name, of_type), count in counts.items()
        if name == "gpu" and not is_slice(of_type) and gpu_type in ("", of_type)
    )


def _gpus_with_shards(count: int, detail: str) -> int:
    """GPUs that have shards in use: ``4/4,2/4,0/4`` since 23.02; before, their places alone, ``IDX:0-1``."""
    if "/" in detail and "N/A" not in detail:
        return sum(not part.startswith("0/") for part in detail.split(","))
    places = detail.removeprefix("IDX:")
    if not count or places in ("", "N/A"):
        return 0
    ends = (part.split("-") for part in places.split(","))
    return sum(int(each[-1]) - int(each[0]) + 1 for each in ends)


def _shards_in(detail: str, count: int, per_gpu: int) -> int:
    """Shards in use. Slurm 22.05 counts GPUs that have some (its bug): all shards of these may be in use."""
    return count if "/" in detail and "N/A" not in detail else per_gpu * _gpus_with_shards(count, detail)
