"""Slurm's TRES strings and sizes as sacct prints them; the daemon, which has its own, must not be imported here."""

import re
from typing import Final

_MIB_PER_UNIT: Final = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_SIZE: Final = re.compile(r"([0-9.]+)([KMGTP]?)[cn]?")


def parse_tres(text: str) -> dict[str, float]:
    """Counts by name of ``cpu=32,mem=200G,node=1,gres/gpu=4``; memory in MiB, what is no count left out."""
    counts = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        match = _SIZE.fullmatch(value)
        if match is not None:
            unit = _MIB_PER_UNIT.get(match[2] or "M", 1.0) if name == "mem" else 1.0
            counts[name] = float(match[1]) * unit
    return counts


def gpus_of(tres: dict[str, float]) -> tuple[int, str]:
    """GPUs of all types, and the type if there is one."""
    typed = {name.removeprefix("gres/gpu:"): count for name, count in tres.items() if name.startswith("gres/gpu:")}
    total = tres.get("gres/gpu", sum(typed.values()))
    return int(total), next(iter(typed)) if len(typed) == 1 else ""


def size_mib(text: str) -> float | None:
    """MaxRSS: ``5120K``, or bytes with --noconvert; None where there is none."""
    match = _SIZE.fullmatch(text)
    if match is None or float(match[1]) == 0:
        return None  # no data is not zero
    return float(match[1]) * (_MIB_PER_UNIT[match[2]] if match[2] else 1 / 1024**2)


def cpu_time_s(text: str) -> float | None:
    """TotalCPU, ``[days-][hours:]minutes:seconds[.thousandths]``, in seconds."""
    days, _, clock = text.rpartition("-")
    try:
        parts = [float(part) for part in clock.split(":")]
        total = float(days or 0) * 86400
    except ValueError:
        return None
    for part, unit in zip(reversed(parts), (1.0, 60.0, 3600.0), strict=False):
        total += part * unit
    return total
