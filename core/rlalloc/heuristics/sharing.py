"""Policies that part the GPUs between the jobs there are."""

import functools
import heapq
import math

from rlalloc.heuristics.workable_sizes import at_most
from rlalloc.job import JobView, Shares
from rlalloc.speed import PRIOR
from rlalloc.view import ClusterView, expected_as_requested_s


def equal_share(job: JobView, view: ClusterView) -> Shares:
    """An equal part of all GPUs for each job, running or waiting, this one included.

    Equipartition: Tucker and Gupta, 1989 (Process Control and Scheduling Issues for Multiprogrammed Shared-Memory
    Multiprocessors), for jobs that keep their size once they run.
    """
    return at_most(equal_part(view), job)


def equal_part(view: ClusterView) -> float:
    """GPUs for each job if all that run or wait, and one that is asked about, had equally many."""
    return float(view.totals[0]) / (1 + len(view.releases) + view.crowd)


def marginal_gain(job: JobView, view: ClusterView) -> Shares:
    """GPUs go one step at a time to the waiting job whose run time falls most for each.

    Optimus: Peng et al., EuroSys 2018, section 4.1. It shares all GPUs out again at every round; here running jobs
    keep theirs, so that what waits shares what is free, or its part of all GPUs by number of jobs if that is more.
    Of the others that wait, their GPUs and expected run times are known; how they scale is the prior's curve. Sizes
    of the others are powers of two.
    """
    left = shared_gpus(view) - job.bounds.gpu_counts[0] - len(view.queued)  # one step each
    if left < 1:
        return at_most(job.bounds.gpu_counts[0], job)
    works_s, ladders = claims(job, view)
    held = [ladder[0] for ladder in ladders]
    first = _gain(works_s[0], ladders[0], 0, 0)
    heap = [*_first_gains(view), *(() if first is None else (first,))]
    heapq.heapify(heap)
    while heap and left >= 1:
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


def afs_l(job: JobView, view: ClusterView) -> Shares:
    """GPUs go one step at a time to the waiting job that wins all comparisons of two by the rule of AFS-L.

    AFS-L: Hwang et al., NSDI 2021 (Elastic Resource Sharing for Distributed Deep Learning), section 4: between a job
    a that would end first and a longer job b, at speeds p now and p' with one GPU more, b goes first if
    (p'b - pb) / p'b > (p'a - pa) / pa; of two without GPUs, the shorter. That is who leaves the smaller sum of both
    completion times, if b gets no more than the GPU at stake once a has ended ("apathetic" to what the future
    brings). As with ``marginal_gain`` running jobs keep what they have, and the others' scaling is the prior's; a
    step goes on to the next workable count.
    """
    works_s, ladders = claims(job, view)
    steps = [-1] * len(ladders)
    left, open_ = shared_gpus(view), list(range(len(ladders)))
    while True:
        open_ = [number for number in open_ if _next_step(ladders[number], steps[number]) <= left]
        if not open_:
            break
        top = open_[0]
        for number in open_[1:]:
            top = _first_of_two(top, number, works_s, ladders, steps)
        left -= _next_step(ladders[top], steps[top])
        steps[top] += 1
        if top == 0 and steps[0] + 1 == len(ladders[0]):
            break  # only this job's size is asked for, and it has all that it may get
    return at_most(ladders[0][max(0, steps[0])], job)


def shared_gpus(view: ClusterView) -> float:
    """GPUs that are to be shared out: those that are free, or the part of all by number of jobs if that is more."""
    waiting = 1 + len(view.queued)
    return max(float(view.free[:, 0].sum()), float(view.totals[0]) * waiting / (waiting + len(view.releases)))


def claims(job: JobView, view: ClusterView) -> tuple[list[float], list[tuple[int, ...]]]:
    """Works [s on one GPU] and workable counts of all that wait, this job first; those of others: powers of two."""
    works_s = [expected_as_requested_s(job) * _speed(max(1, job.request.gpus)), *_works_ahead_s(view)]
    return works_s, [job.bounds.gpu_counts] + [_powers_of_two(int(view.totals[0]))] * len(view.queued)


@functools.lru_cache(maxsize=8)
def _works_ahead_s(view: ClusterView) -> tuple[float, ...]:
    """Works [s on one GPU] of those that wait ahead. Kept: all new jobs of a cycle see the same."""
    return tuple(run_s * _speed(max(1, int(gpus))) for gpus, run_s in view.queued.tolist())


@functools.lru_cache(maxsize=8)
def _first_gains(view: ClusterView) -> list[tuple[float, int, int]]:
    """What the first step up saves each of those ahead, numbered from 1, as a heap; kept likewise."""
    ladder = _powers_of_two(int(view.totals[0]))
    gains = (_gain(work_s, ladder, 0, number) for number, work_s in enumerate(_works_ahead_s(view), start=1))
    heap = [gain for gain in gains if gain is not None]
    heapq.heapify(heap)
    return heap


def _first_of_two(one: int, two: int, works_s: list[float], ladders: list[tuple[int, ...]], steps: list[int]) -> int:
    if steps[one] < 0 and steps[two] < 0:
        return one if works_s[one] <= works_s[two] else two
    shorter, longer = one, two
    if _length_s(works_s[one], ladders[one], steps[one]) > _length_s(works_s[two], ladders[two], steps[two]):
        shorter, longer = two, one
    if steps[shorter] < 0:
        return shorter  # its gain is without bound
    shorter_gpus = ladders[shorter][steps[shorter]]
    longer_gpus = ladders[longer][steps[longer]] if steps[longer] >= 0 else 0
    gain_of_longer = 1.0 - (_speed(longer_gpus) if longer_gpus else 0.0) / _speed(longer_gpus + 1)
    gain_of_shorter = _speed(shorter_gpus + 1) / _speed(shorter_gpus) - 1.0
    return longer if gain_of_longer > gain_of_shorter else shorter


def _length_s(work_s: float, ladder: tuple[int, ...], step: int) -> float:
    return work_s / _speed(ladder[max(0, step)])


def _next_step(ladder: tuple[int, ...], step: int) -> float:
    """GPUs to the next workable count; infinite at the end, and where more GPUs are slower."""
    if step + 1 >= len(ladder):
        return math.inf
    if step < 0:
        return ladder[0]
    now, then = ladder[step], ladder[step + 1]
    return then - now if _speed(then) > _speed(now) else math.inf


def _gain(work_s: float, ladder: tuple[int, ...], step: int, number: int) -> tuple[float, int, int] | None:
    """Minus the seconds saved a GPU by the step up from ``ladder[step]``, for a heap; None at its end."""
    if step + 1 >= len(ladder):
        return None
    now, then = ladder[step], ladder[step + 1]
    saved_s = work_s / _speed(now) - work_s / _speed(then)
    return -saved_s / (then - now), number, step


def _powers_of_two(most: int) -> tuple[int, ...]:
    return tuple(1 << power for power in range(max(1, most).bit_length()))


@functools.cache
def _speed(gpus: int) -> float:
    return PRIOR.at(gpus, PRIOR.cpus_per_gpu_needed)
