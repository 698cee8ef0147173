"""The nodes and partitions of the twin sites: of several shapes, with several types of GPUs, and features."""

from typing import Final

from slurm_testbed import NodeKind
from slurm_testbed.specification import Partition

FIRST: Final = NodeKind(3, gpus=8, gpu_type="a100", cpus=64, mem_mib=512_000, features=("a100", "ib", "big"))
OTHERS: Final = (
    NodeKind(3, gpus=4, gpu_type="v100", cpus=32, mem_mib=96_000, features=("v100", "ib")),
    NodeKind(2, gpus=4, gpu_type="a100", cpus=16, mem_mib=128_000, features=("a100", "slow")),
    NodeKind(1, gpus=2, gpu_type="h100", cpus=64, mem_mib=256_000, features=("h100", "big")),
    NodeKind(1, gpus=0, cpus=32, mem_mib=64_000, features=("cpu",)),
)
TYPES: Final = ("a100", "v100", "h100")
FEATURES: Final = ("a100", "v100", "ib", "big", "a100&ib", "slow|v100", "big&ib")
"""Constraints, each of which some nodes with GPUs meet."""
PARTITIONS: Final = (
    Partition("gpu"),
    Partition("fast", nodes="n[1-3]", default=False, max_time="00:30:00", default_time="00:10:00"),
    Partition("mixed", nodes="n[4-10]", default=False, max_time="02:00:00", default_time="00:10:00"),
)
LEAST_MEM_MIB: Final = 64_000
