"""Sizes that a job may get, and the shares that lead to each: what all heuristics share."""

import functools
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from rlalloc.allocation import share_in, size_for
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


@functools.lru_cache(maxsize=4096)
def memory_share(request: Allocation, bounds: Bounds, shape: NodeShape) -> float:
    """The share that cuts memory to a GPU's part of a node or to the lower bound, whichever is more.

    Less would free no GPU for others, and a lower bound that was learned from past jobs kills some of those that need
    more than these did.
    """
    memory = bounds.mem_mib_per_gpu
    if not request.gpus or not shape.gpus:
        return 0.0
    return share_in(max(min(shape.mem_mib / shape.gpus, request.mem_mib_per_gpu), memory.minimum), memory)


def with_memory(policy: Heuristic) -> Heuristic:
    """The policy's answers, with the memory that ``memory_share`` leaves them: that of the baseline."""

    def answer(job: JobView, view: ClusterView) -> Shares:
        return msgspec.structs.replace(policy(job, view), mem=memory_share(job.request, job.bounds, view.shape))

    answer.__doc__ = policy.__doc__
    return answer


def shares_for_count(count: int, bounds: Bounds) -> Shares:
    """Shares that lead to ``count`` GPUs, CPUs and memory repaired."""
    return repaired_shares(share_in(count, bounds.gpus), bounds)


class Sizes(NamedTuple):
    """The workable GPU counts of a job, ascending; the shares that lead to each, and the allocation, repaired."""

    counts: tuple[int, ...]
    shares: tuple[Shares, ...]
    allocations: tuple[Allocation, ...]


@functools.lru_cache(maxsize=4096)
def sizes_of(request: Allocation, bounds: Bounds, shape: NodeShape) -> Sizes:
    """What a job that asked for ``request`` may get on nodes of ``shape``; kept, for they ask again."""
    counts = bounds.gpu_counts
    shares = tuple(shares_for_count(count, bounds) for count in counts)
    return Sizes(counts, shares, tuple(size_for(each, request, bounds, shape) for each in shares))


def at_most(gpus: float, job: JobView) -> Shares:
    """The largest workable count up to ``gpus``, else the smallest there is; repaired."""
    counts = job.bounds.gpu_counts
    return shares_for_count(max((count for count in counts if count <= gpus), default=counts[0]), job.bounds)
