"""When backfill expects a job that has to wait to start: coarser than the running jobs' time limits would allow.

Source: ``_will_run_test`` of select/cons_tres's job_test.c (Slurm 22.05 and 25.11; ``bf_window_linear`` is left out).
To find a start, slurmctld takes running jobs away in the order of their time limits, but not one by one: all that end
in a window together, and then sees whether the pending job fits. Windows begin at the first end, rounded up to 30 s,
and reach 30, 60, 120 … s from there, each twice as far as the last. The start is the last end of the window in which
the job fits first: it may be twice as far away as it could be.
"""

import math

import numpy as np

from rlalloc_simulator.engine.compilation import compiled
from rlalloc_simulator.engine.engine_records import Numbers, Record, World
from rlalloc_simulator.engine.reservations import Reservations, earliest_on_several, free_of_reservations, freed


@compiled
def in_windows(
    world: World, reservations: Reservations, size: Record, start_s: float, found: int, window_end_s: float
) -> tuple[float, int]:
    """From the earliest start of a job to the one that slurmctld predicts, in windows of ``prediction_window``.

    Takes and returns what ``reservations.earliest_on_several`` does; the nodes are in ``world.room``.
    """
    window_s = world.rules[0]["prediction_window"]
    while found > 0:
        open_to_it = _unreserved(world, reservations, size, start_s)
        grouped_s = _end_of_window(world, open_to_it, _freed_for(world, open_to_it, size), window_s)
        if grouped_s <= start_s:
            return start_s, found
        start_s, found = earliest_on_several(world, reservations, size, grouped_s, window_end_s)
    return math.inf, 0


@compiled
def _unreserved(world: World, reservations: Reservations, size: Record, start_s: float) -> Numbers:
    """The nodes that are not reserved for others while a job of ``size`` would run from ``start_s`` on."""
    nodes, mine = world.nodes, world.pools[size["pool"]]
    found = np.empty(len(nodes), dtype=np.int64)
    count = 0
    for node in range(len(nodes)):
        usable = mine[node]["most"] >= size["gpus_per_node"] and nodes[node]["up"]
        if usable and free_of_reservations(reservations.chains, node, start_s, float(size["limit_s"])):
            found[count] = node
            count += 1
    return found[:count]


@compiled
def _freed_for(world: World, nodes: Numbers, size: Record) -> float:
    """When so many of ``nodes`` as ``size`` wants have room for it, by running jobs' limits alone."""
    soonest_s = np.full(size["nodes"], math.inf)
    latest, now_s, mine = len(soonest_s) - 1, world.clock[0]["now_s"], world.pools[size["pool"]]
    for node in nodes:
        time_s = freed(world.nodes[node], mine[node], world.free_devices, world.slots, node, size, now_s, math.inf)
        if time_s < soonest_s[latest]:
            soonest_s[latest] = time_s
            soonest_s.sort()
    return float(soonest_s[latest])


@compiled
def _end_of_window(world: World, nodes: Numbers, time_s: float, window_s: float) -> float:
    """The last end by time limit on ``nodes`` in the window that ``time_s`` is in; ``time_s`` if that is now."""
    if time_s <= world.clock[0]["now_s"]:
        return time_s
    first_s = math.inf
    for node in nodes:
        if world.nodes[node]["running"] > 0:
            first_s = min(first_s, world.slots[node, 0]["latest_end_s"])
    begin_s = (math.floor(first_s / window_s) + 1.0) * window_s
    reach_s = window_s
    while time_s > begin_s + reach_s:
        reach_s *= 2.0
    last_s = time_s
    for node in nodes:
        for slot in range(world.nodes[node]["running"]):
            end_s = world.slots[node, slot]["latest_end_s"]
            if end_s <= begin_s + reach_s:
                last_s = max(last_s, end_s)
    return float(last_s)
