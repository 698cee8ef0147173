"""Slurm's TRES strings as its commands print them, such as ``cpu=32,mem=200G,node=1,gres/gpu=4,gres/gpu:a100=4``.

What requests say is kept: many jobs of a site ask for the same.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

MOST: Final = 2**31 - 1
"""A larger number in a request counts as this one: no node has as many, and products of such numbers have 64 bits."""

_MIB_PER_UNIT = {"": 1.0, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_MEMORY = re.compile(r"([0-9]{1,20}(?:\.[0-9]*)?)([KMGTP]?)[cn]?")
# A type may begin with a digit (1080, 3g.20gb); a lone number is a count.
_REQUEST = re.compile(r"gres[:/](gpu|shard)(?::(?!\d+$)([^:=]+))?(?:[:=](\d+))?")


def parse_tres(text: str) -> dict[str, float]:
    """Return counts by name; memory in whole MiB. Parts that are no counts are left out."""
    counts = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        match = _MEMORY.fullmatch(value)
        if match is None:
            continue
        counts[name] = float(round(float(match[1]) * _MIB_PER_UNIT[match[2]])) if name == "mem" else float(match[1])
    return counts


def tres_value(text: str, name: str) -> str:
    """What a TRES string has under a name, as it is printed; empty where it has nothing."""
    return next((value for part in text.split(",") for key, _, value in [part.partition("=")] if key == name), "")


def gpus_of(tres: Mapping[str, float]) -> int:
    """GPUs of any type in a parsed TRES string."""
    if "gres/gpu" in tres:
        return int(tres["gres/gpu"])
    return int(sum(count for name, count in tres.items() if name.startswith("gres/gpu:")))


@lru_cache(maxsize=4096)
def gpus_of_request(request: str, name: str = "gpu") -> int:
    """GPUs (or shards) of any type in a request such as ``gres:gpu:a100:4``; without a count it is one.

    At most ``MOST``.
    """
    counts = (
        match[3] or "1"
        for part in request.split(",")
        if (match := _REQUEST.fullmatch(part)) is not None and match[1] == name
    )
    return min(MOST, sum(int(count) if len(count) < 20 else MOST for count in counts))


@lru_cache(maxsize=4096)
def gpu_type_of(*requests: str) -> str:
    """The type in ``gres:gpu:a100:4`` (22.05) or ``gres/gpu:a100:4`` (later), or an empty string."""
    for request in requests:
        for part in request.split(","):
            match = _REQUEST.fullmatch(part)
            if match is not None and match[2]:
                return match[2]
    return ""


@lru_cache(maxsize=4096)
def asks_for_shards(*requests: str) -> bool:
    """Whether requests name shards of GPUs, and no GPUs."""
    names = {match[1] for request in requests for part in request.split(",") if (match := _REQUEST.fullmatch(part))}
    return names == {"shard"}


def memory_mib(text: str) -> float | None:
    """A size as sacct prints it (``5120K``), in MiB; None where there is none."""
    match = _MEMORY.fullmatch(text)
    if match is None:
        return None
    return float(match[1]) * (_MIB_PER_UNIT[match[2]] if match[2] else 1 / 1024**2)
