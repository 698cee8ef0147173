"""Numbers of things in words."""

import msgspec

from rlalloc.counted import counted
from tests.core.test_store import SIZE


def test_one_is_singular() -> None:
    assert [counted(number, "GPU") for number in (0, 1, 2)] == ["0 GPUs", "1 GPU", "2 GPUs"]


def test_a_size_of_one_gpu_reads_well() -> None:
    size = msgspec.structs.replace(SIZE, gpus_per_node=1, cpus_per_task=1)
    assert size.describe() == "1 node x 1 GPU, 1 x 1 CPU, 1024 MiB a node, limit 600 s"
