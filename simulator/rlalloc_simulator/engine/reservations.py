"""When nodes will be free, and for which jobs they are reserved in one backfill cycle."""

import math
from typing import NamedTuple

import numpy as np

from rlalloc_simulator.engine.compilation import compiled
from rlalloc_simulator.engine.engine_records import NOBODY, Flags, Numbers, Reals, Record, Records, World


class Chains(NamedTuple):
    """Chains of reserved times, one a node, ascending. ``first_s`` is when the first one of each node begins."""

    first: Numbers
    following: Numbers
    begin_s: Reals
    end_s: Reals
    first_s: Reals


class Reservations(NamedTuple):
    """The chains of one cycle; ``used`` counts their links in use.

    ``soonest_s`` (rows, nodes) is a time before which no job of this cycle that is of a row's pool and needs so many
    GPUs of a node can start on it, infinite for a node that is down or that it may not use. Rows are
    filled when the first job needs them (``known``). Most nodes are out of the question by it alone. Gaps in which
    not even a job of the ``shortest_s`` time limit of this cycle has room are closed, so that chains stay short.
    """

    chains: Chains
    used: Numbers
    soonest_s: Reals
    known: Flags
    shortest_s: float


@compiled
def no_reservations(world: World, order: Numbers) -> Reservations:
    """Return empty chains, with links enough for one reservation of each job."""
    nodes, rows = len(world.nodes), len(world.pools) * world.units_free_s.shape[1]
    links, shortest_s = 0, math.inf
    for place in range(len(order)):
        size = world.sizes[order[place]]
        links += size["nodes"]
        shortest_s = min(shortest_s, float(size["limit_s"]))
    chains = Chains(
        np.full(nodes, NOBODY, dtype=np.int64),
        np.empty(links, dtype=np.int64),
        np.empty(links),
        np.empty(links),
        np.full(nodes, math.inf),
    )
    return Reservations(
        chains, np.zeros(1, dtype=np.int64), np.empty((rows, nodes)), np.zeros(rows, dtype=np.bool_), shortest_s
    )


@compiled
def earliest_on_one(  # noqa: PLR0913, PLR0917 (a whole World costs more to pass than the question itself)
    nodes: Records,
    slots: Records,
    free: Numbers,
    mine: Records,
    chains: Chains,
    soonest_s: Reals,
    size: Record,
    room: Numbers,
    window_end_s: float,
) -> tuple[float, int]:
    """Earliest time when a node can hold a job of ``size``; infinite if after ``window_end_s``.

    Also returned: how many nodes can hold it then, which are put into ``room``, ascending. ``mine`` is its
    pool, ``soonest_s`` its row.
    """
    # Single arrays are handed on: all of them cost more to pass than the question itself.
    first, following, begin_s, end_s = chains.first, chains.following, chains.begin_s, chains.end_s
    # A good guess first: each node that cannot be sooner costs one comparison then.
    limit_s = float(size["limit_s"])
    guess, best_s = NOBODY, window_end_s
    for node in range(len(soonest_s)):
        if soonest_s[node] < best_s:
            guess, best_s = node, soonest_s[node]
    best_s = window_end_s
    if guess != NOBODY:
        time_s = freed(nodes[guess], mine[guess], free, slots, guess, size, soonest_s[guess], best_s)
        best_s = min(best_s, _after(first, following, begin_s, end_s, guess, time_s, limit_s, best_s))
    found = 0
    for node in range(len(soonest_s)):
        if soonest_s[node] > best_s:
            continue
        time_s = freed(nodes[node], mine[node], free, slots, node, size, soonest_s[node], best_s)
        time_s = _after(first, following, begin_s, end_s, node, time_s, limit_s, best_s)
        if time_s > best_s:
            continue
        if time_s < best_s:
            best_s, found = time_s, 0
        room[found] = node
        found += 1
    return (best_s if found > 0 else math.inf), found


@compiled
def earliest_on_several(
    world: World, reservations: Reservations, size: Record, from_s: float, window_end_s: float
) -> tuple[float, int]:
    """Likewise, from ``from_s`` on, for a job of any number of nodes; into ``world.room``."""
    nodes, slots, free, room = world.nodes, world.slots, world.free_devices, world.room
    mine = world.pools[size["pool"]]
    chains = reservations.chains
    first, following, begin_s, end_s = chains.first, chains.following, chains.begin_s, chains.end_s
    possible_s = reservations.soonest_s[size["pool"] * world.units_free_s.shape[1] + size["gpus_per_node"]]
    limit_s, wanted = float(size["limit_s"]), size["nodes"]
    soonest = np.empty(wanted)
    while True:
        soonest[:] = math.inf
        for node in range(len(nodes)):
            bound_s = min(window_end_s, soonest[wanted - 1])
            if possible_s[node] > bound_s:
                continue
            time_s = freed(nodes[node], mine[node], free, slots, node, size, max(from_s, possible_s[node]), bound_s)
            time_s = _after(first, following, begin_s, end_s, node, time_s, limit_s, bound_s)
            if time_s <= bound_s:
                _insert(soonest, wanted, time_s)
        start_s = soonest[wanted - 1]
        if math.isinf(start_s):
            return math.inf, 0
        together = 0
        for node in range(len(nodes)):
            if (
                possible_s[node] <= start_s
                and _after(first, following, begin_s, end_s, node, start_s, limit_s, start_s) <= start_s
                and freed(nodes[node], mine[node], free, slots, node, size, start_s, start_s) <= start_s
            ):
                room[together] = node
                together += 1
        if together >= wanted:
            return float(start_s), together
        from_s = start_s  # some nodes are reserved again by then: look for a later time


