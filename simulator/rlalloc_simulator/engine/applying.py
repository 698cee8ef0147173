"""What rlalloc does to jobs: it gives them a new size, leaves them as they are, or requeues them."""

import math

from rlalloc_simulator.engine.compilation import compiled, compiled_for_python
from rlalloc_simulator.engine.engine_records import DEFERRED, NOBODY, PENDING, RUNNING, Numbers, Record, World
from rlalloc_simulator.engine.event_loop import ASKS, FREED, advance, wake
from rlalloc_simulator.engine.job_runs import await_turn, defer
from rlalloc_simulator.engine.job_runs import requeue as _requeue
from rlalloc_simulator.engine.placement import could_hold
from rlalloc_simulator.engine.queue_priority import dequeue


@compiled_for_python
def resize(world: World, numbers: Numbers, sizes: Numbers) -> int:
    """Give waiting jobs new sizes; return the first job that no nodes could ever hold, or NOBODY.

    ``sizes`` (jobs, 7) has nodes, and GPUs, CPUs and MiB a node, the time limit [s], what is added to nice and the
    seconds in which that decays to 0 (0: never). Jobs that are not pending any more stay as they are, as slurmctld
    would refuse the update. Nothing changes if no nodes could hold one of them.
    """
    unholdable = first_unholdable_of(world, numbers, sizes)
    if unholdable != NOBODY:
        return unholdable
    for row in range(len(numbers)):
        number = numbers[row]
        job = world.jobs[number]
        if job["state"] != DEFERRED and job["state"] != PENDING:
            continue
        if job["state"] == PENDING:
            dequeue(world, number)
        size = world.sizes[number]
        _set_size(size, sizes[row])
        size["names_tasks"] = True  # the daemon's update sets TasksPerNode
        job["added_nice"] = sizes[row, 5]
        job["patience_s"] = sizes[row, 6] if sizes[row, 6] > 0 else math.inf
        job["resized"] = (
            size["nodes"] != job["requested_nodes"]
            or size["gpus_per_node"] != job["requested_gpus_per_node"]
            or size["cpus_per_node"] != job["requested_cpus_per_node"]
            or size["mem_mib_per_node"] != job["requested_mem_mib_per_node"]
            or size["limit_s"] != job["requested_limit_s"]
        )
        _make_eligible(world, number)
    return NOBODY


@compiled_for_python
def run_answered(world: World, sizes: Numbers) -> int:
    """Run to the end; the answer to each question is the job's row of ``sizes`` (jobs, 7).

    Return the first job whose row no nodes could hold, or NOBODY.
    """
    clock = world.clock[0]
    while True:
        code = advance(world, math.inf)
        if code == FREED:
            continue
        if code != ASKS:
            return NOBODY
        asked = world.asked[: clock["asked"]].copy()
        clock["asked"] = 0
        unholdable = resize(world, asked, sizes[asked])
        if unholdable != NOBODY:
            return unholdable


@compiled_for_python
def leave(world: World, numbers: Numbers) -> None:
    """Let waiting jobs begin as they are."""
    for row in range(len(numbers)):
        if world.jobs[numbers[row]]["state"] == DEFERRED:
            _make_eligible(world, numbers[row])
        elif world.jobs[numbers[row]]["state"] == PENDING:
            world.jobs[numbers[row]]["decisions"] += 1


@compiled_for_python
def requeue(world: World, number: int) -> bool:
    """Requeue a running job; False if it does not run."""
    if world.jobs[number]["state"] != RUNNING:
        return False
    _requeue(world, number)
    wake(world)
    return True


@compiled_for_python
def first_unholdable(world: World) -> int:
    """Return the first job that its partition could not hold if it were empty, or NOBODY."""
    for number in range(len(world.jobs)):
        if not _holdable(world, world.sizes[number]):
            return number
    return NOBODY


@compiled_for_python
def first_unholdable_of(world: World, numbers: Numbers, sizes: Numbers) -> int:
    """Likewise, if these jobs had these ``sizes`` (jobs, 7)."""
    trial = world.sizes[:1].copy()
    for row in range(len(numbers)):
        trial[0]["pool"] = world.sizes[numbers[row]]["pool"]
        _set_size(trial[0], sizes[row])
        if not _holdable(world, trial[0]):
            return int(numbers[row])
    return NOBODY


@compiled
def _holdable(world: World, size: Record) -> bool:
    if size["nodes"] < 1 or size["cpus_per_node"] < 1:
        return False
    found, mine = 0, world.pools[size["pool"]]
    for node in range(len(world.nodes)):
        found += could_hold(world.nodes, mine, node, size)
        if found >= size["nodes"]:
            return True
    return False


@compiled
def _set_size(size: Record, given: Numbers) -> None:
    size["nodes"], size["gpus_per_node"], size["cpus_per_node"] = given[0], given[1], given[2]
    size["mem_mib_per_node"], size["limit_s"] = given[3], given[4]


@compiled
def _make_eligible(world: World, number: int) -> None:
    """Make a job eligible at its user's begin time, or after the delay of its requeue."""
    job = world.jobs[number]
    job["decisions"] += 1
    begin_s = job["accrue_s"] if job["restarts"] > 0 else job["begin_s"]
    if begin_s > world.clock[0]["now_s"]:
        defer(world, number, begin_s)
    else:
        await_turn(world, number)
        wake(world)
