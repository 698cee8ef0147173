"""What policies see of a simulated site: the same views that the daemon makes from Slurm's snapshot.

``rlallocd.cluster_views`` and ``rlallocd.candidates.job_view`` are their other half; a test holds both together.
"""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from rlalloc.bounds import NodeShape
from rlalloc.job import JobView
from rlalloc.view import EXPECTED_FRACTION_OF_LIMIT, ClusterView, FloatArray, expected_remaining_s
from rlalloc_trainer.simulator.engine.jobs import SubmittedJob
from rlalloc_trainer.simulator.engine.records import PENDING, RUNNING
from rlalloc_trainer.simulator.engine.simulator import Simulator


def job_view(simulator: Simulator, number: int, job: SubmittedJob) -> JobView:
    """Job ``number``, submitted as ``job``, as policies see it at this moment."""
    user = simulator.world.users[simulator.world.jobs[number]["user"]]
    return JobView(
        job_class=job.job_class,
        request=job.request,
        bounds=job.bounds,
        waited_s=max(0.0, simulator.now_s - job.submit_s),
        user_running_gpus=int(user["running_gpus"]),
    )


def cluster_view(simulator: Simulator, number: int) -> ClusterView:
    """The partition of job ``number`` as policies see it when they decide that job.

    A job that waits already sees those ahead of it in the queue; those behind it are only counted.
    """
    world = simulator.world
    partition = world.sizes[number]["partition"]
    usable = world.nodes[world.in_partition[partition] & world.nodes["up"] & (world.nodes["gpus"] > 0)]
    totals = np.stack([usable[name] for name in ("gpus", "cpus", "mem_mib")], axis=1).astype(np.float64)
    largest = max((tuple(row) for row in totals.tolist()), default=(0.0, 0.0, 0.0))
    queue = [
        int(waiting)
        for waiting in world.queue[: world.clock[0]["queued"]]
        if world.sizes[waiting]["partition"] == partition and world.sizes[waiting]["gpus_per_node"] > 0
    ]
    view = ClusterView(
        time_s=simulator.now_s,
        shape=NodeShape(gpus=int(largest[0]), cpus=int(largest[1]), mem_mib=int(largest[2])),
        free=np.stack([usable[f"free_{name}"] for name in ("gpus", "cpus", "mem_mib")], axis=1).astype(np.float64),
        totals=totals.sum(axis=0),
        releases=_releases(simulator, partition),
        queued=_demands(simulator, queue),
    )
    if world.jobs[number]["state"] != PENDING or number not in queue:
        return view
    place = queue.index(number)
    return dataclasses.replace(view, queued=_demands(simulator, queue[:place]), behind=len(queue) - place - 1)


def _releases(simulator: Simulator, partition: int) -> FloatArray:
    world = simulator.world
    rows = []
    for number in _running_in(simulator, partition):
        size, elapsed_s = world.sizes[number], simulator.now_s - world.jobs[number]["start_s"]
        nodes = int(size["nodes"])
        held = (nodes * int(size[name]) for name in ("gpus_per_node", "cpus_per_node", "mem_mib_per_node"))
        rows.append((expected_remaining_s(float(size["limit_s"]), float(elapsed_s)), *held))
    return np.array(sorted(rows), dtype=np.float64).reshape(-1, 4)


def _running_in(simulator: Simulator, partition: int) -> NDArray[np.int64]:
    world = simulator.world
    running = (world.jobs["state"] == RUNNING) & (world.sizes["partition"] == partition)
    return np.flatnonzero(running)


def _demands(simulator: Simulator, queue: list[int]) -> FloatArray:
    sizes = simulator.world.sizes[queue]
    gpus = sizes["nodes"] * sizes["gpus_per_node"]
    return np.stack([gpus, EXPECTED_FRACTION_OF_LIMIT * sizes["limit_s"]], axis=1).astype(np.float64)
