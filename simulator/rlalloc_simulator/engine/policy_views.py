"""What policies see of a simulated site: the same views that the daemon makes from Slurm's snapshot.

``rlallocd.cluster.cluster_views`` and ``rlallocd.submissions.candidates.job_view`` are their other half; a test holds
both together.
"""

import numpy as np

from rlalloc.bounds import NodeShape
from rlalloc.devices import ANY_GPU
from rlalloc.job import JobView
from rlalloc.speed.type_speeds import TypeSpeeds
from rlalloc.view import ClusterView
from rlalloc_simulator.engine.engine_records import Flags, Reals
from rlalloc_simulator.engine.job_table import SubmittedJob
from rlalloc_simulator.engine.simulator import Simulator
from rlalloc_simulator.engine.view_arrays import node_arrays, queue_rows, release_rows, usable_nodes


def job_view(simulator: Simulator, number: int, job: SubmittedJob) -> JobView:
    """Job ``number``, submitted as ``job``, as policies see it at this moment."""
    user = simulator.world.jobs[number]["user"]
    return JobView(
        job_class=job.job_class,
        request=job.request,
        bounds=job.bounds,
        waited_s=max(0.0, simulator.now_s - job.submit_s),
        user_running_gpus=int(simulator.world.users[user]["running_gpus"]),
        run_time=job.run_time,
        speed=job.speed,
    )


def usable_by(simulator: Simulator, number: int) -> Flags:
    """The nodes whose devices job ``number`` may use now."""
    world = simulator.world
    return usable_nodes(world.nodes, world.pools[world.sizes[number]["pool"]])


def nodes_view(simulator: Simulator, pool: int) -> ClusterView:
    """What a pass of late decisions sees of the nodes of a pool, without the jobs that wait."""
    mine = usable_nodes(simulator.world.nodes, simulator.world.pools[pool])
    return _view(simulator, pool, mine, np.empty((0, 2)), 0)


def cluster_view(simulator: Simulator, number: int) -> ClusterView:
    """The nodes that job ``number`` may use as policies see them when they decide that job.

    It sees those ahead of it in the queue, by its priority; those behind it are only counted.
    """
    mine = usable_by(simulator, number)
    queued, behind = queue_rows(simulator.world, number, mine)
    return _view(simulator, int(simulator.world.sizes[number]["pool"]), mine, queued, behind)


def _view(simulator: Simulator, pool: int, mine: Flags, queued: Reals, behind: int) -> ClusterView:
    world = simulator.world
    free, totals, largest = node_arrays(world.nodes, world.free_devices, world.pools[pool], mine)
    return ClusterView(
        time_s=simulator.now_s,
        shape=NodeShape(*largest.tolist()),
        free=free,
        totals=totals,
        releases=release_rows(
            world.nodes,
            world.slots,
            world.holds,
            world.jobs,
            world.sizes,
            world.pools,
            world.pools[pool],
            mine,
            simulator.now_s,
        ),
        queued=queued,
        behind=behind,
        urgency_counts=simulator.site.interception.urgency.nice_band > 0,
        gpu_types=simulator.gpu_types[pool],
        device=simulator.pools[pool].device or ANY_GPU,
        cluster_nodes=simulator.site.other_nodes
        + int(np.count_nonzero(world.nodes["up"] & simulator.devices.any(axis=1))),
        type_speeds=TypeSpeeds(simulator.site.interception.gpu_speed),
    )