@compiled
def free_of_reservations(chains: Chains, node: int, time_s: float, limit_s: float) -> bool:
    """Whether ``node`` has no reservation for ``limit_s`` from ``time_s`` on."""
    first, following, begin_s, end_s = chains.first, chains.following, chains.begin_s, chains.end_s
    return bool(_after(first, following, begin_s, end_s, node, time_s, limit_s, time_s) <= time_s)


@compiled
def add(reservations: Reservations, node: int, begin_s: float, end_s: float) -> bool:
    """Reserve ``node``, as part of a reservation that it touches if there is one; return whether it is the first."""
    chains, shortest_s = reservations.chains, reservations.shortest_s
    first, following, begins_s, ends_s = chains.first, chains.following, chains.begin_s, chains.end_s
    before, after = NOBODY, first[node]
    while after != NOBODY and begins_s[after] < begin_s:
        before, after = after, following[after]
    if before != NOBODY and begin_s - ends_s[before] <= shortest_s:
        link = before
        ends_s[link] = max(ends_s[link], end_s)
    else:
        link = reservations.used[0]
        reservations.used[0] += 1
        begins_s[link], ends_s[link] = begin_s, end_s
        if before == NOBODY:
            first[node] = link
        else:
            following[before] = link
    while after != NOBODY and begins_s[after] - ends_s[link] <= shortest_s:
        ends_s[link] = max(ends_s[link], ends_s[after])
        after = following[after]
    following[link] = after
    soonest_s, known = reservations.soonest_s, reservations.known
    for row in range(len(known)):
        if known[row] and begins_s[link] <= soonest_s[row, node] + shortest_s:
            soonest_s[row, node] = _after(
                first, following, begins_s, ends_s, node, soonest_s[row, node], shortest_s, math.inf
            )
    sooner = begin_s < chains.first_s[node]
    if sooner:
        chains.first_s[node] = begin_s
    return bool(sooner)


@compiled
def job_started_on(world: World, reservations: Reservations, node: int) -> None:
    """Account for a job that has been started on ``node`` in this cycle."""
    for row in range(len(reservations.known)):
        if reservations.known[row]:
            _set_soonest(world, reservations, node, row)


@compiled
def fill_soonest(world: World, reservations: Reservations, row: int) -> None:
    """Fill a row of ``soonest_s``: that of a number of GPUs and pool is its place among all numbers of all pools."""
    nodes, free_s, kinds = world.nodes, world.units_free_s, world.units_free_s.shape[1]
    mine, gpus = world.pools[row // kinds], row % kinds
    first, now_s, soonest_s = reservations.chains.first, world.clock[0]["now_s"], reservations.soonest_s[row]
    for node in range(len(nodes)):
        soonest_s[node] = max(now_s, _free_s(nodes[node], mine[node], free_s, node, gpus))
        if first[node] != NOBODY:
            _set_soonest(world, reservations, node, row)
    reservations.known[row] = True


@compiled
def _free_s(there: Record, its: Record, units_free_s: Reals, node: int, gpus: int) -> float:
    """When a node has so many GPUs of a pool free, as running jobs' time limits have it."""
    if gpus > its["most"] or not there["up"]:
        return math.inf
    return float(units_free_s[its["column"], gpus * its["units"], node])


@compiled
def _set_soonest(world: World, reservations: Reservations, node: int, row: int) -> None:
    chains, kinds = reservations.chains, world.units_free_s.shape[1]
    its = world.pools[row // kinds, node]
    free_s = _free_s(world.nodes[node], its, world.units_free_s, node, row % kinds)
    reservations.soonest_s[row, node] = _after(
        chains.first,
        chains.following,
        chains.begin_s,
        chains.end_s,
        node,
        max(world.clock[0]["now_s"], free_s),
        reservations.shortest_s,
        math.inf,
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
def freed(
    there: Record,
    its: Record,
    free: Numbers,
    slots: Records,
    node: int,
    size: Record,
    from_s: float,
    bound_s: float,
) -> float:
    """Earliest time from ``from_s`` on when running jobs, at their limits, leave room for ``size`` on a node.

    ``there`` and ``its`` as in ``placement.has_room``; ``free`` are the free devices of all nodes.
    Infinite if that is after ``bound_s``.
    """
    if from_s > bound_s:
        return math.inf
    column, needed = its["column"], size["gpus_per_node"] * its["units"]
    units, cpus, mem_mib = free[node, column], there["free_cpus"], there["free_mem_mib"]
    time_s, slot = from_s, 0
    while units < needed or cpus < size["cpus_per_node"] or mem_mib < size["mem_mib_per_node"]:
        if slot == there["running"]:
            return math.inf
        held = slots[node, slot]
        if held["latest_end_s"] > bound_s:
            return math.inf
        units += held["units"] if held["column"] == column else 0
        cpus, mem_mib = cpus + held["cpus"], mem_mib + held["mem_mib"]
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
