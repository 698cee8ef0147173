"""The rules of ``rlalloc.late_decisions`` on the engine's memory: a pass that stops at each job to ask about.

``begin`` and ``go_on`` return the job to ask about, as ``advance`` does with ASKS: what it sees is in the pass, and
``go_on`` takes the size that it has from then on. A test holds both together with ``decide_pass``.

Jobs that may use the same nodes are a group (a pool of ``decide_pass``). Groups whose nodes overlap, directly or
through others, are one component: their jobs compete. One pass goes through the queues of all components.
"""

import math
from typing import Final, NamedTuple

import numpy as np

from rlalloc.late_decisions import LateRules
from rlalloc_simulator.engine.compilation import compiled, compiled_for_python
from rlalloc_simulator.engine.engine_records import NOBODY, Flags, Numbers, Reals, Records, World
from rlalloc_simulator.engine.queue_priority import place_in_queue
from rlalloc_simulator.engine.view_arrays import expected_run_s, part_among, same_devices, sort_rows, usable_nodes

_A_PART: Final = 1e-6
"""Parts of GPUs add up to whole ones but for this."""

_PASS: Final = np.dtype(
    [
        ("head", "i8"),
        ("depth", "i8"),
        ("max_updates", "i8"),
        ("window_s", "f8"),
        ("place", "i8"),
        ("listed", "i8"),
        ("blocked", "i8"),
    ],
    align=True,
)
_GROUP: Final = np.dtype(
    [
        ("waiting", "i8"),  # jobs that compete for its nodes
        ("ahead", "i8"),  # those of them that the pass has gone by
        ("changes", "i8"),  # of its profile
        # Of a component, at the number of its first group:
        ("listed", "i8"),
        ("last", "i8"),  # the last place whose smallest size fits what is free
        ("asked", "i8"),
    ],
    align=True,
)


class Groups(NamedTuple):
    """Which jobs may use which nodes.

    ``of`` (pools,) is the number of a pool's group, NOBODY where no node is usable, and ``pool`` (groups,) each one's
    pool. ``nodes`` (groups, nodes) says which are theirs, ``shared`` (groups, groups) which part of the first one's
    GPUs jobs of the second may use, too. ``component`` (groups,) is the number of the first group of its component.
    """

    of: Numbers
    pool: Numbers
    nodes: Flags
    shared: Reals
    component: Numbers


class Pass(NamedTuple):
    """One pass through the queue.

    ``at`` (1,) says how far it goes and where it is, ``numbers`` are the jobs that it looks at, ``groups`` (groups,)
    counts jobs. ``left`` (nodes, stocks + 2) is what those decided so far leave: units of devices, CPUs, MiB.
    ``blocked`` (jobs, 3) has the group, GPUs and expected run time [s] of those that have to wait. ``free_gpus``
    (groups, changes) is each group's profile of free GPUs (``rlalloc.pool_reservations``), from ``from_s`` on.
    """

    at: Records
    groups: Records
    numbers: Numbers
    left: Reals
    blocked: Reals
    from_s: Reals
    free_gpus: Reals


def groups_of(world: World) -> Groups:
    """Return the groups as the nodes are up now."""
    usable = np.array([usable_nodes(world.nodes, pool) for pool in world.pools])
    pools = np.flatnonzero(usable.any(axis=1))
    of = np.full(len(world.pools), NOBODY, dtype=np.int64)
    of[pools] = np.arange(len(pools))
    shared = np.array(
        [
            [part_among(world.nodes, world.pools[one], world.pools[other], usable[other]) for other in pools]
            for one in pools
        ]
    ).reshape(len(pools), len(pools))
    component = np.arange(len(pools))
    for _ in pools:
        component = np.array([component[row > 0.0].min() for row in shared])
    return Groups(of, pools, usable[pools], shared, component)


