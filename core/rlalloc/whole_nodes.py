"""Jobs that have their nodes to themselves (a partition with OverSubscribe=EXCLUSIVE). Pure functions."""

import msgspec

from rlalloc.bounds import NodeShape
from rlalloc.job import Allocation, Bounds, Range


def with_whole_nodes(bounds: Bounds, request: Allocation, shape: NodeShape) -> Bounds:
    """Bounds of a job that holds all of its nodes whatever it asks for: less of a node frees nothing for others.

    So it gets fewer GPUs only if they fill whole nodes, and no fewer CPUs and no less memory than asked for.
    """
    counts = tuple(count for count in bounds.gpu_counts if count >= request.gpus or count % shape.gpus == 0)
    if not counts:
        counts = (request.gpus,)  # its user's range is below the request: it stays as submitted
    least = max(bounds.gpus.minimum, counts[0])
    return msgspec.structs.replace(
        bounds,
        gpus=_from(bounds.gpus, least),
        gpu_counts=counts,
        cpus_per_gpu=_from(bounds.cpus_per_gpu, request.cpus_per_gpu),
        mem_mib_per_gpu=_from(bounds.mem_mib_per_gpu, request.mem_mib_per_gpu),
    )


def _from(bound: Range, least: float) -> Range:
    """A range that begins no lower than ``least``."""
    if bound.minimum >= least:
        return bound
    return Range(least, max(bound.maximum, least), "partition", bound.maximum_from)
