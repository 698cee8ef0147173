"""How much memory a GPU has, by the type's name in Slurm's GRES: Slurm itself does not tell it."""

import functools
import re
from collections.abc import Mapping
from typing import Final

GPU_MEMORY_GIB: Final[Mapping[str, float]] = {
    "p100": 16,
    "v100": 32,
    "v100-16": 16,
    "v100-32": 32,
    "t4": 15,
    "rtx2080ti": 11,
    "rtx3090": 24,
    "rtx4090": 24,
    "rtx5090": 32,
    "a10": 22.5,
    "a30": 24,
    "a40": 45,
    "rtx6000": 48,
    "a6000": 48,
    "l4": 22.5,
    "l40": 45,
    "l40s": 45,
    "a100": 80,
    "a100-40": 40,
    "a100-80": 80,
    "a800": 80,
    "h100": 80,
    "h100-94": 94,
    "h800": 80,
    "h20": 96,
    "h200": 141,
    "gh200": 96,
    "rtxpro6000": 96,
    "b200": 180,
    "gb200": 186,
    "mi100": 32,
    "mi210": 64,
    "mi250": 64,
    "mi250x": 64,
    "mi300a": 128,
    "mi300x": 192,
    "mi325x": 256,
    "mi350x": 288,
    "mi355x": 288,
    "max1100": 48,
    "max1550": 128,
    "gaudi2": 96,
    "gaudi3": 128,
}
"""GiB that a process can use, from the vendors' data sheets, less ECC where it costs some (A10, A40, L4, L40, T4).

Where a name stands for several sizes (a100, v100) it has the larger one: too little would raise a job's least count
for nothing; ``gpu_memory`` in the configuration says what the site has. Of MI250 and MI250X, Slurm counts each of the
two dies as a GPU; of Intel's Max 1550, both stacks together.
"""


_PROFILE: Final = re.compile(r"\dg[.-](\d+)gb")
_FORM: Final = re.compile(r"(?<=\d)(sxm\d?|pcie|nvl)(?![a-z0-9])")
"""What may follow a type without a hyphen: ``h200nvl``, ``a100pcie``."""
PART_OF_PROFILE: Final = 0.95
"""nvidia-smi shows 4,864 MiB of a 1g.5gb, 9,728 of a 1g.10gb and 19,968 of a 3g.20gb."""


def memory_gib(gpu_type: str, site: Mapping[str, float] | None = None) -> float | None:
    """Return the GPU memory of a GRES type such as ``a100``, ``nvidia_h100_80gb_hbm3`` or ``A100-SXM4-40GB``, in GiB.

    ``site`` overrides and adds to the table, by the exact name. Of a slice (MIG) it is what the profile's name says
    (``1g.10gb``), less what the driver takes. None where the type is unknown.
    """
    return site[gpu_type] if site and gpu_type in site else _memory_by_name(gpu_type)


@functools.lru_cache(maxsize=1024)
def _memory_by_name(gpu_type: str) -> float | None:
    """Kept: it is asked for each job, and a site has few types."""
    name = _with_hyphens(gpu_type)
    if (profile := _PROFILE.search(name)) is not None:
        return PART_OF_PROFILE * float(profile[1])
    if name in GPU_MEMORY_GIB:
        return GPU_MEMORY_GIB[name]
    known = known_type(gpu_type)
    if known is None:
        return None
    size = re.search(r"(?<![0-9])(\d{2,3})g[b]?(?![a-z0-9])", name)
    return float(size[1]) if size is not None else GPU_MEMORY_GIB[known]


def known_type(gpu_type: str) -> str | None:
    """Return the longest name of the table in a GRES type; None where there is none, or it is a slice (MIG)."""
    name = _with_hyphens(gpu_type)
    if _PROFILE.search(name):
        return None
    name = _FORM.sub(r"-\1", name)
    if name in GPU_MEMORY_GIB:
        return name
    joined = name.replace("-", "")
    words = {*name.split("-"), *re.findall(r"(?:rtx|quadro)[a-z]*\d+(?:ti)?|mi\d+[ax]?|gh\d+|max\d+", joined)}
    return max((word for word in GPU_MEMORY_GIB if word in words), key=len, default=None)


def _with_hyphens(gpu_type: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", gpu_type.lower()[:100]).strip("-")
