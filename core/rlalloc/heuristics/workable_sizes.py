"""Sizes that a job may get, and the shares that lead to each: what all heuristics share."""

import functools
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from rlalloc.allocation import share_in, size_for, without_limit
from rlalloc.bounds import NodeShape
from rlalloc.job import Allocation, Bounds, JobView, Shares
from rlalloc.view import ClusterView

Heuristic = Callable[[JobView, ClusterView], Shares]

CPUS_PER_GPU_ENOUGH: Final = 4.0
"""Language models keep their speed from 1 CPU a GPU on, others from 3 (Synergy, OSDI 2022); one to spare."""


def repaired_shares(gpu_share: float, bounds: Bounds) -> Shares:
    """CPUs cut to what a GPU needs, memory to the lower bound (that the user or the site declared enough)."""
    cpus = bounds.cpus_per_gpu
    enough = min(cpus.maximum, max(cpus.minimum, CPUS_PER_GPU_ENOUGH))
    return Shares(gpu=gpu_share, cpu=share_in(enough, cpus), mem=0.0)


def memory_share(request: Allocation, bounds: Bounds, shape: NodeShape) -> float:
    """The share that cuts memory to a GPU's part of a node or to the lower bound, whichever is more.

    Less would free no GPU for others, and a lower bound that was learned from past jobs kills some of those that need
    more than these did.
    """
    memory = bounds.mem_mib_per_gpu
    if not request.gpus or not shape.gpus:
        return 0.0
    return share_in(max(min(shape.mem_mib / shape.gpus, request.mem_mib_per_gpu), memory.minimum), memory)


def shares_for_count(count: int, bounds: Bounds) -> Shares:
    """Shares that lead to ``count`` GPUs, CPUs and memory repaired."""
    return repaired_shares(share_in(count, bounds.gpus), bounds)


class Sizes(NamedTuple):
    """The workable GPU counts of a job, ascending; the shares that lead to each, and the allocation, repaired.

    Allocations have no time limit.
    """

    counts: tuple[int, ...]
    shares: tuple[Shares, ...]
    allocations: tuple[Allocation, ...]


def sizes_of(request: Allocation, bounds: Bounds, shape: NodeShape) -> Sizes:
    """What a job that asked for ``request`` may get on nodes of ``shape``."""
    return _kept_sizes(without_limit(request), bounds, shape)


def sizes_with_memory(request: Allocation, bounds: Bounds, shape: NodeShape) -> Sizes:
    """Likewise, with the memory that ``memory_share`` leaves them."""
    return _kept_sizes_with_memory(without_limit(request), bounds, shape)


@functools.lru_cache(maxsize=4096)
def _kept_sizes(request: Allocation, bounds: Bounds, shape: NodeShape) -> Sizes:
    """Kept, for they ask again."""
    shares = tuple(shares_for_count(count, bounds) for count in bounds.gpu_counts)
    return Sizes(bounds.gpu_counts, shares, tuple(size_for(each, request, bounds, shape) for each in shares))


@functools.lru_cache(maxsize=4096)
def _kept_sizes_with_memory(request: Allocation, bounds: Bounds, shape: NodeShape) -> Sizes:
    sizes, memory = sizes_of(request, bounds, shape), memory_share(request, bounds, shape)
    shares = tuple(msgspec.structs.replace(each, mem=memory) for each in sizes.shares)
    return Sizes(sizes.counts, shares, tuple(size_for(each, request, bounds, shape) for each in shares))


def at_most(gpus: float, job: JobView) -> Shares:
    """The largest workable count up to ``gpus``, else the smallest there is; repaired."""
    counts = job.bounds.gpu_counts
    return shares_for_count(max((count for count in counts if count <= gpus), default=counts[0]), job.bounds)
