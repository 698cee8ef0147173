"""One pass of slurmctld's main scheduler.

Source: ``_schedule`` of src/slurmctld/job_scheduler.c. Jobs are tried in the order of the queue. Once one of a
partition cannot start, no other of that partition is tried, and its nodes are left alone in this pass.
"""

from rlalloc_simulator.engine.compilation import compiled
from rlalloc_simulator.engine.engine_records import RESOURCES, World
from rlalloc_simulator.engine.job_runs import start
from rlalloc_simulator.engine.placement import choose, find_room
from rlalloc_simulator.engine.queue_priority import dequeue


@compiled
def main_pass(world: World, depth: int) -> bool:
    """Start what can start, trying at most ``depth`` jobs (0: all); return whether the depth cut it short."""
    clock = world.clock[0]
    clock["passes"] += 1
    partitions = len(world.partitions)
    for partition in range(partitions):
        world.partitions[partition]["failed"] = False
    for node in range(len(world.nodes)):
        world.allowed[node] = True
    failed, tried, place = 0, 0, 0
    while place < clock["queued"] and failed < partitions:
        number = world.queue[place]
        size = world.sizes[number]
        if world.partitions[size["partition"]]["failed"]:
            place += 1
            continue
        if depth > 0 and tried >= depth:
            return True
        tried += 1
        mine = world.pools[size["pool"]]
        found = find_room(world.nodes, world.free_devices, mine, world.allowed, size, world.room)
        if choose(world.nodes, world.room, found, size, world.chosen, world.rules[0]["least_loaded_nodes"]):
            dequeue(world, number)
            start(world, number)
        else:
            world.jobs[number]["reason"] = RESOURCES
            world.partitions[size["partition"]]["failed"] = True
            for node in range(len(world.nodes)):  # also for the partitions that share them
                if world.in_partition[size["partition"], node]:
                    world.allowed[node] = False
            failed += 1
            place += 1
    return False
