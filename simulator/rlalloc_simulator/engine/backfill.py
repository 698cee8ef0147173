"""One cycle of sched/backfill.

Source: ``_attempt_backfill`` of src/plugins/sched/backfill/backfill.c and ``_will_run_test`` of select/cons_tres
(Slurm 25.11). Jobs are taken in the order of the queue. One that can start on what is free, beside the reservations
made so far, starts. Any other gets a reservation of whole nodes, from the time at which running jobs reach their time
limits and for its own time limit, rounded to bf_resolution. Reservations live for one cycle.

Only jobs that can start at once change anything, so jobs behind the last one that fits the free resources are
skipped. That saves most of the work and does not change the result.
"""

import math
from typing import NamedTuple

import numpy as np

from rlalloc_simulator.engine.compilation import compiled
from rlalloc_simulator.engine.engine_records import RESOURCES, Numbers, Reals, Record, Records, World
from rlalloc_simulator.engine.job_runs import start
from rlalloc_simulator.engine.placement import choose, has_room
from rlalloc_simulator.engine.queue_priority import dequeue
from rlalloc_simulator.engine.reservations import (
    add,
    earliest_on_one,
    earliest_on_several,
    fill_soonest,
    job_started_on,
    no_reservations,
)
from rlalloc_simulator.engine.start_prediction import in_windows


class Openings(NamedTuple):
    """What is free at the moment of a cycle.

    ``nodes`` are those with anything free that a job could use, ascending, ``devices`` what is free of the devices of
    all nodes. ``until_s`` gives, by number of GPUs, the latest time until which a node with so many free ones, of
    whatever kind, is not reserved: a job that runs longer cannot start.
    """

    nodes: Numbers
    devices: Numbers
    until_s: Reals


@compiled
def backfill(world: World) -> bool:  # noqa: C901, PLR0912, PLR0915 (parts of the loop would have to be handed a World)
    """Start what can start without delaying those before it; return whether a limit cut the cycle short."""
    clock, rules = world.clock[0], world.rules[0]
    clock["backfills"] += 1
    openings = _openings(world)
    candidates = _fitting_places(world, openings, min(clock["queued"], rules["bf_max_job_test"]))
    left = len(candidates)
    if left == 0:
        return False
    order = world.queue[: candidates[left - 1] + 1].copy()
    reservations = no_reservations(world, order)
    for partition in range(len(world.partitions)):
        world.partitions[partition]["reserved"] = 0
    # The loop hands single arrays on: a whole World costs more to pass than the question itself.
    nodes, sizes, room, chosen, pools = world.nodes, world.sizes, world.room, world.chosen, world.pools
    slots, free, chains, known = world.slots, world.free_devices, reservations.chains, reservations.known
    kinds = world.units_free_s.shape[1]
    now_s, most, lln = clock["now_s"], rules["bf_job_part_count_reserve"], rules["least_loaded_nodes"]
    window_end_s, grain_s = now_s + rules["bf_window"], rules["bf_resolution"]
    windows = rules["prediction_window"] > 0.0
    started, place, candidate = 0, 0, 0
    while left > 0 and place <= candidates[left - 1]:
        number = order[place]
        size = sizes[number]
        partition, mine = world.partitions[size["partition"]], pools[size["pool"]]
        less_room = False  # for a job that would start now
        found: int = 0
        if candidates[candidate] == place:
            candidate += 1
            found = _find_room_now(nodes, mine, chains.first_s, openings, size, now_s, room, len(nodes))
        if found >= size["nodes"]:
            choose(nodes, room, found, size, chosen, lln)
            dequeue(world, number)
            start(world, number)
            for taken in range(size["nodes"]):
                job_started_on(world, reservations, chosen[taken])
            clock["backfilled"] += 1
            started += 1
            less_room = True
            if started == rules["bf_max_job_start"]:
                return True
        elif most == 0 or partition["reserved"] < most:
            world.jobs[number]["reason"] = RESOURCES
            row = size["pool"] * kinds + size["gpus_per_node"]
            if not known[row]:
                fill_soonest(world, reservations, row)
            if size["nodes"] == 1:
                soonest_s = reservations.soonest_s[row]
                start_s, found = earliest_on_one(
                    nodes, slots, free, mine, chains, soonest_s, size, room, window_end_s
                )
            else:
                start_s, found = earliest_on_several(world, reservations, size, now_s, window_end_s)
            if windows:
                start_s, found = in_windows(world, reservations, size, start_s, found, window_end_s)
            if found > 0:
                choose(nodes, room, found, size, chosen, lln)
                begin_s = math.floor(start_s / grain_s) * grain_s
                end_s = math.floor((start_s + size["limit_s"]) / grain_s) * grain_s
                for taken in range(size["nodes"]):
                    less_room |= add(reservations, chosen[taken], begin_s, end_s)
                partition["reserved"] += 1
        place += 1
        if less_room:
            left = _without_blocked(world, openings, chains.first_s, order, candidates[:left])
    return False