def empty_pass(world: World, rules: LateRules) -> Pass:
    """Return the memory of a pass by these rules."""
    groups, jobs, (nodes, stocks) = len(world.pools), len(world.jobs), world.free_devices.shape
    at = np.zeros(1, dtype=_PASS)
    at["head"], at["depth"], at["max_updates"] = rules.head, rules.depth, rules.max_updates
    at["window_s"] = rules.window_s
    changes = jobs + 1 + 2 * min(rules.depth, jobs)
    return Pass(
        at,
        np.zeros(groups, dtype=_GROUP),
        np.zeros(jobs, dtype=np.int64),
        np.zeros((nodes, stocks + 2)),
        np.zeros((jobs, 3)),
        np.zeros((groups, changes)),
        np.zeros((groups, changes)),
    )


@compiled_for_python
def begin(world: World, now: Pass, groups: Groups, leasts: Numbers) -> int:
    """Begin a pass; return the first job to ask about, or NOBODY.

    ``leasts`` (jobs, 5) has the smallest size of each job, columns as in ``SIZE_FIELDS``, and no nodes for a job that
    no pass may decide.
    """
    at, listed, anybody = now.at[0], 0, False
    for group in range(len(groups.nodes)):
        there = now.groups[group]
        there["waiting"] = there["ahead"] = there["listed"] = there["asked"] = 0
        there["last"] = NOBODY
    _read_free(world, now)
    for place in range(world.clock[0]["queued"]):
        number = world.queue[place]
        group = group_of(world, groups, number)
        if group == NOBODY:
            continue
        for other in range(len(groups.nodes)):
            now.groups[other]["waiting"] += groups.shared[group, other] > 0.0
        component = now.groups[groups.component[group]]
        if component["listed"] == at["depth"]:
            continue
        component["listed"] += 1
        now.numbers[listed] = number
        may_change = _may_change(world, now, leasts, number)
        if may_change and _fits(now.left, world.pools[groups.pool[group]], groups.nodes[group], leasts[number]):
            component["last"] = listed
            anybody = True
        listed += 1
    if not anybody:
        return NOBODY
    at["place"], at["listed"], at["blocked"] = 0, listed, 0
    for group in range(len(groups.nodes)):
        if now.groups[groups.component[group]]["last"] != NOBODY:
            _read_limits(world, now, groups, group)
    return _next(world, now, groups, leasts)


@compiled_for_python
def go_on(world: World, now: Pass, groups: Groups, leasts: Numbers, size: Numbers) -> int:
    """The job that was asked about takes ``size`` (5,); return the next one to ask about, or NOBODY."""
    _settle(world, now, groups, group_of(world, groups, now.numbers[now.at[0]["place"]]), size)
    return _next(world, now, groups, leasts)


@compiled_for_python
def group_of(world: World, groups: Groups, number: int) -> int:
    """The group of a job; NOBODY where it may use no node now."""
    size = world.sizes[number]
    return int(groups.of[size["pool"]])


@compiled_for_python
def starts(pools: Records, now: Pass, groups: Groups, group: int, size: Numbers) -> bool:
    """Whether a size (5,) of a job of that group has room in what is left, and backfill would start it now."""
    has_room = _fits(now.left, pools[groups.pool[group]], groups.nodes[group], size)
    return has_room and _start_s(now, group, size[0] * size[1], float(size[4])) == 0.0


@compiled_for_python
def ahead_of(now: Pass, groups: Groups, group: int) -> Reals:
    """The jobs ahead that wait for nodes of a group: the GPUs that they want there and run times, shape (jobs, 2)."""
    rows, found = np.empty((now.at[0]["blocked"], 2)), 0
    for row in range(len(rows)):
        part = groups.shared[int(now.blocked[row, 0]), group]
        if part > 0.0:
            rows[found, 0], rows[found, 1] = part * now.blocked[row, 1], now.blocked[row, 2]
            found += 1
    return rows[:found]


@compiled_for_python
def newcomer_starts(world: World, now: Pass, groups: Groups, number: int, size: Numbers) -> bool:
    """Whether a new job of ``size`` (5,) has room beside those ahead of it that could start."""
    group, place = group_of(world, groups, number), place_in_queue(world, number)
    looked_at, pool = 0, world.pools[groups.pool[group]]
    held = np.empty(5, dtype=np.int64)
    _read_free(world, now)
    for there in range(place):
        if looked_at == now.at[0]["depth"] or not _fits(now.left, pool, groups.nodes[group], size):
            break  # those ahead only take more
        other = world.queue[there]
        its = group_of(world, groups, other)
        if its == NOBODY or groups.shared[its, group] == 0.0:
            continue
        _read_size(world, other, held)
        _take_nodes(now.left, world.pools[groups.pool[its]], groups.nodes[its], held)
        looked_at += 1
    return _fits(now.left, pool, groups.nodes[group], size)


