"""Sockets of nodes, and what jobs ask of them: so many at least, and CPUs beside their GPUs only. Pure functions."""

import math
from typing import NamedTuple

import msgspec

from rlalloc.bounds import NodeShape
from rlalloc.counted import counted
from rlalloc.errors import DirectiveError
from rlalloc.job import Allocation, Bounds


class Sockets(NamedTuple):
    """A node's sockets, the cores of each and the threads of those; 0: unknown.

    Or what a job asks for at least (``--sockets-per-node``, ``--cores-per-socket``, ``--threads-per-core``); 0: any.
    """

    sockets: int = 0
    cores: int = 0
    threads: int = 0

    def meet(self, asked: "Sockets") -> bool:
        """Whether a node that has these is enough for a job."""
        return self.sockets >= asked.sockets and self.cores >= asked.cores and self.threads >= asked.threads

    def describe(self) -> str:
        """What a job asks for, in words: ``at least 4 sockets, 16 cores a socket``; empty where every node has it."""
        parts = (
            counted(self.sockets, "socket") if self.sockets > 1 else "",
            f"{counted(self.cores, 'core')} a socket" if self.cores > 1 else "",
            f"{self.threads} threads a core" if self.threads > 1 else "",
        )
        asked = ", ".join(filter(None, parts))
        return asked and f"at least {asked}"


def with_near_gpus(bounds: Bounds, request: Allocation, shape: NodeShape) -> Bounds:
    """Bounds of a job that gets only CPUs beside its GPUs (``--gres-flags=enforce-binding``): no more of them a GPU.

    With more, its GPUs' sockets may not have enough. Counts of GPUs whose CPUs cannot be shared by the tasks without
    such a rise are left out. Raises DirectiveError if none remains.
    """
    cpus, most = bounds.cpus_per_gpu, request.cpus_per_gpu
    if cpus.maximum > most:
        cpus = msgspec.structs.replace(cpus, minimum=min(cpus.minimum, most), maximum=most, maximum_from="request")
    counts = tuple(
        count
        for count in bounds.gpu_counts
        if count == request.gpus or _shares(min(count, shape.gpus), cpus.minimum, most, request, bounds)
    )
    left_out = ", ".join(str(count) for count in bounds.gpu_counts if count not in counts)
    if not counts:
        raise DirectiveError(
            f"#RLALLOC gpus={bounds.gpus.minimum:.0f}-{bounds.gpus.maximum:.0f}: the tasks of a node cannot share "
            f"{most:g} CPUs a GPU evenly, and --gres-flags=enforce-binding lets the job have no more; widen the range"
        )
    gpus = msgspec.structs.replace(bounds.gpus, minimum=counts[0], maximum=counts[-1])
    told = f"at most {most:g} CPUs a GPU, all beside its GPUs (--gres-flags=enforce-binding)"
    if left_out:
        told += f"; GPU counts whose CPUs its tasks cannot share evenly are left out: {left_out}"
    return msgspec.structs.replace(bounds, gpus=gpus, cpus_per_gpu=cpus, gpu_counts=counts, sockets=told)


def _shares(gpus_per_node: int, least: float, most: float, request: Allocation, bounds: Bounds) -> bool:
    """Whether the tasks of a node can have equal CPUs within so many a GPU, as ``rlalloc.allocation`` gives them."""
    same_tasks = gpus_per_node == request.gpus_per_node or not bounds.task_per_gpu
    tasks = request.tasks_per_node if same_tasks else gpus_per_node
    cpus = math.floor(most * gpus_per_node + 1e-6) // tasks * tasks
    return cpus >= max(1, math.ceil(least * gpus_per_node - 1e-6))
