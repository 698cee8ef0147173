"""One cycle of sched/backfill.

Source: ``_attempt_backfill`` of src/plugins/sched/backfill/backfill.c and ``_will_run_test`` of select/cons_tres
(Slurm 25.11). Jobs are taken in the order of the queue. One that can start on what is free, beside the reservations
made so far, starts. Any other gets a reservation of whole nodes, from when running jobs will have ended by their time
limits and for its own time limit, rounded to bf_resolution. Reservations live for one cycle.

Only what can start at once changes anything, so jobs behind the last one that fits the free resources are not looked
at. That saves most of the work and changes no result.
"""

import math

import numpy as np

from rlalloc_trainer.simulator.engine.compiled import compiled
from rlalloc_trainer.simulator.engine.placement import choose, has_room
from rlalloc_trainer.simulator.engine.prediction import predicted_start
from rlalloc_trainer.simulator.engine.priority import dequeue
from rlalloc_trainer.simulator.engine.records import NOBODY, RESOURCES, Numbers, Reals, Record, World
from rlalloc_trainer.simulator.engine.reservations import Reservations, add, no_reservations
from rlalloc_trainer.simulator.engine.running import start


@compiled
def backfill(world: World) -> bool:
    """Start what can start without delaying those before it; return whether a limit cut the cycle short."""
    clock, rules = world.clock[0], world.rules[0]
    clock["backfills"] += 1
    candidates = _that_fit(world, min(clock["queued"], rules["bf_max_job_test"]))
    left = len(candidates)
    if left == 0:
        return False
    order = world.queue[: candidates[left - 1] + 1].copy()
    reservations = no_reservations(world, order)
    for partition in range(len(world.partitions)):
        world.partitions[partition]["reserved"] = 0
    most = rules["bf_job_part_count_reserve"]
    started, place, candidate = 0, 0, 0
    while left > 0 and place <= candidates[left - 1]:
        number = order[place]
        size = world.sizes[number]
        partition = world.partitions[size["partition"]]
        less_room = False
        fits = candidates[candidate] == place
        candidate += fits
        if fits and _can_start(world, reservations, size):
            _mark_room_now(world, reservations, size)
            choose(world.nodes, world.room, size, world.chosen, rules["least_loaded_nodes"])
            dequeue(world, number)
            start(world, number)
            clock["backfilled"] += 1
            started += 1
            less_room = True
            if started == rules["bf_max_job_start"]:
                return True
        elif most == 0 or partition["reserved"] < most:
            world.jobs[number]["reason"] = RESOURCES
            less_room = _reserve(world, reservations, size)
            partition["reserved"] += less_room
        place += 1
        while (
            left > 0 and less_room and not _can_start(world, reservations, world.sizes[order[candidates[left - 1]]])
        ):
            left -= 1  # room only becomes less in a cycle
    return False


@compiled
def _that_fit(world: World, tested: int) -> Numbers:
    """Places of the tested jobs that may fit what is free now, reservations aside, ascending; the last one does."""
    most_gpus = 0
    for node in range(len(world.nodes)):
        most_gpus = max(most_gpus, world.nodes[node]["gpus"])
    # What nodes with at least so many free GPUs have: an upper bound for a quick no.
    count = np.zeros(most_gpus + 1, dtype=np.int64)
    cpus = np.zeros(most_gpus + 1, dtype=np.int64)
    mem_mib = np.zeros(most_gpus + 1, dtype=np.int64)
    for node in range(len(world.nodes)):
        there = world.nodes[node]
        if there["up"]:
            free = there["free_gpus"]
            count[free] += 1
            cpus[free] = max(cpus[free], there["free_cpus"])
            mem_mib[free] = max(mem_mib[free], there["free_mem_mib"])
    for gpus in range(most_gpus - 1, -1, -1):
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
    while fitting > 0 and not _fits(world, world.sizes[world.queue[places[fitting - 1]]]):
        fitting -= 1
    return places[:fitting]


@compiled
def _fits(world: World, size: Record) -> bool:
    """Whether enough nodes have room for a job of ``size`` at this moment."""
    nodes, mine = world.nodes, world.in_partition[size["partition"]]
    found = 0
    for node in range(len(nodes)):
        if mine[node] and has_room(nodes, node, size):
            found += 1
            if found == size["nodes"]:
                return True
    return False


@compiled
def _can_start(world: World, reservations: Reservations, size: Record) -> bool:
    """Whether enough nodes have room for a job of ``size`` from now to its limit."""
    nodes, mine = world.nodes, world.in_partition[size["partition"]]
    first, begin_s = reservations.first, reservations.begin_s
    limit_at_s = world.clock[0]["now_s"] + size["limit_s"]
    found = 0
    for node in range(len(nodes)):
        if mine[node] and has_room(nodes, node, size) and not _reserved_by(first, begin_s, node, limit_at_s):
            found += 1
            if found == size["nodes"]:
                return True
    return False


@compiled
def _mark_room_now(world: World, reservations: Reservations, size: Record) -> None:
    """Mark the nodes where a job of this ``size`` could run from now to its limit."""
    nodes, mine, room = world.nodes, world.in_partition[size["partition"]], world.room
    first, begin_s = reservations.first, reservations.begin_s
    limit_at_s = world.clock[0]["now_s"] + size["limit_s"]
    for node in range(len(nodes)):
        room[node] = mine[node] and has_room(nodes, node, size) and not _reserved_by(first, begin_s, node, limit_at_s)


@compiled
def _reserved_by(first: Numbers, begin_s: Reals, node: int, time_s: float) -> bool:
    """Whether ``node`` is reserved from ``time_s`` or earlier on."""
    link = first[node]
    return bool(link != NOBODY and begin_s[link] <= time_s)


@compiled
def _reserve(world: World, reservations: Reservations, size: Record) -> bool:
    """Reserve nodes for a job of ``size`` at its earliest start; False if that is beyond bf_window."""
    clock, rules = world.clock[0], world.rules[0]
    start_s = predicted_start(world, reservations, size, clock["now_s"] + rules["bf_window"])
    if math.isinf(start_s):
        return False
    if not choose(world.nodes, world.room, size, world.chosen, rules["least_loaded_nodes"]):
        return False
    grain_s = rules["bf_resolution"]
    begin_s = math.floor(start_s / grain_s) * grain_s
    end_s = math.floor((start_s + size["limit_s"]) / grain_s) * grain_s
    for place in range(size["nodes"]):
        add(reservations, world.chosen[place], begin_s, end_s)
    return True