@compiled
def _without_blocked(world: World, openings: Openings, first_s: Reals, order: Numbers, candidates: Numbers) -> int:
    """Drop candidates at the end that cannot start any more, and return how many are left.

    They will not start in this cycle: free room only shrinks.
    """
    nodes, sizes, room, until_s = world.nodes, world.sizes, world.room, openings.until_s
    now_s = world.clock[0]["now_s"]
    until_s[:] = -math.inf
    for place in range(len(openings.nodes)):
        node = openings.nodes[place]
        gpus = nodes[node]["most_free"]
        until_s[gpus] = max(until_s[gpus], first_s[node])
    for gpus in range(len(until_s) - 2, -1, -1):
        until_s[gpus] = max(until_s[gpus], until_s[gpus + 1])
    left = len(candidates)
    while left > 0:
        size = sizes[order[candidates[left - 1]]]
        if until_s[size["gpus_per_node"]] > now_s + size["limit_s"]:
            mine, wanted = world.pools[size["pool"]], size["nodes"]
            if _find_room_now(nodes, mine, first_s, openings, size, now_s, room, wanted) == wanted:
                break
        left -= 1
    return left


@compiled
def _openings(world: World) -> Openings:
    nodes = world.nodes
    until_s = np.full(world.units_free_s.shape[1], -math.inf)
    open_nodes = np.empty(len(nodes), dtype=np.int64)
    count = 0
    for node in range(len(nodes)):
        there = nodes[node]
        if there["up"] and there["free_cpus"] > 0:  # a job has a CPU of each of its nodes at least
            open_nodes[count] = node
            count += 1
            until_s[there["most_free"]] = math.inf
    for gpus in range(len(until_s) - 2, -1, -1):
        until_s[gpus] = max(until_s[gpus], until_s[gpus + 1])
    return Openings(open_nodes[:count], world.free_devices, until_s)


@compiled
def _fitting_places(world: World, openings: Openings, tested: int) -> Numbers:
    """Places of the tested jobs that may fit what is free now without reservations, ascending; the last one does."""
    # What nodes with at least so many free GPUs have: an upper bound for a quick no.
    kinds = len(openings.until_s)
    count = np.zeros(kinds, dtype=np.int64)
    cpus = np.zeros(kinds, dtype=np.int64)
    mem_mib = np.zeros(kinds, dtype=np.int64)
    for place in range(len(openings.nodes)):
        there = world.nodes[openings.nodes[place]]
        free = there["most_free"]
        count[free] += 1
        cpus[free] = max(cpus[free], there["free_cpus"])
        mem_mib[free] = max(mem_mib[free], there["free_mem_mib"])
    for gpus in range(kinds - 2, -1, -1):
        count[gpus] += count[gpus + 1]
        cpus[gpus] = max(cpus[gpus], cpus[gpus + 1])
        mem_mib[gpus] = max(mem_mib[gpus], mem_mib[gpus + 1])
    places = np.empty(tested, dtype=np.int64)
    fitting = 0
    for place in range(tested):
        size = world.sizes[world.queue[place]]
        need = size["gpus_per_node"]
        if (
            count[need] >= size["nodes"]
            and cpus[need] >= size["cpus_per_node"]
            and mem_mib[need] >= size["mem_mib_per_node"]
        ):
            places[fitting] = place
            fitting += 1
    while fitting > 0 and not _fits(world, openings, world.sizes[world.queue[places[fitting - 1]]]):
        fitting -= 1
    return places[:fitting]


@compiled
def _fits(world: World, openings: Openings, size: Record) -> bool:
    """Whether enough nodes have room for a job of ``size`` at this moment."""
    nodes, free, mine = world.nodes, world.free_devices, world.pools[size["pool"]]
    found = 0
    for place in range(len(openings.nodes)):
        node = openings.nodes[place]
        if nodes[node]["most_free"] < size["gpus_per_node"]:
            continue
        its = mine[node]
        if has_room(nodes[node], its, free[node, its["column"]], size):
            found += 1
            if found == size["nodes"]:
                return True
    return False


@compiled
def _find_room_now(
    nodes: Records,
    mine: Records,
    first_s: Reals,
    openings: Openings,
    size: Record,
    now_s: float,
    room: Numbers,
    enough: int,
) -> int:
    """Put into ``room`` the nodes of a pool, ``mine``, where a job of this ``size`` could run from now to its limit.

    Return how many there are; the search ends when there are ``enough``. ``first_s`` is when each node is reserved.
    """
    limit_at_s, found = now_s + size["limit_s"], 0
    if openings.until_s[size["gpus_per_node"]] <= limit_at_s:
        return 0
    open_nodes, free = openings.nodes, openings.devices
    for place in range(len(open_nodes)):
        node = open_nodes[place]
        if first_s[node] <= limit_at_s or nodes[node]["most_free"] < size["gpus_per_node"]:
            continue
        its = mine[node]
        if has_room(nodes[node], its, free[node, its["column"]], size):
            room[found] = node
            found += 1
            if found == enough:
                break
    return found
