"""Jobs that already run when a simulation begins: for simulations from the present state of a cluster."""

from rlalloc_simulator.engine.compilation import compiled_for_python
from rlalloc_simulator.engine.engine_records import Numbers, World
from rlalloc_simulator.engine.job_runs import start


@compiled_for_python
def start_first_jobs(world: World, nodes: Numbers) -> None:
    """Start the first jobs of the workload, job n on the single node ``nodes[n]``, which must have room.

    Call it before anything else has happened.
    """
    for number in range(len(nodes)):
        world.chosen[0] = nodes[number]
        start(world, number)
    world.clock[0]["arrived"] = len(nodes)
