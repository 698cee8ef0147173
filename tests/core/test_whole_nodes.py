"""Jobs that hold all of their nodes whatever they ask for."""

import pytest

from rlalloc.bounds import NodeShape, SiteBounds, bounds_for, parse_directives
from rlalloc.job import Allocation
from rlalloc.whole_nodes import with_whole_nodes

SHAPE = NodeShape(gpus=4, cpus=64, mem_mib=256_000)
WORDS = "cpus-per-gpu=1-16 mem-per-gpu=1G-64G"


@pytest.mark.parametrize(
    ("nodes", "gpus_per_node", "gpus", "counts"),
    [
        (1, 2, "1-16", (2, 4, 8, 12, 16)),
        (2, 4, "1-16", (4, 8, 12, 16)),
        (2, 1, "1-8", (2, 4, 8)),
        (1, 2, "1-1", (2,)),
        (1, 2, "4-8", (4, 8)),
    ],
)
def test_less_of_a_node_is_no_choice(nodes: int, gpus_per_node: int, gpus: str, counts: tuple[int, ...]) -> None:
    request = Allocation(nodes, gpus_per_node, 1, 8, 32_000, 3600)
    declared = bounds_for(request, parse_directives(f"gpus={gpus} {WORDS}"), SiteBounds(), SHAPE)
    bounds = with_whole_nodes(declared, request, SHAPE)
    assert bounds.gpu_counts == counts
    assert (bounds.gpus.minimum, bounds.gpus.maximum) == (counts[0], counts[-1])
    assert (bounds.cpus_per_gpu.minimum, bounds.cpus_per_gpu.maximum) == (request.cpus_per_gpu, 16)
    assert bounds.mem_mib_per_gpu.minimum == request.mem_mib_per_gpu
    assert bounds.mem_mib_per_gpu.minimum_from == "partition"