@compiled
def _next(world: World, now: Pass, groups: Groups, leasts: Numbers) -> int:
    at = now.at[0]
    held = np.empty(5, dtype=np.int64)
    while at["place"] < at["listed"]:
        number = now.numbers[at["place"]]
        group = group_of(world, groups, number)
        component = now.groups[groups.component[group]]
        if at["place"] > component["last"]:
            at["place"] += 1
            continue
        may_change = component["asked"] < at["head"] and _may_change(world, now, leasts, number)
        if may_change and starts(world.pools, now, groups, group, leasts[number]):
            component["asked"] += 1
            return int(number)
        _read_size(world, number, held)
        _settle(world, now, groups, group, held)
    return NOBODY


@compiled
def _settle(world: World, now: Pass, groups: Groups, group: int, size: Numbers) -> None:
    """The job at the present place takes ``size`` if that starts now, else GPUs as soon as it can have them.

    The nodes that it takes are missing in every group that has them. Which nodes it will have later is not known:
    then each group misses the part of its GPUs that it shares with the job's group.
    """
    at, pool = now.at[0], world.pools[groups.pool[group]]
    gpus, limit_s = size[0] * size[1], float(size[4])
    start_s = _start_s(now, group, gpus, limit_s)
    for other in range(len(groups.nodes)):
        now.groups[other]["ahead"] += groups.shared[group, other] > 0.0
    if start_s == 0.0 and _fits(now.left, pool, groups.nodes[group], size):
        taken = _take_nodes(now.left, pool, groups.nodes[group], size)
        for other in range(len(groups.nodes)):
            nodes: int = 0
            its = world.pools[groups.pool[other]]
            for node in range(len(taken)):
                nodes += taken[node] and groups.nodes[other, node] and same_devices(pool[node], its[node])
            if nodes > 0:
                _take_gpus(now, other, 0.0, float(nodes * size[1]), limit_s)
    else:
        number = now.numbers[at["place"]]
        row = now.blocked[at["blocked"]]
        row[0], row[1], row[2] = group, gpus, expected_run_s(world.jobs[number], world.sizes[number])
        at["blocked"] += 1
        if start_s <= at["window_s"] and math.isfinite(start_s):
            for other in range(len(groups.nodes)):
                if groups.shared[group, other] > 0.0:
                    _take_gpus(now, other, start_s, groups.shared[group, other] * gpus, limit_s)
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
def _read_free(world: World, now: Pass) -> None:
    stocks = world.free_devices.shape[1]
    for node in range(len(world.nodes)):
        now.left[node, :stocks] = world.free_devices[node]
        now.left[node, stocks], now.left[node, stocks + 1] = (
            world.nodes[node]["free_cpus"],
            world.nodes[node]["free_mem_mib"],
        )


def left_of(world: World, now: Pass, groups: Groups, group: int) -> Reals:
    """What is left of a group's nodes: devices of its jobs' kind, CPUs and MiB, shape (nodes, 3)."""
    nodes = np.flatnonzero(groups.nodes[group])
    pool, left = world.pools[groups.pool[group]][nodes], now.left[nodes]
    devices = left[np.arange(len(nodes)), pool["column"]] // pool["units"]
    return np.column_stack((devices, left[:, -2:]))


@compiled
def _has_room(left: Reals, pool: Records, node: int, size: Numbers) -> bool:
    its, cpus = pool[node], left.shape[1] - 2
    return bool(
        size[1] <= its["most"]
        and left[node, its["column"]] >= size[1] * its["units"]
        and left[node, cpus] >= size[2]
        and left[node, cpus + 1] >= size[3]
    )


