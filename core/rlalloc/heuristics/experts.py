"""The schedulers that RLAlloc4LM imitates, as experts that answer with shares for the job at hand, not with an order.

RLAlloc4LM (github.com/aaupadhy/RLAlloc4LM) names FCFS, SJF and Round Robin; its code has SJF: the shortest job's use
and a fifth more. What the names stand for is carried over to sizes here; each docstring says how.
"""

from rlalloc.heuristics.asked import as_requested
from rlalloc.heuristics.workable_sizes import at_most, repaired_shares, sizes_of
from rlalloc.job import JobView, Shares
from rlalloc.view import ClusterView, expected_run_time_s


def first_come_first_served(job: JobView, view: ClusterView) -> Shares:
    """Who comes first takes what there is: the most GPUs up to the request that fit now, else what was asked."""
    sizes = sizes_of(job.request, job.bounds, view.shape)
    fit = view.fit_now(sizes.allocations)
    fitting = [count for count, fits in zip(sizes.counts, fit, strict=True) if fits and count <= job.request.gpus]
    return at_most(max(fitting), job) if fitting else as_requested(job, view)


def shortest_job_first(job: JobView, view: ClusterView) -> Shares:
    """The shorter a job among those that wait, the more it gets.

    All of its range if none is shorter, the least if all are.
    """
    run_s = expected_run_time_s(job, job.request)
    others = view.queued[:, 1]
    shorter = float((others < run_s).mean()) if len(others) else 0.0
    return repaired_shares(1.0 - shorter, job.bounds)


def round_robin(job: JobView, view: ClusterView) -> Shares:
    """A turn each: an equal part of the GPUs that are free now for each job that waits, this one included."""
    return at_most(float(view.free[:, 0].sum()) / (1 + view.crowd), job)
