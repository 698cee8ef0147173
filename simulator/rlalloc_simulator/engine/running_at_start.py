"""Jobs that run when a simulation begins: for one that goes on from a cluster as somebody sees it."""

from rlalloc_simulator.engine.compilation import compiled
from rlalloc_simulator.engine.engine_records import Numbers, World
from rlalloc_simulator.engine.job_runs import start


@compiled
def seat(world: World, nodes: Numbers) -> None:
    """Let the first jobs of the workload run from now on, job n on the one node ``nodes[n]``, which must have room.

    To be called before anything else has happened.
    """
    for number in range(len(nodes)):
        world.chosen[0] = nodes[number]
        start(world, number)
    world.clock[0]["arrived"] = len(nodes)