@compiled
def _fits(left: Reals, pool: Records, mine: Flags, size: Numbers) -> bool:
    found = 0
    for node in range(len(left)):
        found += mine[node] and _has_room(left, pool, node, size)
        if found >= size[0]:
            return True
    return False


@compiled
def _take_nodes(left: Reals, pool: Records, mine: Flags, size: Numbers) -> Flags:
    """Take those of ``mine`` with the fewest free GPUs that hold ``size``; none if there are too few."""
    taken, cpus = np.zeros(len(left), dtype=np.bool_), left.shape[1] - 2
    if not _fits(left, pool, mine, size):
        return taken
    for _ in range(size[0]):
        fullest, fewest = NOBODY, math.inf
        for node in range(len(left)):
            if not mine[node] or taken[node]:
                continue
            free = left[node, pool[node]["column"]] // pool[node]["units"]
            if free < fewest and _has_room(left, pool, node, size):
                fullest, fewest = node, free
        taken[fullest] = True
    for node in range(len(left)):
        if taken[node]:
            left[node, pool[node]["column"]] -= size[1] * pool[node]["units"]
            left[node, cpus] -= size[2]
            left[node, cpus + 1] -= size[3]
    return taken


@compiled
def _read_limits(world: World, now: Pass, groups: Groups, group: int) -> None:
    """A group's profile of free GPUs, as running jobs' time limits have it."""
    pool, mine = world.pools[groups.pool[group]], groups.nodes[group]
    most, free_gpus = 0, 0.0
    for node in range(len(mine)):
        if mine[node]:
            most += world.nodes[node]["running"]
            free_gpus += world.free_devices[node, pool[node]["column"]] // pool[node]["units"]
    rows, running = np.empty((most, 2)), 0
    for node in range(len(mine)):
        if not mine[node]:
            continue
        for slot in range(world.nodes[node]["running"]):
            held = world.slots[node, slot]
            ends_s = world.jobs[held["job"]]["start_s"] + world.sizes[held["job"]]["limit_s"]
            rows[running, 0] = max(0.0, ends_s - world.clock[0]["now_s"])
            is_alike = held["column"] == pool[node]["column"]
            rows[running, 1] = held["units"] / pool[node]["units"] if is_alike else 0.0
            running += 1
    sort_rows(rows)
    from_s, free, last = now.from_s[group], now.free_gpus[group], 0
    from_s[0], free[0] = 0.0, free_gpus
    for row in range(running):
        if rows[row, 0] > from_s[last]:
            last += 1
            from_s[last], free[last] = rows[row, 0], free[last - 1]
        free[last] += rows[row, 1]
    now.groups[group]["changes"] = last + 1


@compiled
def _start_s(now: Pass, group: int, gpus: int, limit_s: float) -> float:
    """Seconds until so many GPUs are free for the time limit; infinite if never."""
    from_s, free = now.from_s[group], now.free_gpus[group]
    start_s, is_free = 0.0, True
    for change in range(now.groups[group]["changes"]):
        if is_free and from_s[change] >= start_s + limit_s:
            return start_s
        if free[change] < gpus - _A_PART:
            is_free = False
        elif not is_free:
            start_s, is_free = from_s[change], True
    return start_s if is_free else math.inf


@compiled
def _take_gpus(now: Pass, group: int, start_s: float, gpus: float, limit_s: float) -> None:
    first = _change_at(now, group, start_s)
    end = _change_at(now, group, start_s + limit_s)
    for change in range(first, end):
        now.free_gpus[group, change] -= gpus


@compiled
def _change_at(now: Pass, group: int, time_s: float) -> int:
    """The place of a time in a profile, which is put in where it is none of a change."""
    from_s, free, changes = now.from_s[group], now.free_gpus[group], now.groups[group]["changes"]
    place = int(np.searchsorted(from_s[:changes], time_s))
    if place < changes and from_s[place] == time_s:
        return place
    for later in range(changes, place, -1):
        from_s[later], free[later] = from_s[later - 1], free[later - 1]
    from_s[place], free[place] = time_s, free[place - 1]
    now.groups[group]["changes"] = changes + 1
    return place
