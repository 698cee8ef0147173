"""Late decisions: the size of a job is decided when it could start. Pure functions for daemon and simulator.

A job whose size fits when it comes gets that size. Any other waits with the GPUs that it asked for: that costs no
update, and Slurm may start it at any time as requested. A pass goes through the queue of one partition in its order,
after resources have been freed. A job that could start now in its smallest size is asked about, against what those
ahead of it leave. It gets another size if that one starts now and pays; every other job keeps what it has.

Slurm starts the jobs, so a pass follows its backfill: a job that cannot start holds a reservation, by the time limits
of what runs, and no job behind it may delay it.
"""

import bisect
import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from rlalloc.allocation import shares_of
from rlalloc.heuristics import known_costs_s
from rlalloc.job import Allocation, Bounds, Shares
from rlalloc.run_time import RunTimeEstimate
from rlalloc.speed.speed_belief import SpeedBelief
from rlalloc.view import ClusterView, FloatArray

Ask = Callable[[int, ClusterView], Allocation | None]
"""Asks about the job at a place of the queue in this view of the cluster; None keeps its size."""
Accept = Callable[[int, Allocation], None]
"""Hears of a size that the job at a place gets, before the next job is asked about."""


DEPTH: Final = 200
"""Places of a queue that a pass looks at."""


class LateRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How far a pass goes.

    head         most jobs that one pass asks about
    depth        places of the queue that it looks at
    min_gain     the fraction of the expected cost that another size has to save
    max_updates  how often one job may get another size while it waits
    """

    head: int = 20
    depth: int = DEPTH
    min_gain: float = 0.05
    max_updates: int = 3


class Waiting(NamedTuple):
    """One job in the queue of a partition.

    ``size`` is what it asks for now; None where it waits for something else than resources. ``run_s`` is how long it
    is expected to run in it. ``least`` is the smallest size that it may get; None where this pass may not decide it.
    ``request`` and ``run_time`` are as submitted. ``starts_within_s`` is when Slurm expects it to start in its size;
    None if Slurm does not say. ``speed`` says how it scales.
    """

    size: Allocation | None
    run_s: float
    request: Allocation | None = None
    run_time: RunTimeEstimate | None = None
    least: Allocation | None = None
    starts_within_s: float | None = None
    speed: SpeedBelief | None = None


class _Expected(NamedTuple):
    """A job for the price of its sizes."""

    request: Allocation
    run_time: RunTimeEstimate | None


class Resized(NamedTuple):
    """Another size for a job, and the fraction of its expected cost that this saves."""

    size: Allocation
    gain: float


class FreeGpus:
    """GPUs of a partition that are free from now on, as time limits and reservations have it; nodes do not count.

    Plain lists: a pass asks some hundred times, about some hundred times of change.
    """

    def __init__(self, free: float, limits: FloatArray) -> None:
        """``limits`` (running, 2) has the seconds until each running job reaches its limit, and its GPUs."""
        from_s, place = np.unique(np.append(limits[:, 0], 0.0), return_inverse=True)
        freed = np.cumsum(np.bincount(place, weights=np.append(limits[:, 1], 0.0)))
        self._from_s: list[float] = from_s.tolist()
        self._free: list[float] = (free + freed).tolist()

    def start_s(self, gpus: int, limit_s: float) -> float:
        """Seconds until a job of so many GPUs can start and run to its limit; infinite if never."""
        start_s, is_free = 0.0, True
        for from_s, free in zip(self._from_s, self._free, strict=True):
            if is_free and from_s >= start_s + limit_s:
                return start_s
            if free < gpus:
                is_free = False
            elif not is_free:
                start_s, is_free = from_s, True
        return start_s if is_free else math.inf

    def take(self, start_s: float, gpus: int, limit_s: float) -> None:
        """Reserve GPUs from ``start_s`` on for the time limit."""
        first, end = self._change_at(start_s), self._change_at(start_s + limit_s)
        for place in range(first, end):
            self._free[place] -= gpus

    def _change_at(self, time_s: float) -> int:
        """The place of a time, which is put in where it is none of a change."""
        place = bisect.bisect_left(self._from_s, time_s)
        if place == len(self._from_s) or self._from_s[place] != time_s:
            self._from_s.insert(place, time_s)
            self._free.insert(place, self._free[place - 1])
        return place


def first_shares(
    answer: Shares, allocation: Allocation, request: Allocation, bounds: Bounds, left: FloatArray
) -> Shares:
    """What a new job gets of a policy's ``answer``, which means ``allocation``: all of it if that starts now.

    Else it waits (``while_it_waits``). ``left`` (nodes, 3) is what the jobs before it leave free.
    """
    return answer if could_start(allocation, left) else while_it_waits(answer, request, bounds)


def while_it_waits(answer: Shares, request: Allocation, bounds: Bounds) -> Shares:
    """The GPUs of the request, in the CPUs and memory of the answer."""
    return msgspec.structs.replace(answer, gpu=shares_of(request, bounds).gpu)


def decide_pass(
    queue: Sequence[Waiting],
    waiting: int,
    view: ClusterView,
    limits: FloatArray,
    ask: Ask,
    rules: LateRules,
    accept: Accept = lambda _place, _size: None,
) -> dict[int, Resized]:
    """Decide the jobs of one partition's queue that could start now; return new sizes by place in the queue.

    ``queue`` has its first jobs, ``waiting`` says how many there are. ``view`` is the partition's, its ``queued`` is
    not read; ``limits`` (running, 2) as FreeGpus takes them. ``ask`` is called in the order of the queue.
    """
    last = _last_that_could_start(queue, view)
    left, gpus = view.free, FreeGpus(float(view.free_in_all[0]), limits)
    fits: dict[Allocation, bool] = {}
    blocked: list[tuple[float, float]] = []
    decided: dict[int, Resized] = {}
    asked = 0
    for place, job in enumerate(queue[: last + 1]):
        size = job.size
        if size is None:
            continue
        if job.least is not None and asked < rules.head and _starts(job.least, left, gpus, fits):
            seen = dataclasses.replace(
                view,
                free=left,
                queued=np.array(blocked, dtype=np.float64).reshape(-1, 2),
                behind=waiting - place - 1,
            )
            asked += 1
            proposed = ask(place, seen)
            if proposed is not None and differs(proposed, size) and _starts(proposed, left, gpus, fits):
                gain = gain_of(job, proposed, seen)
                if gain >= rules.min_gain:
                    decided[place] = Resized(proposed, gain)
                    accept(place, proposed)
                    size = proposed
        if _starts(size, left, gpus, fits):
            left = without(left, size)
            fits.clear()
            gpus.take(0.0, size.gpus, size.time_limit_s)
        else:
            start_s = gpus.start_s(size.gpus, size.time_limit_s)
            if np.isfinite(start_s):
                gpus.take(start_s, size.gpus, size.time_limit_s)
            blocked.append((size.gpus, job.run_s))
    return decided


def gain_of(job: Waiting, proposed: Allocation, view: ClusterView) -> float:
    """The fraction of the present size's expected cost that ``proposed`` saves; negative if it costs more.

    Slurm's own estimate of the start assumes whole time limits, so it is the better one where it is earlier than
    ours.
    """
    if job.size is None or job.request is None:
        raise ValueError("only a job that waits for resources has a size to compare with")
    present_s, proposed_s = known_costs_s(_Expected(job.request, job.run_time), (job.size, proposed), view, job.speed)
    if job.starts_within_s is not None:
        present_s -= max(0.0, view.freed_after_s((job.size,))[0] - job.starts_within_s)
    return 1.0 - proposed_s / max(1e-9, present_s)


def differs(one: Allocation, other: Allocation) -> bool:
    """Whether two sizes take other resources; tasks and time limits do not count."""
    counts = ((each.nodes, each.gpus_per_node, each.cpus_per_node, each.mem_mib_per_node) for each in (one, other))
    return next(counts) != next(counts)


def without(free: FloatArray, size: Allocation) -> FloatArray:
    """What stays free when a job of this size starts on the fullest nodes that hold it; everything if none do."""
    fitting = np.flatnonzero(_holding(free, size))
    if len(fitting) < size.nodes:
        return free
    fullest = fitting[np.argsort(free[fitting, 0], kind="stable")][: size.nodes]
    left = free.copy()
    left[fullest] -= (size.gpus_per_node, size.cpus_per_node, size.mem_mib_per_node)
    return left


def left_by(sizes: Iterable[Allocation], free: FloatArray) -> FloatArray:
    """What stays free when each of these jobs, in turn, starts if it can."""
    for size in sizes:
        free = without(free, size)
    return free


def could_start(size: Allocation, left: FloatArray) -> bool:
    """Whether enough nodes have room for a size."""
    return int(np.count_nonzero(_holding(left, size))) >= size.nodes


def _holding(free: FloatArray, size: Allocation) -> FloatArray:
    need = (size.gpus_per_node, size.cpus_per_node, size.mem_mib_per_node)
    return np.asarray((free >= need).all(axis=1))


def _starts(size: Allocation, left: FloatArray, gpus: FreeGpus, fits: dict[Allocation, bool]) -> bool:
    """Whether a size has room and backfill would start it now; ``fits`` keeps what ``left`` holds."""
    if size not in fits:
        fits[size] = could_start(size, left)
    return fits[size] and gpus.start_s(size.gpus, size.time_limit_s) == 0.0


_NOBODY: Final = -1


def _last_that_could_start(queue: Sequence[Waiting], view: ClusterView) -> int:
    """The place of the last job that this pass may decide and whose smallest size fits what is free; else -1."""
    fits: dict[Allocation, bool] = {}
    for place in range(len(queue) - 1, -1, -1):
        least = queue[place].least
        if least is None:
            continue
        if least not in fits:
            fits[least] = view.fits_now(least)
        if fits[least]:
            return place
    return _NOBODY
