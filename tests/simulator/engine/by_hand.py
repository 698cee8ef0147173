"""Small sites and jobs for the engine's tests: nodes of 8 GPUs, 8 CPUs and 8,000 MiB, jobs that run as told."""

from collections.abc import Sequence

import msgspec

from rlalloc.bounds import Directives, NodeShape, SiteBounds, bounds_for
from rlalloc.job import Allocation
from rlalloc.speed import SpeedCurve
from rlalloc_simulator.engine import (
    NodeKind,
    SchedulerParameters,
    SimulatedSite,
    Simulator,
    SubmittedJob,
    UserKind,
    table_of,
)
from rlalloc_simulator.engine.engine_records import REASON_NAMES, STATE_NAMES

SHAPE = NodeShape(gpus=8, cpus=8, mem_mib=8000)
LINEAR = SpeedCurve((1, 64), (1.0, 64.0), 1.0)
EASY = SchedulerParameters(bf_job_part_count_reserve=1)


def site(nodes: int = 2, users: int = 1, **changes: object) -> SimulatedSite:
    names = tuple(UserKind(name=f"user{number}") for number in range(users))
    plain = SimulatedSite(nodes=(NodeKind(count=nodes, shape=SHAPE),), users=names)
    return msgspec.structs.replace(plain, **changes)


def size(gpus: int, limit_s: int = 600, nodes: int = 1, **changes: int) -> Allocation:
    """``gpus`` a node, with a CPU and 1,000 MiB each."""
    plain = Allocation(
        nodes=nodes,
        gpus_per_node=gpus,
        tasks_per_node=1,
        cpus_per_task=max(1, gpus),
        mem_mib_per_node=1000 * gpus,
        time_limit_s=limit_s,
    )
    return msgspec.structs.replace(plain, **changes)


def job(submit_s: float, request: Allocation, run_s: float = 100.0, **changes: object) -> SubmittedJob:
    """A job that runs ``run_s`` as requested and scales linearly."""
    plain = SubmittedJob(
        submit_s=submit_s,
        request=request,
        bounds=bounds_for(request, Directives(gpus=(1, 16)), SiteBounds(), SHAPE),
        work_s=run_s * LINEAR.at(max(1, request.gpus), request.cpus_per_gpu),
        curve=LINEAR,
    )
    return msgspec.structs.replace(plain, **changes)


def simulator(jobs: Sequence[SubmittedJob], there: SimulatedSite | None = None) -> Simulator:
    there = there or site()
    return Simulator(there, table_of(jobs, there))


def starts(jobs: Sequence[SubmittedJob], there: SimulatedSite | None = None) -> list[float]:
    """Run to the end without decisions and return when each job started for the last time."""
    made = simulator(jobs, there)
    assert len(made.run()) == 0
    return [float(value) for value in made.outcomes()["start_s"]]


def states(made: Simulator) -> list[str]:
    return [STATE_NAMES[code] for code in made.outcomes()["state"]]


def reasons(made: Simulator) -> list[str]:
    return [REASON_NAMES[code] for code in made.outcomes()["reason"]]
