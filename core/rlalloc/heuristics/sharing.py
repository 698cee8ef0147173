"""Policies that part the GPUs between the jobs there are."""

import heapq

from rlalloc.heuristics.sizes import at_most
from rlalloc.job import JobView, Shares
from rlalloc.speed import PRIOR
from rlalloc.view import EXPECTED_FRACTION_OF_LIMIT, ClusterView


def equal_share(job: JobView, view: ClusterView) -> Shares:
    """An equal part of all GPUs for each job, running or waiting, this one included.

    Equipartition: Tucker and Gupta, 1989 (Process Control and Scheduling Issues for Multiprogrammed Shared-Memory
    Multiprocessors), for jobs that keep their size once they run.
    """
    return at_most(float(view.totals[0]) / (1 + len(view.releases) + view.crowd), job)


def marginal_gain(job: JobView, view: ClusterView) -> Shares:
    """GPUs go one step at a time to the waiting job whose run time falls most for each.

    Optimus: Peng et al., EuroSys 2018, section 4.1. It shares all GPUs out again at every round; here running jobs
    keep theirs, so that what waits shares what is free, or its part of all GPUs by number of jobs if that is more.
    Of the others that wait, their GPUs and expected run times are known; how they scale is the prior's curve. Sizes
    of the others are powers of two.
    """
    waiting = 1 + len(view.queued)
    capacity = max(float(view.free[:, 0].sum()), float(view.totals[0]) * waiting / (waiting + len(view.releases)))
    works_s = [
        EXPECTED_FRACTION_OF_LIMIT * job.request.time_limit_s * _speed(max(1, job.request.gpus)),
        *(float(run_s) * _speed(max(1, int(gpus))) for gpus, run_s in view.queued),
    ]
    ladders = [job.bounds.gpu_counts] + [_powers_of_two(int(view.totals[0]))] * (waiting - 1)
    held = [ladder[0] for ladder in ladders]
    left = capacity - sum(held)
    gains = [
        _gain(work_s, ladder, 0, number) for number, (work_s, ladder) in enumerate(zip(works_s, ladders, strict=True))
    ]
    heap = [gain for gain in gains if gain is not None]
    heapq.heapify(heap)
    while heap:
        gain, number, step = heapq.heappop(heap)
        ladder = ladders[number]
        more = ladder[step + 1] - ladder[step]
        if gain >= 0 or more > left:
            continue  # nothing to win, or too large a step: others may have smaller ones
        held[number] = ladder[step + 1]
        left -= more
        following = _gain(works_s[number], ladder, step + 1, number)
        if following is not None:
            heapq.heappush(heap, following)
    return at_most(held[0], job)


def _gain(work_s: float, ladder: tuple[int, ...], step: int, number: int) -> tuple[float, int, int] | None:
    """Minus the seconds saved a GPU by the step up from ``ladder[step]``, for a heap; None at its end."""
    if step + 1 >= len(ladder):
        return None
    now, then = ladder[step], ladder[step + 1]
    saved_s = work_s / _speed(now) - work_s / _speed(then)
    return -saved_s / (then - now), number, step


def _powers_of_two(most: int) -> tuple[int, ...]:
    return tuple(1 << power for power in range(max(1, most).bit_length()))


def _speed(gpus: int) -> float:
    return PRIOR.at(gpus, PRIOR.cpus_per_gpu_needed)
