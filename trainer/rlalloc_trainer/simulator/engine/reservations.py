"""When nodes will be free, and whom they are promised to: the reservations of one backfill cycle."""

import math
from typing import NamedTuple

import numpy as np

from rlalloc_trainer.simulator.engine.compiled import compiled
from rlalloc_trainer.simulator.engine.records import NOBODY, Flags, Numbers, Reals, Record, Records, World


class Reservations(NamedTuple):
    """Chains of reserved times, one a node, ascending; ``used`` counts the links in use.

    ``soonest_s`` is a time by node before which no job of this cycle can start on it.
    Gaps in which not even a job of the ``shortest_s`` time limit of this cycle has room are closed, so that chains
    stay short.
    """

    first: Numbers
    following: Numbers
    begin_s: Reals
    end_s: Reals
    used: Numbers
    soonest_s: Reals
    shortest_s: float


@compiled
def no_reservations(world: World, order: Numbers) -> Reservations:
    """Return empty chains, with links enough for one reservation of each job."""
    links, shortest_s, fewest_gpus = 0, math.inf, 1
    for place in range(len(order)):
        size = world.sizes[order[place]]
        links += size["nodes"]
        shortest_s = min(shortest_s, float(size["limit_s"]))
        fewest_gpus = min(fewest_gpus, size["gpus_per_node"])
    soonest_s = np.full(len(world.nodes), world.clock[0]["now_s"])
    for node in range(len(world.nodes)):
        there = world.nodes[node]
        slot = 0
        free_gpus, free_cpus = there["free_gpus"], there["free_cpus"]
        while slot < there["running"] and (free_gpus < fewest_gpus or free_cpus < 1):
            held = world.slots[node, slot]
            soonest_s[node] = max(soonest_s[node], held["latest_end_s"])
            free_gpus, free_cpus = free_gpus + held["gpus"], free_cpus + held["cpus"]
            slot += 1
    return Reservations(
        np.full(len(world.nodes), NOBODY, dtype=np.int64),
        np.empty(links, dtype=np.int64),
        np.empty(links),
        np.empty(links),
        np.zeros(1, dtype=np.int64),
        soonest_s,
        shortest_s,
    )


@compiled
def earliest_start(
    world: World, reservations: Reservations, size: Record, window_end_s: float, from_s: float
) -> float:
    """Earliest time from ``from_s`` on when enough nodes together can hold a job; infinite if after ``window_end_s``.

    The nodes that can hold it then are marked in ``world.room``.
    """
    # The loops over nodes hand single arrays on: a whole World costs more to pass than the question itself.
    nodes, slots, usable, room = world.nodes, world.slots, world.allowed, world.room
    first, following = reservations.first, reservations.following
    begin_s, end_s, possible_s = reservations.begin_s, reservations.end_s, reservations.soonest_s
    limit_s, wanted = float(size["limit_s"]), size["nodes"]
    _mark_usable(nodes, world.in_partition[size["partition"]], size["gpu_type"], usable)
    soonest = np.empty(wanted)
    while True:
        soonest[:] = math.inf
        for node in range(len(nodes)):
            bound_s = min(window_end_s, soonest[wanted - 1])
            if not usable[node] or possible_s[node] > bound_s:
                continue
            time_s = _after(first, following, begin_s, end_s, node, from_s, limit_s, bound_s)
            time_s = _freed(nodes, slots, node, size, time_s, bound_s)
            time_s = _after(first, following, begin_s, end_s, node, time_s, limit_s, bound_s)
            if time_s <= bound_s:
                _insert(soonest, wanted, time_s)
        start_s = soonest[wanted - 1]
        if math.isinf(start_s):
            return math.inf
        together = 0
        for node in range(len(nodes)):
            room[node] = (
                usable[node]
                and possible_s[node] <= start_s
                and _after(first, following, begin_s, end_s, node, start_s, limit_s, start_s) <= start_s
                and _freed(nodes, slots, node, size, start_s, start_s) <= start_s
            )
            together += room[node]
        if together >= wanted:
            return float(start_s)
        from_s = start_s  # some nodes are reserved again by then: look for a later time


@compiled
def add(reservations: Reservations, node: int, begin_s: float, end_s: float) -> None:
    """Reserve ``node``, as part of a reservation that it touches if there is one."""
    before, after = NOBODY, reservations.first[node]
    while after != NOBODY and reservations.begin_s[after] < begin_s:
        before, after = after, reservations.following[after]
    if before != NOBODY and begin_s - reservations.end_s[before] <= reservations.shortest_s:
        link = before
        reservations.end_s[link] = max(reservations.end_s[link], end_s)
    else:
        link = reservations.used[0]
        reservations.used[0] += 1
        reservations.begin_s[link], reservations.end_s[link] = begin_s, end_s
        if before == NOBODY:
            reservations.first[node] = link
        else:
            reservations.following[before] = link
    while after != NOBODY and reservations.begin_s[after] - reservations.end_s[link] <= reservations.shortest_s:
        reservations.end_s[link] = max(reservations.end_s[link], reservations.end_s[after])
        after = reservations.following[after]
    reservations.following[link] = after
    if reservations.begin_s[link] - reservations.soonest_s[node] <= reservations.shortest_s:
        reservations.soonest_s[node] = max(reservations.soonest_s[node], reservations.end_s[link])


@compiled
def _mark_usable(nodes: Records, mine: Flags, gpu_type: int, usable: Flags) -> None:
    for node in range(len(nodes)):
        usable[node] = (
            mine[node] and nodes[node]["up"] and (gpu_type == NOBODY or nodes[node]["gpu_type"] == gpu_type)
        )


@compiled
def _insert(soonest: Reals, wanted: int, time_s: float) -> None:
    """Put a time among the ``wanted`` soonest ones, ascending; the last of them drops out."""
    place = wanted - 1
    while place > 0 and soonest[place - 1] > time_s:
        soonest[place] = soonest[place - 1]
        place -= 1
    soonest[place] = time_s


@compiled
def _freed(nodes: Records, slots: Records, node: int, size: Record, from_s: float, bound_s: float) -> float:
    """Earliest time from ``from_s`` on when running jobs, at their limits, leave room for ``size``.

    Infinite if that is after ``bound_s``.
    """
    if from_s > bound_s:
        return math.inf
    there = nodes[node]
    gpus, cpus, mem_mib = there["free_gpus"], there["free_cpus"], there["free_mem_mib"]
    time_s, slot = from_s, 0
    while gpus < size["gpus_per_node"] or cpus < size["cpus_per_node"] or mem_mib < size["mem_mib_per_node"]:
        if slot == there["running"]:
            return math.inf
        held = slots[node, slot]
        if held["latest_end_s"] > bound_s:
            return math.inf
        gpus, cpus, mem_mib = gpus + held["gpus"], cpus + held["cpus"], mem_mib + held["mem_mib"]
        time_s = max(time_s, held["latest_end_s"])
        slot += 1
    return float(time_s)


@compiled
def _after(
    first: Numbers,
    following: Numbers,
    begin_s: Reals,
    end_s: Reals,
    node: int,
    time_s: float,
    limit_s: float,
    bound_s: float,
) -> float:
    """Earliest time from ``time_s`` on when ``node`` is not reserved for ``limit_s``; a touch counts, as in Slurm.

    Beyond ``bound_s`` any time beyond it will do.
    """
    link = first[node]
    while link != NOBODY and time_s <= bound_s and begin_s[link] <= time_s + limit_s:
        time_s = max(time_s, end_s[link])
        link = following[link]
    return time_s
