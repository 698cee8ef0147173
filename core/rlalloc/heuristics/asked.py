"""Policies that look at the job alone."""

from rlalloc.allocation import shares_of
from rlalloc.heuristics.workable_sizes import Heuristic, at_most, repaired_shares
from rlalloc.job import JobView, Shares
from rlalloc.view import ClusterView


def as_requested(job: JobView, _view: ClusterView) -> Shares:
    """Give what was asked."""
    return shares_of(job.request, job.bounds)


def repaired(job: JobView, _view: ClusterView) -> Shares:
    """Give the GPUs that were asked, and CPUs and memory cut to what they need."""
    return repaired_shares(shares_of(job.request, job.bounds).gpu, job.bounds)


def smallest(job: JobView, _view: ClusterView) -> Shares:
    """Give the lower bounds."""
    return repaired_shares(0.0, job.bounds)


def largest(job: JobView, _view: ClusterView) -> Shares:
    """Give the most GPUs that the bounds allow."""
    return repaired_shares(1.0, job.bounds)


def fixed(gpus: int) -> Heuristic:
    """Return a policy that gives every job ``gpus`` GPUs, or the nearest below that its bounds allow."""

    def give(job: JobView, _view: ClusterView) -> Shares:
        """The same number of GPUs for every job, or the nearest below that its bounds allow.

        The baseline "fixed policy" of Dadizadeh Dargiry, 2025 (Adaptive Optimization of Resource Allocation in
        Parallel Processing of Large Language Models).
        """
        return at_most(gpus, job)

    return give
