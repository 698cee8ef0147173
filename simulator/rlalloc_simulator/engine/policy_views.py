"""What policies see of a simulated site: the same views that the daemon makes from Slurm's snapshot.

``rlallocd.cluster_views`` and ``rlallocd.candidates.job_view`` are their other half; a test holds both together.
"""

import numpy as np

from rlalloc.bounds import NodeShape
from rlalloc.job import JobView
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


def usable_by(simulator: Simulator, partition: int, gpu_type: int) -> Flags:
    """The nodes that jobs of a partition may use now which ask for that type of GPU (NOBODY: any)."""
    world = simulator.world
    return usable_nodes(world.nodes, world.in_partition[partition], gpu_type)


def nodes_view(simulator: Simulator, mine: Flags) -> ClusterView:
    """What a pass of late decisions sees of some nodes, without the jobs that wait."""
    return _view(simulator, mine, np.empty((0, 2)), 0)


def cluster_view(simulator: Simulator, number: int) -> ClusterView:
    """The nodes that job ``number`` may use as policies see them when they decide that job.

    It sees those ahead of it in the queue, by its priority; those behind it are only counted.
    """
    size = simulator.world.sizes[number]
    mine = usable_by(simulator, int(size["partition"]), int(size["gpu_type"]))
    queued, behind = queue_rows(simulator.world, number, mine)
    return _view(simulator, mine, queued, behind)


def _view(simulator: Simulator, mine: Flags, queued: Reals, behind: int) -> ClusterView:
    world, now_s = simulator.world, simulator.now_s
    free, totals, largest = node_arrays(world.nodes, mine)
    return ClusterView(
        time_s=now_s,
        shape=NodeShape(*largest.tolist()),
        free=free,
        totals=totals,
        releases=release_rows(world.nodes, world.slots, world.holds, world.jobs, world.sizes, mine, now_s),
        queued=queued,
        behind=behind,
        urgency_counts=simulator.site.interception.urgency.nice_band > 0,
    )
