"""The rules of ``rlalloc.late_decisions`` on the engine's memory: a pass that stops at each job to ask about.

``begin`` and ``go_on`` return the job to ask about, as ``advance`` does with ASKS: what it sees is in the pass, and
``go_on`` takes the size that it has from then on. A test holds both together with ``decide_pass``.
"""

import math
from typing import Final, NamedTuple

import numpy as np

from rlalloc_simulator.engine.compilation import compiled
from rlalloc_simulator.engine.engine_records import NOBODY, RUNNING, Numbers, Reals, Records, World
from rlalloc_simulator.engine.view_arrays import expected_run_s, sort_rows

_PASS: Final = np.dtype(
    [
        ("head", "i8"),
        ("depth", "i8"),
        ("max_updates", "i8"),
        ("waiting", "i8"),  # jobs in the partition's queue
        ("place", "i8"),
        ("last", "i8"),  # the last place whose smallest size fits what is free
        ("asked", "i8"),
        ("blocked", "i8"),
        ("changes", "i8"),
    ],
    align=True,
)


class Pass(NamedTuple):
    """One pass through the queue of a partition.

    ``at`` (1,) says how far it goes and where it is, ``numbers`` (depth,) are the jobs. ``left`` (nodes, 3) is what
    those decided so far leave, ``blocked`` (depth, 2) the GPUs and expected run time [s] of those that have to wait.
    ``free_gpus`` is the partition's profile of free GPUs (``rlalloc.late_decisions.FreeGpus``), from ``from_s`` on.
    """

    at: Records
    numbers: Numbers
    left: Reals
    blocked: Reals
    from_s: Reals
    free_gpus: Reals


def empty_pass(jobs: int, nodes: int, head: int, depth: int, max_updates: int) -> Pass:
    """Return the memory of a pass over at most so many ``jobs`` and ``nodes``; the rest are fields of LateRules."""
    at = np.zeros(1, dtype=_PASS)
    at["head"], at["depth"], at["max_updates"] = head, depth, max_updates
    depth = min(depth, jobs)
    changes = jobs + 1 + 2 * depth
    return Pass(
        at,
        np.zeros(depth, dtype=np.int64),
        np.zeros((nodes, 3)),
        np.zeros((depth, 2)),
        np.zeros(changes),
        np.zeros(changes),
    )


@compiled
def begin(world: World, now: Pass, leasts: Numbers, partition: int, free: Reals) -> int:
    """Begin a pass; return the first job to ask about, or NOBODY.

    ``leasts`` (jobs, 5) has the smallest size of each job, columns as in ``SIZE_FIELDS``, and no nodes for a job that
    no pass may decide. ``free`` (usable nodes, 3) is what the partition has free.
    """
    at = now.at[0]
    at["waiting"], at["last"] = 0, NOBODY
    for place in range(world.clock[0]["queued"]):
        number = world.queue[place]
        if world.sizes[number]["partition"] != partition:
            continue
        if at["waiting"] < at["depth"]:
            now.numbers[at["waiting"]] = number
            if _may_change(world, now, leasts, number) and _fits(free, leasts[number]):
                at["last"] = at["waiting"]
        at["waiting"] += 1
    if at["last"] == NOBODY:
        return NOBODY
    at["place"] = at["asked"] = at["blocked"] = 0
    now.left[: len(free)] = free
    now.left[len(free) :] = -1.0  # no node
    _read_limits(world, now, partition, free[:, 0].sum())
    return _next(world, now, leasts)


@compiled
def go_on(world: World, now: Pass, leasts: Numbers, size: Numbers) -> int:
    """The job that was asked about takes ``size`` (5,); return the next one to ask about, or NOBODY."""
    _settle(world, now, size)
    return _next(world, now, leasts)


@compiled
def starts(now: Pass, size: Numbers) -> bool:
    """Whether a size (5,) has room in what is left, and backfill would start it now."""
    return _fits(now.left, size) and _start_s(now, size[0] * size[1], float(size[4])) == 0.0


@compiled
def newcomer_starts(world: World, partition: int, depth: int, free: Reals, size: Numbers) -> bool:
    """Whether a new job of ``size`` (5,) has room beside those that wait ahead of it and could start."""
    left = free.copy()
    held = np.empty(5, dtype=np.int64)
    for place in range(min(depth, world.clock[0]["queued"])):
        if not _fits(left, size):
            return False  # those ahead only take more
        number = world.queue[place]
        if world.sizes[number]["partition"] == partition:
            _read_size(world, number, held)
            _take_nodes(left, held)
    return _fits(left, size)


@compiled
def _next(world: World, now: Pass, leasts: Numbers) -> int:
    at = now.at[0]
    held = np.empty(5, dtype=np.int64)
    while at["place"] <= at["last"]:
        number = now.numbers[at["place"]]
        may_change = at["asked"] < at["head"] and _may_change(world, now, leasts, number)
        if may_change and starts(now, leasts[number]):
            at["asked"] += 1
            return int(number)
        _read_size(world, number, held)
        _settle(world, now, held)
    return NOBODY


