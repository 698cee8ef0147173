"""What the policies have in common: the sizes that a job may get, and the shares that lead to one."""

from collections.abc import Callable, Iterator
from typing import Final

from rlalloc.allocation import allocation_for, share_in
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


def shares_for_count(count: int, bounds: Bounds) -> Shares:
    """Shares that lead to ``count`` GPUs, CPUs and memory repaired."""
    return repaired_shares(share_in(count, bounds.gpus), bounds)


def sizes_of(job: JobView, view: ClusterView) -> Iterator[tuple[int, Allocation]]:
    """Workable GPU counts, ascending, and the repaired allocation of each."""
    for count in job.bounds.gpu_counts:
        shares = shares_for_count(count, job.bounds)
        yield count, allocation_for(shares, job.request, job.bounds, view.shape, lambda _: 1.0)


def cheapest_gpu_share(job: JobView, view: ClusterView, cost_s: Callable[[Allocation], float]) -> float:
    """Share of the cheapest workable GPU count, its CPUs and memory repaired; the larger one at a tie."""
    costs = [(cost_s(allocation), -count) for count, allocation in sizes_of(job, view)]
    return share_in(-min(costs)[1], job.bounds.gpus)


def at_most(gpus: float, job: JobView) -> Shares:
    """The largest workable count up to ``gpus``, else the smallest there is; repaired."""
    counts = job.bounds.gpu_counts
    return shares_for_count(max((count for count in counts if count <= gpus), default=counts[0]), job.bounds)
