"""Policies that part the GPUs between the jobs there are."""

import bisect
import functools
import math
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from rlalloc.heuristics.offers import Offer, OfSizes
from rlalloc.heuristics.offers import well_fed_speed as _speed
from rlalloc.heuristics.workable_sizes import at_most
from rlalloc.job import JobView, Shares
from rlalloc.view import ClusterView, expected_as_requested_s


def of_equal_part(offer: Offer) -> int:
    """An equal part of all GPUs for each job, running or waiting, this one included.

    Equipartition: Tucker and Gupta, 1989 (Process Control and Scheduling Issues for Multiprogrammed Shared-Memory
    Multiprocessors), for jobs that keep their size once they run.
    """
    return offer.at_most(equal_part(offer.view))


def equal_part(view: ClusterView) -> float:
    """GPUs for each job if all that run or wait, and one that is asked about, had equally many."""
    return float(view.totals[0]) / (1 + len(view.releases) + view.crowd)


def of_marginal_gain(offer: Offer) -> int:
    """GPUs go one step at a time to the waiting job whose run time falls most for each.

    Optimus: Peng et al., EuroSys 2018, section 4.1. It shares all GPUs out again at every round; here running jobs
    keep theirs, so that what waits shares what is free, or its part of all GPUs by number of jobs if that is more.
    Of the others that wait, their GPUs and expected run times are known; how they scale is the prior's curve. Sizes
    of the others are powers of two.
    """
    ladder, work_s, view = offer.counts, _work_s(offer.job), offer.view
    left = shared_gpus(view) - ladder[0] - len(view.queued)  # one step each
    if left < 1:
        return 0
    steps_ahead = _steps_ahead(view)
    steps, place = 0, 0
    for now, then in pairwise(ladder):
        saved_s = work_s / _speed(now) - work_s / _speed(then)
        if saved_s <= 0:
            break
        left, place = steps_ahead.taken_first(saved_s / (then - now), place, left)
        if then - now > left:
            break
        steps, left = steps + 1, left - (then - now)
    return steps


equal_share: Final = OfSizes(of_equal_part)
marginal_gain: Final = OfSizes(of_marginal_gain)


def afs_l(job: JobView, view: ClusterView) -> Shares:
    """GPUs go one step at a time to the waiting job that wins all comparisons of two by the rule of AFS-L.

    AFS-L: Hwang et al., NSDI 2021 (Elastic Resource Sharing for Distributed Deep Learning), section 4: between a job
    a that would end first and a longer job b, at speeds p now and p' with one GPU more, b goes first if
    (p'b - pb) / p'b > (p'a - pa) / pa; of two without GPUs, the shorter. That is who leaves the smaller sum of both
    completion times, if b gets no more than the GPU at stake once a has ended ("apathetic" to what the future
    brings). As with marginal-gain running jobs keep what they have, and the others' scaling is the prior's; a
    step goes on to the next workable count.
    """
    mine, theirs = _steps_of(job.bounds.gpu_counts), _steps_of(_powers_of_two(int(view.totals[0])))
    work_s, works_s = _work_s(job), _shortest_first_s(view)
    # Of two with equally many GPUs the shorter goes first, so the others take each step in this order: so many have.
    taken = [len(works_s)] + [0] * len(theirs)
    left, steps = shared_gpus(view), 0
    while steps < len(job.bounds.gpu_counts):
        claims = [_Claim(mine[steps], work_s)]
        claims += [
            _Claim(step, works_s[done])
            for step, (came, done) in zip(theirs, pairwise(taken), strict=True)
            if done < came
        ]
        open_ = [claim for claim in claims if claim.step.gpus <= left]
        if not open_:
            break
        top = functools.reduce(_first_of_two, open_)
        left -= top.step.gpus
        if top is claims[0]:
            steps += 1
        else:
            taken[top.step.number + 1] += 1
    return at_most(job.bounds.gpu_counts[max(0, steps - 1)], job)


def shared_gpus(view: ClusterView) -> float:
    """GPUs that are to be shared out: those that are free, or the part of all by number of jobs if that is more."""
    waiting = 1 + len(view.queued)
    return max(float(view.free_in_all[0]), float(view.totals[0]) * waiting / (waiting + len(view.releases)))


@functools.lru_cache(maxsize=8)
def _works_ahead_s(view: ClusterView) -> tuple[float, ...]:
    """Works [s on one GPU] of those that wait ahead. Kept: all new jobs of a cycle see the same."""
    return tuple(run_s * _speed(max(1, int(gpus))) for gpus, run_s in view.queued.tolist())