@compiled
def _settle(world: World, now: Pass, size: Numbers) -> None:
    """The job at the present place takes ``size`` if that starts now, else GPUs as soon as it can have them."""
    at = now.at[0]
    gpus, limit_s = size[0] * size[1], float(size[4])
    start_s = _start_s(now, gpus, limit_s)
    if start_s == 0.0 and _fits(now.left, size):
        _take_nodes(now.left, size)
    else:
        number = now.numbers[at["place"]]
        now.blocked[at["blocked"], 0] = gpus
        now.blocked[at["blocked"], 1] = expected_run_s(world.jobs[number], world.sizes[number])
        at["blocked"] += 1
    if math.isfinite(start_s):
        _take_gpus(now, start_s, gpus, limit_s)
    at["place"] += 1


@compiled
def _may_change(world: World, now: Pass, leasts: Numbers, number: int) -> bool:
    job = world.jobs[number]
    never_ran = math.isnan(job["first_start_s"])
    return bool(leasts[number, 0] > 0 and never_ran and job["decisions"] <= now.at[0]["max_updates"])


@compiled
def _read_size(world: World, number: int, size: Numbers) -> None:
    there = world.sizes[number]
    size[0], size[1], size[2] = there["nodes"], there["gpus_per_node"], there["cpus_per_node"]
    size[3], size[4] = there["mem_mib_per_node"], there["limit_s"]


@compiled
def _has_room(left: Reals, node: int, size: Numbers) -> bool:
    return bool(left[node, 0] >= size[1] and left[node, 1] >= size[2] and left[node, 2] >= size[3])


@compiled
def _fits(left: Reals, size: Numbers) -> bool:
    found = 0
    for node in range(len(left)):
        found += _has_room(left, node, size)
        if found >= size[0]:
            return True
    return False


@compiled
def _take_nodes(left: Reals, size: Numbers) -> None:
    """Take the nodes with the fewest free GPUs that hold ``size``; none if there are too few."""
    if not _fits(left, size):
        return
    taken = np.zeros(len(left), dtype=np.bool_)
    for _ in range(size[0]):
        fullest = NOBODY
        for node in range(len(left)):
            is_fuller = fullest == NOBODY or left[node, 0] < left[fullest, 0]
            if is_fuller and not taken[node] and _has_room(left, node, size):
                fullest = node
        taken[fullest] = True
    for node in range(len(left)):
        if taken[node]:
            left[node, 0] -= size[1]
            left[node, 1] -= size[2]
            left[node, 2] -= size[3]


@compiled
def _read_limits(world: World, now: Pass, partition: int, free_gpus: float) -> None:
    """The profile of free GPUs as running jobs' time limits have it."""
    rows = np.empty((len(now.from_s), 2))
    running = 0
    for node in range(len(world.nodes)):
        for slot in range(world.nodes[node]["running"]):
            number = world.slots[node, slot]["job"]
            job, size = world.jobs[number], world.sizes[number]
            counted_here = world.holds[job["first_hold"]]["node"] == node  # on one of its nodes only
            if counted_here and job["state"] == RUNNING and size["partition"] == partition:
                rows[running, 0] = max(0.0, job["start_s"] + size["limit_s"] - world.clock[0]["now_s"])
                rows[running, 1] = size["nodes"] * size["gpus_per_node"]
                running += 1
    sort_rows(rows[:running])
    now.from_s[0], now.free_gpus[0] = 0.0, free_gpus
    last = 0
    for row in range(running):
        if rows[row, 0] > now.from_s[last]:
            last += 1
            now.from_s[last], now.free_gpus[last] = rows[row, 0], now.free_gpus[last - 1]
        now.free_gpus[last] += rows[row, 1]
    now.at[0]["changes"] = last + 1


@compiled
def _start_s(now: Pass, gpus: int, limit_s: float) -> float:
    """Seconds until so many GPUs are free for the time limit; infinite if never."""
    start_s, is_free = 0.0, True
    for change in range(now.at[0]["changes"]):
        if is_free and now.from_s[change] >= start_s + limit_s:
            return start_s
        if now.free_gpus[change] < gpus:
            is_free = False
        elif not is_free:
            start_s, is_free = now.from_s[change], True
    return start_s if is_free else math.inf


@compiled
def _take_gpus(now: Pass, start_s: float, gpus: int, limit_s: float) -> None:
    first = _change_at(now, start_s)
    end = _change_at(now, start_s + limit_s)
    for change in range(first, end):
        now.free_gpus[change] -= gpus


@compiled
def _change_at(now: Pass, time_s: float) -> int:
    """The place of a time in the profile, which is put in where it is none of a change."""
    changes = now.at[0]["changes"]
    place = int(np.searchsorted(now.from_s[:changes], time_s))
    if place < changes and now.from_s[place] == time_s:
        return place
    for later in range(changes, place, -1):
        now.from_s[later], now.free_gpus[later] = now.from_s[later - 1], now.free_gpus[later - 1]
    now.from_s[place], now.free_gpus[place] = time_s, now.free_gpus[place - 1]
    now.at[0]["changes"] = changes + 1
    return place
