"""Slurm's TRES strings, such as ``cpu=32,mem=200G,node=1,gres/gpu=4,gres/gpu:a100=4``."""

import re
from collections.abc import Mapping

_MIB_PER_UNIT = {"": 1.0, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_MEMORY = re.compile(r"([0-9.]+)([KMGTP]?)[cn]?")
_GPU_REQUEST = re.compile(r"gres[:/]gpu(?::([A-Za-z_][\w-]*))?")


def parse_tres(text: str) -> dict[str, float]:
    """Return counts by name; memory in MiB. Parts that are no counts are left out."""
    counts = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        match = _MEMORY.fullmatch(value)
        if match is None:
            continue
        counts[name] = float(match[1]) * (_MIB_PER_UNIT[match[2]] if name == "mem" else 1.0)
    return counts


def gpus_of(tres: Mapping[str, float]) -> int:
    """GPUs of any type in a parsed TRES string."""
    if "gres/gpu" in tres:
        return int(tres["gres/gpu"])
    return int(sum(count for name, count in tres.items() if name.startswith("gres/gpu:")))


def gpu_type_of(*requests: str) -> str:
    """The type in ``gres:gpu:a100:4`` (22.05) or ``gres/gpu:a100:4`` (later), or an empty string."""
    for request in requests:
        match = _GPU_REQUEST.search(request)
        if match is not None:
            return match[1] or ""
    return ""


def memory_mib(text: str) -> float | None:
    """A size as sacct prints it (``5120K``), in MiB; None where there is none."""
    match = _MEMORY.fullmatch(text)
    if match is None:
        return None
    return float(match[1]) * (_MIB_PER_UNIT[match[2]] if match[2] else 1 / 1024**2)
