"""How fast a type of GPU computes and communicates: data sheets, and what training reached of them."""

from collections.abc import Mapping
from typing import Final

import msgspec

from rlalloc.llm.gpu_types import known_type


class GpuSpeed(msgspec.Struct, frozen=True):
    """Peak of dense 16-bit arithmetic [TFLOP/s]; what a GPU sends in its node and between nodes [GB/s, one way].

    ``efficiency`` is the part of the peak that wide layers reach.
    """

    tflops: float
    in_node: float
    between: float
    efficiency: float


_AMPERE: Final = 0.75
_HOPPER: Final = 0.53
_GAUDI: Final = 0.60
"""Fitted to MPT's throughput on A100 and H100 (``make research RESEARCH_ARGS="speed-model --data DIR"``). Other types
have the value of the one that they resemble: nobody measured them for us. Gaudi 2 trained MPT-7B at 260 TFLOP/s
(Databricks, January 2024)."""

GPU_SPEEDS: Final[Mapping[str, GpuSpeed]] = {
    "v100": GpuSpeed(125, 150, 6, _AMPERE),
    "a10": GpuSpeed(125, 25, 6, _AMPERE),
    "a40": GpuSpeed(150, 25, 12, _AMPERE),
    "l40s": GpuSpeed(362, 25, 12, _AMPERE),
    "rtx3090": GpuSpeed(71, 12, 3, _AMPERE),
    "rtx4090": GpuSpeed(165, 12, 3, _AMPERE),
    "a100": GpuSpeed(312, 300, 25, _AMPERE),
    "h100": GpuSpeed(989, 450, 50, _HOPPER),
    "h200": GpuSpeed(989, 450, 50, _HOPPER),
    "gh200": GpuSpeed(989, 450, 50, _HOPPER),
    "b200": GpuSpeed(2250, 900, 50, _HOPPER),
    "mi250x": GpuSpeed(191, 100, 12, _HOPPER),
    "mi300x": GpuSpeed(1307, 448, 50, _HOPPER),
    "gaudi2": GpuSpeed(432, 262, 37, _GAUDI),
    "gaudi3": GpuSpeed(1835, 525, 75, _GAUDI),
}
"""Vendors' data sheets. ``between`` is the network of the vendors' reference systems (DGX-1, DGX A100, DGX H100), or
PCIe cards on a usual network. Which layout is the fastest depends on ratios of these."""
UNKNOWN_GPU: Final = GPU_SPEEDS["a100"]


def speed_of(gpu_type: str) -> GpuSpeed:
    """The speed of a GRES type; that of an A100 where it is not known."""
    known = known_type(gpu_type)
    found = [name for name in GPU_SPEEDS if known is not None and known.split("-")[0] == name]
    return GPU_SPEEDS[found[0]] if found else UNKNOWN_GPU
