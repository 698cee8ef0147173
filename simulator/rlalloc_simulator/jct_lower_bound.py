"""A clairvoyant lower bound on the mean JCT of a workload: no policy of sizes and order comes below it.

It knows each job's true work and speed curve, and relaxes: nodes (all GPUs are one pool of the fastest kind), CPUs
and memory (each size has all that it needs), the scheduler's pace, and either capacity or sizes:

- each job alone: it starts when it may and runs in its fastest workable size;
- squashed area: each job takes the least GPU time of all its sizes, GPUs can be divided at will and jobs preempted,
  so that the pool is one machine and shortest remaining time first is the best order (Schrage, 1968). The squashed
  area bound: Turek, Wolf and Yu, 1992 (Approximate Algorithms for Scheduling Parallelizable Tasks).

The bound is the larger of both sums. It holds where jobs are sized while they are pending, and every job ends. It
does not hold with requeues, node failures or dependencies.
"""

import heapq
import math
from collections.abc import Iterable, Iterator, Sequence

from rlalloc_simulator.engine import SimulatedSite, SubmittedJob
from rlalloc_simulator.engine.job_table import killed_as_requested


def mean_jct_bound_s(site: SimulatedSite, jobs: Sequence[SubmittedJob]) -> float:
    """Return a lower bound of the mean JCT [s] of ``jobs`` on ``site``; 0 without jobs.

    Raises ValueError for sites with node failures and workloads with dependencies, slices or shards: the bound would
    not hold.
    """
    if site.failures:
        raise ValueError("no lower bound with node failures, which end jobs early: leave them out of the site")
    if any(job.dependencies for job in jobs):
        raise ValueError("no lower bound with dependencies, some of which are never satisfied: leave those jobs out")
    if not all(job.device is None or job.device.whole for job in jobs):
        raise ValueError("no lower bound with slices or shards, of which GPUs are not the sum: leave those jobs out")
    if not jobs:
        return 0.0
    gpus = max(1, sum(kind.count * kind.whole_gpus for kind in site.nodes))
    alone_s, tasks = 0.0, []
    for job in jobs:
        sizes = list(_sizes(site, job))
        released_s = max(job.submit_s, min(job.begin_s, job.cancel_s))
        ends_s = released_s + min(run_s for _, run_s in sizes)
        alone_s += min(ends_s, max(job.submit_s, job.cancel_s)) - job.submit_s
        # a job that is cancelled while it waits may never take anything
        gpu_s = 0.0 if math.isfinite(job.cancel_s) else min(count * run_s for count, run_s in sizes)
        tasks.append((released_s, gpu_s / gpus))
    squashed_s = sum(shortest_remaining_first(tasks)) - sum(job.submit_s for job in jobs)
    return max(alone_s, squashed_s) / len(jobs)


def shortest_remaining_first(tasks: Iterable[tuple[float, float]]) -> Iterator[float]:
    """Yield ends [s], in their order, of preemptible tasks (release [s], length [s]) on one machine."""
    waiting: list[float] = []
    now_s = -math.inf
    for released_s, length_s in sorted(tasks):
        while waiting and now_s + waiting[0] <= released_s:
            now_s += heapq.heappop(waiting)
            yield now_s
        if waiting:
            heapq.heapreplace(waiting, waiting[0] - (released_s - now_s))
        now_s = released_s
        heapq.heappush(waiting, length_s)
    while waiting:
        now_s += heapq.heappop(waiting)
        yield now_s


def _sizes(site: SimulatedSite, job: SubmittedJob) -> Iterator[tuple[int, float]]:
    """GPU counts that the job may get, and the least seconds that it holds each."""
    fastest = max(kind.speed for kind in site.nodes)
    request = job.request
    as_requested = job.curve.at_size(request)
    yield request.gpus, _held_s(site, job, as_requested * fastest)
    if job.managed:
        for count in job.bounds.gpu_counts:
            yield count, _held_s(site, job, job.curve.at(max(1, count), job.curve.cpus_per_gpu_needed) * fastest)


def _held_s(site: SimulatedSite, job: SubmittedJob, speed: float) -> float:
    """Seconds until the job ends or is killed for good; a time limit is never below the requested one."""
    run_s = job.stops_at * job.work_s / speed
    rules = site.interception
    least_mib = min(job.request.mem_mib_per_gpu, job.bounds.mem_mib_per_gpu.minimum)
    fewest = min(job.request.gpus, *job.bounds.gpu_counts)
    may_be_short = least_mib < job.mem_mib_per_gpu_needed or fewest < job.gpus_needed
    runs_again = rules.resubmit_killed and math.isinf(job.cancel_after_s) and not killed_as_requested(job, site)
    if may_be_short and not runs_again:
        run_s *= rules.out_of_memory_after
    return min(run_s, job.request.time_limit_s, job.cancel_after_s)
