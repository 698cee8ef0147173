"""Jobs from start to end: what they hold, how long they run, how they end and what they keep."""

import math

from rlalloc.urgency import STEPS, nice_left, steps_taken
from rlalloc_simulator.engine.compilation import compiled, compiled_for_python
from rlalloc_simulator.engine.dependencies import NEVER, settle_dependants
from rlalloc_simulator.engine.engine_records import (
    BEGIN_TIME,
    CANCELLED,
    COMPLETED,
    DEFERRED,
    DEPENDENCY,
    DEPENDENCY_NEVER_SATISFIED,
    FAILED,
    NO_REASON,
    NOBODY,
    NODE_FAIL,
    OUT_OF_MEMORY,
    PENDING,
    PRIORITY,
    RUNNING,
    TIMEOUT,
    Numbers,
    Reals,
    Records,
    World,
)
from rlalloc_simulator.engine.event_heap import cancel_plan, plan, plan_look
from rlalloc_simulator.engine.queue_priority import count_usage, enqueue

_steps_taken, _nice_left = compiled(steps_taken), compiled(nice_left)


@compiled_for_python
def speed(
    curve_points: Numbers, curve_gpus: Reals, curve_speedup: Reals, curve: int, gpus: int, cpu_supply: float
) -> float:
    """Speed on ``gpus`` GPUs in multiples of one well-fed GPU, as rlalloc.speed.SpeedCurve.at.

    ``cpu_supply`` is the CPUs that a GPU has over those that it needs.
    """
    points = curve_points[curve]
    fed = min(1.0, cpu_supply)
    if gpus >= curve_gpus[curve, points - 1]:
        return float(curve_speedup[curve, points - 1] * fed)
    for point in range(points - 1):
        low, high = curve_gpus[curve, point], curve_gpus[curve, point + 1]
        if low <= gpus <= high:
            weight = math.log(gpus / low) / math.log(high / low)
            low_speed, high_speed = curve_speedup[curve, point], curve_speedup[curve, point + 1]
            return float(low_speed * (high_speed / low_speed) ** weight * fed)
    return float(curve_speedup[curve, 0] * fed)


@compiled
def start(world: World, number: int) -> None:
    """Start a job that has left the queue on the nodes in ``world.chosen``."""
    job, now_s = world.jobs[number], world.clock[0]["now_s"]
    job["state"], job["reason"] = RUNNING, NO_REASON
    job["start_s"] = now_s
    first = math.isnan(job["first_start_s"])
    if first:
        job["first_start_s"] = now_s
    _hold(world, number)
    _predict_end(world, number)
    plan(world, number, job["end_s"])
    _count(world, number, 1)
    if first:
        settle_dependants(world, number)


@compiled
def finish(world: World, number: int, state: int) -> None:
    """End a running job: free what it held, and settle what became of its work."""
    job, now_s = world.jobs[number], world.clock[0]["now_s"]
    _release(world, number)
    _settle_work(world, number, state in (COMPLETED, FAILED))
    if math.isnan(job["first_end_s"]):
        job["first_end_s"], job["first_state"] = now_s, state
    killed = state in (OUT_OF_MEMORY, TIMEOUT)
    of_its_size = killed and job["resized"] and not job["killed_as_requested"]
    if of_its_size and world.rules[0]["resubmit_killed"]:
        _as_requested(world, number)
        job["progress"] = 0.0
        job["lost_work_s"] += job["useful_work_s"]
        job["useful_work_s"] = 0.0
        await_turn(world, number)
        return
    conclude(world, number, state)


@compiled
def conclude(world: World, number: int, state: int) -> None:
    """Write down the end of a job that holds nothing."""
    job = world.jobs[number]
    job["state"], job["reason"] = state, NO_REASON
    job["finished_s"] = world.clock[0]["now_s"]
    cancel_plan(world, number)
    world.clock[0]["ended"] += 1
    settle_dependants(world, number)


@compiled
def requeue(world: World, number: int) -> None:
    """Requeue a running job: it may begin again after slurmctld's delay, from its checkpoint if it can resume."""
    job, clock = world.jobs[number], world.clock[0]
    _release(world, number)
    _settle_work(world, number, False)
    job["restarts"] += 1
    job["added_nice"] = 0
    job["accrue_s"] = clock["now_s"] + world.rules[0]["requeue_delay"]
    defer(world, number, job["accrue_s"])


@compiled
def defer(world: World, number: int, begin_s: float) -> None:
    """Let a job wait for its begin time."""
    job = world.jobs[number]
    job["state"], job["reason"] = DEFERRED, BEGIN_TIME
    plan(world, number, min(begin_s, max(world.clock[0]["now_s"], job["cancel_s"])))