@functools.lru_cache(maxsize=8)
def _shortest_first_s(view: ClusterView) -> tuple[float, ...]:
    """Likewise, ascending."""
    return tuple(sorted(_works_ahead_s(view)))


def _work_s(job: JobView) -> float:
    return expected_as_requested_s(job) * _speed(max(1, job.request.gpus))


class _StepsAhead:
    """The steps up of all that wait ahead, those that save most for each GPU first.

    Between those ahead, the order is the same whatever else takes GPUs. A step that is too large for what is left is
    left out, and with it the job's later steps: they are larger still.
    """

    def __init__(self, view: ClusterView) -> None:
        # The longest first: the gains of each step are in order then, and sorting them all merges a few runs.
        works_s = -np.sort(-np.array(_works_ahead_s(view)))
        ladder = _powers_of_two(int(view.totals[0]))
        gains, sizes = [np.empty(0)], [np.empty(0, dtype=np.int64)]
        gain = np.full(len(works_s), math.inf)
        for now, then in pairwise(ladder):
            if _speed(then) <= _speed(now):
                break
            saved_s = works_s / _speed(now) - works_s / _speed(then)
            gain = np.minimum(gain, saved_s / (then - now))  # no step comes before the one below it
            gains.append(gain)
            sizes.append(np.full(len(gain), then - now))
        order = np.argsort(-np.concatenate(gains), kind="stable")
        gpus = np.concatenate(sizes)[order]
        # Lists: a question asks for single places.
        self._loss: list[float] = (-np.concatenate(gains)[order]).tolist()
        self._used: list[int] = [0, *np.cumsum(gpus).tolist()]
        self._places = {then - now: np.flatnonzero(gpus == then - now).tolist() for now, then in pairwise(ladder)}

    def taken_first(self, gain: float, place: int, left: float) -> tuple[float, int]:
        """From ``place`` on, take each step that saves more than ``gain`` and fits.

        Returns the GPUs that are left, and the place of the first step that saves no more.
        """
        end = max(place, bisect.bisect_left(self._loss, -gain))
        while place < end and left >= 1:
            fit_until = min(end, bisect.bisect_right(self._used, self._used[place] + left) - 1)
            left -= self._used[fit_until] - self._used[place]
            place = self._next_of_at_most(left, fit_until, end)
        return left, end

    def _next_of_at_most(self, left: float, place: int, end: int) -> int:
        """The first place from ``place`` on whose step takes at most ``left`` GPUs, at most ``end``."""
        for size, places in self._places.items():
            if size <= left and (at := bisect.bisect_left(places, place)) < len(places):
                end = min(end, places[at])
        return end


_steps_ahead = functools.lru_cache(maxsize=8)(_StepsAhead)
"""Kept: all new jobs of a cycle see the same."""


class _Step(NamedTuple):
    """The step that comes after ``number`` steps up a ladder of workable counts: ``gpus`` more.

    There are none at its end, and where more GPUs are slower: infinite. ``speed`` is that of now, or at the first
    step. The gains are those of one GPU more, of the longer and of the shorter job of two.
    """

    number: int
    gpus: float
    speed: float
    gain_if_longer: float
    gain_if_shorter: float


@functools.lru_cache(maxsize=4096)
def _steps_of(ladder: tuple[int, ...]) -> tuple[_Step, ...]:
    steps = [_Step(0, ladder[0], _speed(ladder[0]), 1.0, math.inf)]
    for number, (now, then) in enumerate(pairwise((*ladder, 0)), 1):
        speed, more = _speed(now), _speed(now + 1)
        gpus = then - now if then and _speed(then) > speed else math.inf
        steps.append(_Step(number, gpus, speed, 1.0 - speed / more, more / speed - 1.0))
    return tuple(steps)


class _Claim(NamedTuple):
    """A job that claims its next step, and its work [s on one GPU]."""

    step: _Step
    work_s: float


def _first_of_two(one: _Claim, two: _Claim) -> _Claim:
    if one.step.number == two.step.number == 0:
        return one if one.work_s <= two.work_s else two
    shorter, longer = one, two
    if one.work_s / one.step.speed > two.work_s / two.step.speed:
        shorter, longer = two, one
    return longer if longer.step.gain_if_longer > shorter.step.gain_if_shorter else shorter


def _powers_of_two(most: int) -> tuple[int, ...]:
    return tuple(1 << power for power in range(max(1, most).bit_length()))
