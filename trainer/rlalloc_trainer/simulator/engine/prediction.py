"""When backfill expects a job that has to wait to start: coarser than the running jobs' time limits would allow.

Source: ``_will_run_test`` of select/cons_tres's job_test.c (Slurm 22.05 and 25.11; ``bf_window_linear`` is left out).
To find a start, slurmctld takes running jobs away in the order of their time limits, but not one by one: all that end
in a window together, and then sees whether the pending job fits. Windows begin at the first end, rounded up to 30 s,
and reach 30, 60, 120 … s from there, each twice as far as the last. The start is the last end of the window in which
the job fits first: it may be twice as far away as it could be.
"""

import math

import numpy as np

from rlalloc_trainer.simulator.engine.compiled import compiled
from rlalloc_trainer.simulator.engine.records import Record, World
from rlalloc_trainer.simulator.engine.reservations import Reservations, earliest_start


@compiled
def predicted_start(world: World, reservations: Reservations, size: Record, window_end_s: float) -> float:
    """As ``reservations.earliest_start``, in slurmctld's windows of ``prediction_window`` (0: at exact ends)."""
    window_s = world.rules[0]["prediction_window"]
    from_s = world.clock[0]["now_s"]
    while True:
        start_s = earliest_start(world, reservations, size, window_end_s, from_s)
        if window_s <= 0.0 or math.isinf(start_s):
            return start_s
        grouped_s = _end_of_window(world, _freed_for(world, size), window_s)
        if grouped_s > window_end_s:
            return math.inf
        if grouped_s <= start_s:
            return start_s
        from_s = grouped_s


@compiled
def _freed_for(world: World, size: Record) -> float:
    """When so many nodes of ``world.room`` as ``size`` wants have room for it by the running jobs' limits alone."""
    soonest_s = np.full(size["nodes"], math.inf)
    for node in range(len(world.nodes)):
        if not world.room[node]:
            continue
        there = world.nodes[node]
        gpus, cpus, mem_mib = there["free_gpus"], there["free_cpus"], there["free_mem_mib"]
        time_s, slot = world.clock[0]["now_s"], 0
        while gpus < size["gpus_per_node"] or cpus < size["cpus_per_node"] or mem_mib < size["mem_mib_per_node"]:
            held = world.slots[node, slot]
            gpus, cpus, mem_mib = gpus + held["gpus"], cpus + held["cpus"], mem_mib + held["mem_mib"]
            time_s = max(time_s, held["latest_end_s"])
            slot += 1
        latest = len(soonest_s) - 1
        if time_s < soonest_s[latest]:
            soonest_s[latest] = time_s
            soonest_s.sort()
    return float(soonest_s[-1])


@compiled
def _end_of_window(world: World, time_s: float, window_s: float) -> float:
    """The last end by time limit, on the nodes of ``world.room``, in the window that ``time_s`` is in.

    ``time_s`` itself if it is not after now.
    """
    now_s = world.clock[0]["now_s"]
    if time_s <= now_s:
        return time_s
    first_s = math.inf
    for node in range(len(world.nodes)):
        if world.room[node] and world.nodes[node]["running"] > 0:
            first_s = min(first_s, world.slots[node, 0]["latest_end_s"])
    begin_s = (math.floor(first_s / window_s) + 1.0) * window_s
    reach_s = window_s
    while time_s > begin_s + reach_s:
        reach_s *= 2.0
    last_s = time_s
    for node in range(len(world.nodes)):
        if not world.room[node]:
            continue
        for slot in range(world.nodes[node]["running"]):
            end_s = world.slots[node, slot]["latest_end_s"]
            if end_s <= begin_s + reach_s:
                last_s = max(last_s, end_s)
    return float(last_s)
