"""Jobs that ask for nodes below few switches."""

import pytest

from rlalloc.bounds import NodeShape, SiteBounds, bounds_for, parse_directives
from rlalloc.errors import DirectiveError
from rlalloc.job import Allocation, Bounds
from rlalloc.switches import with_few_switches

SHAPE = NodeShape(gpus=4, cpus=64, mem_mib=256_000)


def narrowed(nodes: int, gpus_per_node: int, gpus: str) -> Bounds:
    request = Allocation(nodes, gpus_per_node, 1, 8, 32_000, 3600)
    return with_few_switches(
        bounds_for(request, parse_directives(f"gpus={gpus}"), SiteBounds(), SHAPE), request, SHAPE
    )


@pytest.mark.parametrize(
    ("nodes", "gpus_per_node", "gpus", "counts", "maximum_from"),
    [
        (1, 2, "1-16", (1, 2, 4), "request"),
        (2, 4, "1-16", (1, 2, 4, 8), "request"),
        (2, 2, "1-16", (1, 2, 4, 8), "request"),
        (2, 4, "1-8", (1, 2, 4, 8), "script"),
    ],
)
def test_the_job_gets_no_more_nodes(
    nodes: int, gpus_per_node: int, gpus: str, counts: tuple[int, ...], maximum_from: str
) -> None:
    bounds = narrowed(nodes, gpus_per_node, gpus)
    assert bounds.gpu_counts == counts
    assert (bounds.gpus.maximum, bounds.gpus.maximum_from) == (counts[-1], maximum_from)


def test_a_range_that_needs_more_nodes_is_refused() -> None:
    with pytest.raises(DirectiveError, match=r"gpus=16-16: with --switches, .* the 2 nodes that it asks for"):
        narrowed(2, 4, "16")