@compiled
def await_turn(world: World, number: int) -> None:
    """Put an eligible job into the queue unless a dependency is unmet."""
    job = world.jobs[number]
    next_s = job["cancel_s"]
    if job["unmet"] > 0:
        job["state"] = DEFERRED
        job["reason"] = DEPENDENCY if job["unmet"] < NEVER else DEPENDENCY_NEVER_SATISFIED
    else:
        job["state"], job["reason"] = PENDING, PRIORITY
        next_s = min(next_s, _decay_nice(world, number))
        enqueue(world, number)
    if math.isfinite(next_s):
        plan(world, number, max(world.clock[0]["now_s"], next_s))
    else:
        cancel_plan(world, number)


@compiled
def _decay_nice(world: World, number: int) -> float:
    """Decay a job's nice with its wait (rlalloc.urgency); return when it decays next, infinite if it does not."""
    job = world.jobs[number]
    steps = _steps_taken(world.clock[0]["now_s"] - job["accrue_s"], job["patience_s"])
    left = _nice_left(job["added_nice"], steps)
    job["nice"] = job["own_nice"] + left
    if left == 0:
        return math.inf
    return float(job["accrue_s"] + job["patience_s"] * (steps + 1) / STEPS)


@compiled
def fail_jobs_on(world: World, node: int) -> None:
    """End or requeue all that runs on a node that has failed."""
    while world.nodes[node]["running"] > 0:
        number = 0 + world.slots[node, 0]["job"]  # widened: one compilation
        if world.jobs[number]["requeues"]:
            requeue(world, number)
        else:
            finish(world, number, NODE_FAIL)


@compiled
def _as_requested(world: World, number: int) -> None:
    job, size = world.jobs[number], world.sizes[number]
    size["nodes"] = job["requested_nodes"]
    size["gpus_per_node"] = job["requested_gpus_per_node"]
    size["cpus_per_node"] = job["requested_cpus_per_node"]
    size["mem_mib_per_node"] = job["requested_mem_mib_per_node"]
    size["limit_s"] = job["requested_limit_s"]
    job["resized"] = False
    job["added_nice"] = 0


@compiled
def _predict_end(world: World, number: int) -> None:
    """Set when and how this run ends if nothing interferes."""
    job, size = world.jobs[number], world.sizes[number]
    gpus = max(1, size["nodes"] * size["gpus_per_node"])
    per_node = max(1, size["gpus_per_node"])
    supply = size["cpus_per_node"] / per_node / job["cpus_per_gpu_needed"]
    slowest = math.inf
    for place in range(size["nodes"]):
        slowest = min(slowest, world.nodes[world.chosen[place]]["speed"])
    job["speed"] = slowest * speed(
        world.curve_points, world.curve_gpus, world.curve_speedup, job["curve"], gpus, supply
    )
    job["overhead_s"] = world.rules[0]["launch"] + (job["restart_cost_s"] if job["restarts"] > 0 else 0.0)
    run_s = job["overhead_s"] + max(0.0, job["stops_at"] - job["progress"]) * job["work_s"] / job["speed"]
    ends_as = job["stop_state"] if job["stops_at"] < 1.0 else COMPLETED
    too_little = size["mem_mib_per_node"] / per_node < job["mem_mib_per_gpu_needed"]
    if too_little or size["nodes"] * size["gpus_per_node"] < job["gpus_needed"]:
        run_s *= world.rules[0]["out_of_memory_after"]
        ends_as = OUT_OF_MEMORY
    if run_s > size["limit_s"]:
        run_s, ends_as = _until_looked_at(job["start_s"] + size["limit_s"], world) - job["start_s"], TIMEOUT
    cancelled_s = job["first_start_s"] + job["cancel_after_s"] - job["start_s"]
    if run_s > cancelled_s:
        run_s, ends_as = max(0.0, cancelled_s), CANCELLED
    job["ends_as"] = ends_as
    job["end_s"] = job["start_s"] + run_s


@compiled
def _until_looked_at(time_s: float, world: World) -> float:
    """The next time at which slurmctld looks for jobs that have reached their time limits."""
    interval_s = world.rules[0]["time_limit_interval"]
    return float(time_s) if interval_s <= 0 else math.ceil(time_s / interval_s) * interval_s


@compiled
def _settle_work(world: World, number: int, keeps_all: bool) -> None:
    """Divide what the run has done into work that is kept and work that is lost."""
    job = world.jobs[number]
    productive_s = max(0.0, world.clock[0]["now_s"] - job["start_s"] - job["overhead_s"])
    kept_s = productive_s
    if not keeps_all:
        kept_s = 0.0
        if job["resumes"]:
            every_s = job["checkpoint_interval_s"]
            kept_s = productive_s if every_s <= 0 else math.floor(productive_s / every_s) * every_s
    job["progress"] += kept_s * job["speed"] / job["work_s"]
    job["useful_work_s"] += kept_s * job["speed"]
    job["lost_work_s"] += (productive_s - kept_s) * job["speed"]


