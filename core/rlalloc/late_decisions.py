"""Late decisions: the size of a job is decided when it could start. Pure functions for daemon and simulator.

A job whose size fits when it comes gets that size. Any other waits with the GPUs that it asked for: that costs no
update, and Slurm may start it at any time as requested. A pass goes through the queue of jobs that compete for the
same nodes, in its order, after resources have been freed. A job that could start now in its smallest size is asked
about, against what those ahead of it leave on the nodes that it may use. It gets another size if that one starts now
and pays; every other job keeps what it has.

Slurm starts the jobs, so a pass follows its backfill: a job that cannot start holds a reservation, by the time limits
of what runs, and no job behind it may delay it.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec
import numpy as np

from rlalloc.allocation import shares_of
from rlalloc.heuristics import known_costs_s
from rlalloc.job import Allocation, Bounds, Shares
from rlalloc.pool import Pool, Stock, could_start
from rlalloc.pool_reservations import Room
from rlalloc.run_time import RunTimeEstimate
from rlalloc.speed.speed_belief import SpeedBelief
from rlalloc.view import ClusterView, FloatArray

Ask = Callable[[int, ClusterView], Allocation | None]
"""Asks about the job at a place of the queue in this view of the cluster; None keeps its size."""
ChooseType = Callable[[int, Mapping[str, ClusterView]], Allocation | None]
"""Chooses one of some types of GPU, in these views of their nodes, for the job that was just asked about; or None."""
Accept = Callable[[int, Allocation], None]
"""Hears of a size that the job at a place gets, before the next job is asked about."""
Allocate = Callable[[Shares], Allocation]
"""The size that shares mean for one job."""

DEPTH: Final = 200
"""Places of a queue that a pass looks at."""
_NOBODY: Final = -1
"""No place of a queue."""


class LateRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How far a pass goes.

    head         most jobs that one pass asks about
    depth        places of the queue that it looks at
    min_gain     the fraction of the expected cost that another size has to save
    max_updates  how often one job may get another size while it waits
    window_s     so far ahead a job gets a reservation (slurm.conf's bf_window); later ones delay nobody
    """

    head: int = 20
    depth: int = DEPTH
    min_gain: float = 0.05
    max_updates: int = 3
    window_s: float = math.inf


class Waiting(NamedTuple):
    """One job in the queue.

    ``size`` is what it asks for now; None where it waits for something else than resources. ``run_s`` is how long it
    is expected to run in it. ``least`` is the smallest size that it may get; None where this pass may not decide it.
    ``request`` and ``run_time`` are as submitted. ``starts_within_s`` is when Slurm expects it to start in its size;
    None if Slurm does not say. ``speed`` says how it scales. ``pool`` is the number of the pool that it may use.
    ``tasks`` is how many tasks of an array it stands for. ``on_types`` has the numbers of the pools with the nodes of
    each type of GPU, where one of them may be chosen for the job.
    """

    size: Allocation | None
    run_s: float
    request: Allocation | None = None
    run_time: RunTimeEstimate | None = None
    least: Allocation | None = None
    starts_within_s: float | None = None
    speed: SpeedBelief | None = None
    pool: int = 0
    tasks: int = 1
    on_types: Mapping[str, int] = MappingProxyType({})


class PoolNow(NamedTuple):
    """A pool at the moment of a pass.

    ``view`` is what its jobs see; of it, ``free``, ``queued`` and ``behind`` are not read. ``limits`` (running, 2)
    has the seconds until each job that holds some of its devices reaches its time limit, and how many it holds.
    ``waiting`` is how many jobs compete for its nodes.
    """

    pool: Pool
    view: ClusterView
    limits: FloatArray
    waiting: int


class _Expected(NamedTuple):
    """A job for the price of its sizes."""

    request: Allocation
    run_time: RunTimeEstimate | None


class Resized(NamedTuple):
    """Another size for a job, and the fraction of its expected cost that this saves."""

    size: Allocation
    gain: float


def asks_for_more(request: Allocation, allocation: Allocation) -> bool:
    """Whether a job could wait longer for an allocation than for its request: it takes more, or for longer."""
    counts = (
        (each.nodes, each.gpus_per_node, each.cpus_per_node, each.mem_mib_per_node, each.time_limit_s)
        for each in (request, allocation)
    )
    return any(more > less for less, more in zip(*counts, strict=True))


def while_it_waits(answer: Shares, request: Allocation, bounds: Bounds, allocate: Allocate) -> Shares:
    """What a new job gets of a policy's ``answer`` that does not start now.

    That is the GPUs of the request, in the CPUs and memory of the answer where these make no job wait longer.

    With more of them it could wait for nodes that its request does not need. With so few CPUs that its time limit has
    to grow it loses its place in a gap that backfill fills: then it keeps the CPUs of its request.
    """
    asked = shares_of(request, bounds)
    waiting = msgspec.structs.replace(
        answer, gpu=asked.gpu, cpu=min(answer.cpu, asked.cpu), mem=min(answer.mem, asked.mem)
    )
    if allocate(waiting).time_limit_s > request.time_limit_s:
        return msgspec.structs.replace(waiting, cpu=asked.cpu)
    return waiting


