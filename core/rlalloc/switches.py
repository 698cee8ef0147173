"""Jobs that ask for nodes below few network switches (``--switches``). Pure functions."""

import msgspec

from rlalloc.bounds import NodeShape
from rlalloc.counted import counted
from rlalloc.errors import DirectiveError
from rlalloc.job import Allocation, Bounds


def with_few_switches(bounds: Bounds, request: Allocation, shape: NodeShape) -> Bounds:
    """Bounds of a job with ``--switches``: no more nodes than asked for.

    There may not be more nodes below so many switches. Slurm would then make the job wait for them, as long as its
    user or max_switch_wait allows. Raises DirectiveError if no GPU count remains.
    """
    most = max(request.gpus, request.nodes * shape.gpus)
    counts = tuple(count for count in bounds.gpu_counts if count <= most)
    if not counts:
        raise DirectiveError(
            f"#RLALLOC gpus={bounds.gpus.minimum:.0f}-{bounds.gpus.maximum:.0f}: with --switches, the job gets no "
            f"more than the {counted(request.nodes, 'node')} that it asks for; widen the range, or ask for more nodes"
        )
    if counts == bounds.gpu_counts:
        return bounds
    gpus = msgspec.structs.replace(bounds.gpus, maximum=counts[-1], maximum_from="request")
    return msgspec.structs.replace(bounds, gpus=gpus, gpu_counts=counts)
