"""Rules by which the rest of a job's request leaves GPU counts out of its bounds. Pure functions, one per rule.

Each raises DirectiveError if no count remains, unless the job then stays as submitted.
"""

import math
from collections.abc import Callable

import msgspec

from rlalloc.bounds import Directives, NodeShape, no_count_in
from rlalloc.counted import counted
from rlalloc.job import Allocation, Bounds, Range


def with_declared_least(bounds: Bounds, request: Allocation, directives: Directives, shape: NodeShape) -> Bounds:
    """Leave out GPU counts for which a node has fewer CPUs or less memory per GPU than the script's minimum."""
    mem_mib, cpus = directives.mem_mib_per_gpu or (0.0, 0.0), directives.cpus_per_gpu or (0.0, 0.0)

    def fits(count: int) -> bool:
        here = min(count, shape.gpus)
        return count == request.gpus or (mem_mib[0] * here <= shape.mem_mib and cpus[0] * here <= shape.cpus)

    counts = _left(
        bounds,
        fits,
        "no count in it leaves each GPU of a node the minimum of CPUs and memory that the script names; widen "
        "the range, or name less",
    )
    return msgspec.structs.replace(bounds, gpu_counts=counts)


def with_least_memory(bounds: Bounds, request: Allocation, shape: NodeShape) -> Bounds:
    """Leave out GPU counts for which a node has less memory per GPU than the minimum, also where none is declared.

    The minimum is then the request, or what similar past jobs used. A job that asks for all memory of its nodes, as
    by ``--mem=0``, asks for no amount per GPU, so all counts stay. They also stay if none would remain, because its
    user named a range without the request.
    """
    if request.mem_mib_per_node >= shape.mem_mib:
        return bounds
    least_mib = bounds.mem_mib_per_gpu.minimum
    return _left_if_any(bounds, request, lambda count: least_mib * min(count, shape.gpus) <= shape.mem_mib)


def with_least_cpus(bounds: Bounds, request: Allocation, shape: NodeShape) -> Bounds:
    """Leave out GPU counts for which a node's tasks cannot have the minimum of CPUs per GPU, declared or not.

    The minimum is the request where nothing else is known: the script's own srun may name those CPUs, and cannot
    start with fewer. All counts stay if none would remain, as with memory.
    """

    def fits(count: int) -> bool:
        return _share_evenly(shape.cpus, min(count, shape.gpus), bounds.cpus_per_gpu.minimum, request, bounds)

    return _left_if_any(bounds, request, fits)


def with_whole_nodes(bounds: Bounds, request: Allocation, shape: NodeShape) -> Bounds:
    """Bounds of a job that holds all of its nodes whatever it asks for: less of a node frees nothing for others.

    So in a partition with OverSubscribe=EXCLUSIVE it gets fewer GPUs only if they fill whole nodes, and no fewer CPUs
    and no less memory than asked for. If its user's range is below the request, it stays as submitted.
    """
    counts = tuple(count for count in bounds.gpu_counts if count >= request.gpus or count % shape.gpus == 0)
    counts = counts or (request.gpus,)
    return msgspec.structs.replace(
        bounds,
        gpus=_from(bounds.gpus, counts[0]),
        gpu_counts=counts,
        cpus_per_gpu=_from(bounds.cpus_per_gpu, request.cpus_per_gpu),
        mem_mib_per_gpu=_from(bounds.mem_mib_per_gpu, request.mem_mib_per_gpu),
    )


def with_few_switches(bounds: Bounds, request: Allocation, shape: NodeShape) -> Bounds:
    """Bounds of a job with ``--switches``: no more nodes than asked for.

    There may not be more nodes below so many switches. Slurm would then make the job wait for them, as long as its
    user or max_switch_wait allows.
    """
    most = max(request.gpus, request.nodes * shape.gpus)
    counts = _left(
        bounds,
        lambda count: count <= most,
        f"with --switches, the job gets no more than the {counted(request.nodes, 'node')} that it asks for; widen "
        "the range, or ask for more nodes",
    )
    if counts == bounds.gpu_counts:
        return bounds
    gpus = msgspec.structs.replace(bounds.gpus, maximum=counts[-1], maximum_from="request")
    return msgspec.structs.replace(bounds, gpus=gpus, gpu_counts=counts)


def with_near_gpus(bounds: Bounds, request: Allocation, shape: NodeShape) -> Bounds:
    """Bounds of a job that gets only CPUs beside its GPUs (``--gres-flags=enforce-binding``): no more per GPU.

    With more, its GPUs' sockets may not have enough. Counts of GPUs whose CPUs cannot be shared by the tasks without
    such a rise are left out.
    """
    cpus, most = bounds.cpus_per_gpu, request.cpus_per_gpu
    if cpus.maximum > most:
        cpus = msgspec.structs.replace(cpus, minimum=min(cpus.minimum, most), maximum=most, maximum_from="request")

    def fits(count: int) -> bool:
        here = min(count, shape.gpus)
        share = math.floor(most * here + 1e-6)
        return count == request.gpus or _share_evenly(share, here, cpus.minimum, request, bounds)

    counts = _left(
        bounds,
        fits,
        f"the tasks of a node cannot share {most:g} CPUs a GPU evenly, and --gres-flags=enforce-binding lets the job "
        "have no more; widen the range",
    )
    gpus = msgspec.structs.replace(bounds.gpus, minimum=counts[0], maximum=counts[-1])
    told = f"at most {most:g} CPUs a GPU, all beside its GPUs (--gres-flags=enforce-binding)"
    if left_out := ", ".join(str(count) for count in bounds.gpu_counts if count not in counts):
        told += f"; GPU counts whose CPUs its tasks cannot share evenly are left out: {left_out}"
    return msgspec.structs.replace(bounds, gpus=gpus, cpus_per_gpu=cpus, gpu_counts=counts, sockets=told)


def _left(bounds: Bounds, allows: Callable[[int], bool], otherwise: str) -> tuple[int, ...]:
    """The GPU counts that a rule allows. Raises DirectiveError, which says ``otherwise``, if there is none."""
    if counts := tuple(filter(allows, bounds.gpu_counts)):
        return counts
    raise no_count_in(bounds.gpus, otherwise)


def _left_if_any(bounds: Bounds, request: Allocation, allows: Callable[[int], bool]) -> Bounds:
    """The bounds with the GPU counts that a rule allows, and that of the request; all if none would remain."""
    counts = tuple(count for count in bounds.gpu_counts if count == request.gpus or allows(count))
    return msgspec.structs.replace(bounds, gpu_counts=counts) if counts else bounds


def _from(bound: Range, least: float) -> Range:
    """A range that begins no lower than ``least``."""
    if bound.minimum >= least:
        return bound
    return Range(least, max(bound.maximum, least), "partition", bound.maximum_from)


def _share_evenly(cpus: int, gpus_per_node: int, least: float, request: Allocation, bounds: Bounds) -> bool:
    """Whether equal parts of ``cpus`` give a node's tasks ``least`` per GPU, as in ``rlalloc.allocation``."""
    same_tasks = gpus_per_node == request.gpus_per_node or not bounds.task_per_gpu
    tasks = request.tasks_per_node if same_tasks else gpus_per_node
    return cpus // tasks * tasks >= max(1, math.ceil(least * gpus_per_node - 1e-6))