@compiled
def _hold(world: World, number: int) -> None:
    """Take what the job needs from each chosen node; slots stay sorted by their latest end."""
    job, size, clock = world.jobs[number], world.sizes[number], world.clock[0]
    mine = world.pools[size["pool"]]
    latest_end_s = clock["now_s"] + size["limit_s"]
    job["first_hold"] = NOBODY
    for place in range(size["nodes"]):
        node = world.chosen[place]
        there, column = world.nodes[node], mine[node]["column"]
        units = size["gpus_per_node"] * mine[node]["units"]
        world.free_devices[node, column] -= units
        there["most_free"] = _most_free(world.free_devices, node)
        there["free_cpus"] -= size["cpus_per_node"]
        there["free_mem_mib"] -= size["mem_mib_per_node"]
        slot = there["running"]
        there["running"] += 1
        while slot > 0 and world.slots[node, slot - 1]["latest_end_s"] > latest_end_s:
            _copy_slot(world, node, slot - 1, slot)
            slot -= 1
        held = world.slots[node, slot]
        held["latest_end_s"], held["job"] = latest_end_s, number
        held["column"], held["units"] = column, units
        held["cpus"], held["mem_mib"] = size["cpus_per_node"], size["mem_mib_per_node"]
        _predict_free(
            world.slots,
            world.units_free_s,
            node,
            column,
            world.free_devices[node, column],
            there["running"],
        )
        link = clock["free_hold"]
        clock["free_hold"] = world.holds[link]["next"]
        world.holds[link]["node"], world.holds[link]["next"] = node, job["first_hold"]
        job["first_hold"] = link


@compiled
def _release(world: World, number: int) -> None:
    """Give back all that the job holds."""
    job, size, clock = world.jobs[number], world.sizes[number], world.clock[0]
    mine = world.pools[size["pool"]]
    job["held_gpu_s"] += (clock["now_s"] - job["start_s"]) * size["nodes"] * size["gpus_per_node"]
    while job["first_hold"] != NOBODY:
        link = job["first_hold"]
        node = world.holds[link]["node"]
        there, column = world.nodes[node], mine[node]["column"]
        world.free_devices[node, column] += size["gpus_per_node"] * mine[node]["units"]
        there["most_free"] = _most_free(world.free_devices, node)
        there["free_cpus"] += size["cpus_per_node"]
        there["free_mem_mib"] += size["mem_mib_per_node"]
        slot = 0
        while world.slots[node, slot]["job"] != number:
            slot += 1
        there["running"] -= 1
        for later in range(slot, there["running"]):
            _copy_slot(world, node, later + 1, later)
        _predict_free(
            world.slots,
            world.units_free_s,
            node,
            column,
            world.free_devices[node, column],
            there["running"],
        )
        job["first_hold"] = world.holds[link]["next"]
        world.holds[link]["next"] = clock["free_hold"]
        clock["free_hold"] = link
    _count(world, number, -1)
    plan_look(world)


@compiled
def _most_free(free_devices: Numbers, node: int) -> int:
    most = free_devices[node, 0]
    for column in range(1, free_devices.shape[1]):
        most = max(most, free_devices[node, column])
    return int(most)


@compiled
def _predict_free(slots: Records, units_free_s: Reals, node: int, column: int, free: int, running: int) -> None:
    """Set when each number of units of a node's stock will be free, at the time limits of what runs there."""
    units: int = 0
    time_s, slot = -math.inf, 0
    while True:
        while units <= free:
            units_free_s[column, units, node] = time_s
            units += 1
        if slot == running:
            return
        held = slots[node, slot]
        free, time_s = free + (held["units"] if held["column"] == column else 0), held["latest_end_s"]
        slot += 1


@compiled
def _copy_slot(world: World, node: int, source: int, target: int) -> None:
    one, other = world.slots[node, source], world.slots[node, target]
    other["latest_end_s"], other["job"] = one["latest_end_s"], one["job"]
    other["column"], other["units"] = one["column"], one["units"]
    other["cpus"], other["mem_mib"] = one["cpus"], one["mem_mib"]


@compiled
def _count(world: World, number: int, sign: int) -> None:
    """Count a job that starts (1) or ends (-1) among its user's and the site's running ones."""
    size = world.sizes[number]
    if world.rules[0]["multifactor"]:
        count_usage(world)
    user = world.users[world.jobs[number]["user"]]
    if world.jobs[number]["whole_gpus"]:
        user["running_gpus"] += sign * size["nodes"] * size["gpus_per_node"]
    user["billing_rate"] += sign * size["nodes"] * size["cpus_per_node"]
    world.clock[0]["running"] += sign