def decide_pass(
    queue: Sequence[Waiting],
    pools: Sequence[PoolNow],
    shared: FloatArray,
    stock: Stock,
    ask: Ask,
    rules: LateRules,
    accept: Accept = lambda _place, _size: None,
    choose_type: ChooseType = lambda _place, _views: None,
) -> dict[int, Resized]:
    """Decide the jobs of a queue that could start now; return new sizes by place in the queue.

    ``queue`` has the first jobs that compete for the nodes of ``pools``. ``shared`` (pools, pools) is the part of the
    first pool's devices that jobs of the second may use, too. ``stock`` is what is free now; jobs that start take
    from it. ``ask`` is called in the order of the queue, and ``choose_type`` after it. A size with a type counts
    before the one without.
    """
    last = _last_that_could_start(queue, pools, stock)
    room = Room([each.pool for each in pools], [each.limits for each in pools], shared, stock)
    blocked: list[tuple[int, float, float]] = []
    decided: dict[int, Resized] = {}
    asked = 0
    ahead = np.zeros(len(pools), dtype=np.int64)
    for place, job in enumerate(queue[: last + 1]):
        ahead[shared[job.pool] > 0.0] += job.tasks
        size, pool = job.size, job.pool
        if size is None:
            continue
        if job.least is not None and asked < rules.head and room.starts(pool, job.least):
            asked += 1
            views = {
                number: dataclasses.replace(
                    pools[number].view,
                    free=room.left(number),
                    queued=_ahead_in(number, blocked, shared),
                    behind=max(0, pools[number].waiting - int(ahead[number])),
                )
                for number in (pool, *job.on_types.values())
            }
            for there, proposed in _proposals(place, job, views, ask, choose_type):
                if not differs(proposed, size) or not room.starts(there, proposed):
                    continue
                gain = gain_of(job, proposed, views[job.pool])
                if gain >= rules.min_gain:
                    decided[place] = Resized(proposed, gain)
                    accept(place, proposed)
                    size, pool = proposed, there
                    break
        if room.starts(pool, size):
            room.start(pool, size)
        else:
            room.reserve(pool, size, rules.window_s)
            blocked += [(pool, size.gpus, job.run_s)] * job.tasks
    return decided


def _proposals(
    place: int, job: Waiting, views: Mapping[int, ClusterView], ask: Ask, choose_type: ChooseType
) -> Iterator[tuple[int, Allocation]]:
    """Other sizes for a job, the better first, each with the number of the pool where it is to start."""
    answered = ask(place, views[job.pool])
    typed = {name: views[pool] for name, pool in job.on_types.items()}
    on_type = choose_type(place, typed) if typed else None
    if on_type is not None and on_type.gpu_type is not None:
        yield job.on_types[on_type.gpu_type.name], on_type
    if answered is not None:
        yield job.pool, answered


def shared_devices(devices: Sequence[FloatArray]) -> FloatArray:
    """For ``decide_pass`` the ``shared`` of pools that have so many devices on each node, shape (nodes,) each."""
    has = np.array(devices, dtype=np.float64)
    overlap = has @ (has > 0.0).T
    return np.asarray(overlap / np.maximum(1.0, has.sum(axis=1))[:, None])


def _ahead_in(pool: int, blocked: Sequence[tuple[int, float, float]], shared: FloatArray) -> FloatArray:
    """The jobs ahead that wait for nodes of a pool: the GPUs that they want there, and their run times."""
    rows = [(part * gpus, run_s) for other, gpus, run_s in blocked if (part := float(shared[other, pool])) > 0.0]
    return np.array(rows, dtype=np.float64).reshape(-1, 2)


def gain_of(job: Waiting, proposed: Allocation, view: ClusterView) -> float:
    """The fraction of the present size's expected cost that ``proposed`` saves; negative if it costs more.

    Slurm's own estimate of the start assumes whole time limits, so it is the better one where it is earlier than
    ours. A type of GPU that is chosen now counts with the lower bound of its speed-up.
    """
    if job.size is None or job.request is None:
        raise ValueError("only a job that waits for resources has a size to compare with")
    expected = _Expected(job.request, job.run_time)
    chosen = proposed.gpu_type if job.size.gpu_type is None else None
    speed_up = 1.0 if chosen is None else chosen.least_speed_up
    (present_s,) = known_costs_s(expected, (job.size,), view, job.speed)
    (proposed_s,) = known_costs_s(expected, (proposed,), view, job.speed, speed_up)
    if job.starts_within_s is not None:
        present_s -= max(0.0, view.freed_after_s((job.size,))[0] - job.starts_within_s)
    return 1.0 - proposed_s / max(1e-9, present_s)


def differs(one: Allocation, other: Allocation) -> bool:
    """Whether two sizes take other resources; tasks and time limits do not count."""
    return _resources(one) != _resources(other)


def _resources(size: Allocation) -> tuple[int, int, int, int, str]:
    gpu_type = "" if size.gpu_type is None else size.gpu_type.name
    return size.nodes, size.gpus_per_node, size.cpus_per_node, size.mem_mib_per_node, gpu_type


def _last_that_could_start(queue: Sequence[Waiting], pools: Sequence[PoolNow], stock: Stock) -> int:
    """The place of the last job that this pass may decide and whose smallest size fits what is free; else -1."""
    fits: dict[tuple[int, Allocation], bool] = {}
    for place in range(len(queue) - 1, -1, -1):
        least = queue[place].least
        if least is None:
            continue
        key = queue[place].pool, least
        if key not in fits:
            fits[key] = could_start(least, stock.left(pools[key[0]].pool))
        if fits[key]:
            return place
    return _NOBODY
