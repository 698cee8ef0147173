"""Time: what happens when, until all jobs have ended, a time is reached or a job needs a decision.

At one moment, in this order: node failures and repairs, ends and cancellations, jobs that become eligible, arrivals,
the priorities' calculation, the main scheduler, backfill, questions. The main scheduler runs after each submission,
end or change by rlalloc (at the next whole second and after batch_sched_delay, if that is not 0), and every
sched_interval where it was cut short or a begin time has passed (Slurm wakes for that by itself only then). Backfill
runs when anything has changed, bf_interval after its last cycle at the earliest, as in Slurm.
"""

import math
from typing import Final

from rlalloc_simulator.engine.backfill import backfill
from rlalloc_simulator.engine.compilation import compiled, compiled_for_python
from rlalloc_simulator.engine.engine_records import CANCELLED, DEFERRED, PENDING, RUNNING, World
from rlalloc_simulator.engine.event_heap import cancel_plan, plan, plan_look
from rlalloc_simulator.engine.job_runs import await_turn, conclude, defer, fail_jobs_on, finish
from rlalloc_simulator.engine.main_pass import main_pass
from rlalloc_simulator.engine.queue_priority import calculate, dequeue

FINISHED: Final = 0
REACHED: Final = 1
ASKS: Final = 2
FREED: Final = 3


@compiled_for_python
def advance(world: World, until_s: float) -> int:
    """Run until all jobs have ended (FINISHED), ``until_s`` (REACHED) or a question (ASKS, see ``world.asked``).

    Where the site decides late, also until resources have been freed while jobs wait (FREED).
    """
    clock = world.clock[0]
    while True:
        time_s = next_time(world)
        if time_s > until_s or math.isinf(time_s):
            if math.isinf(until_s):
                return FINISHED
            clock["now_s"] = max(clock["now_s"], until_s)
            return REACHED if math.isfinite(time_s) else FINISHED
        clock["now_s"] = max(clock["now_s"], time_s)
        _nodes_change(world)
        _agenda_comes_due(world)
        _jobs_arrive(world)
        if clock["next_look_s"] <= clock["now_s"]:
            clock["next_look_s"] = math.inf
            if clock["queued"] > 0:
                return FREED
        _schedule(world)
        _review(world)
        if clock["asked"] > 0 and clock["next_answer_s"] <= clock["now_s"]:
            clock["next_answer_s"] = math.inf
            if _still_waiting(world):
                return ASKS


@compiled
def wake(world: World) -> None:
    """Something has changed: run the main scheduler as soon as it may, and backfill at its next time."""
    clock, rules = world.clock[0], world.rules[0]
    soonest_s = clock["now_s"]
    if rules["batch_sched_delay"] > 0:
        # slurmctld's main loop sees to it, once a second.
        soonest_s = max(math.floor(soonest_s) + 1.0, clock["last_pass_s"] + rules["batch_sched_delay"])
    clock["next_pass_s"] = min(
        clock["next_pass_s"], max(soonest_s, clock["last_pass_s"] + rules["sched_min_interval"])
    )
    _arm(world)


@compiled
def _arm(world: World) -> None:
    """Plan the next run of what runs at intervals."""
    clock, rules = world.clock[0], world.rules[0]
    now_s = clock["now_s"]
    if rules["backfill"]:
        clock["next_backfill_s"] = min(
            clock["next_backfill_s"], max(now_s, clock["last_backfill_s"] + rules["bf_interval"])
        )
    if rules["multifactor"] and math.isinf(clock["next_calculation_s"]):
        clock["next_calculation_s"] = _next_tick(now_s, rules["calc_period"], clock["last_calculation_s"])
    if rules["review_interval"] > 0 and math.isinf(clock["next_review_s"]):
        clock["next_review_s"] = _next_tick(now_s, rules["review_interval"], now_s)


@compiled
def _next_tick(now_s: float, interval_s: float, last_s: float) -> float:
    """The next multiple of an interval from now on, and after the last time."""
    tick_s = math.ceil(now_s / interval_s) * interval_s
    return tick_s if tick_s > last_s else tick_s + interval_s


@compiled_for_python
def next_time(world: World) -> float:
    """When the next thing happens; infinite if nothing will."""
    clock = world.clock[0]
    time_s = min(clock["next_pass_s"], clock["next_full_pass_s"], clock["next_backfill_s"])
    time_s = min(time_s, clock["next_calculation_s"], clock["next_review_s"], clock["next_look_s"])
    if clock["asked"] > 0:
        time_s = min(time_s, clock["next_answer_s"])
    if clock["arrived"] < len(world.jobs):
        time_s = min(time_s, world.jobs[clock["arrived"]]["submit_s"])
    if clock["waiting"] > 0:
        time_s = min(time_s, world.agenda_s[world.agenda[0]])
    if clock["failures"] < len(world.failures):
        time_s = min(time_s, world.failures[clock["failures"]]["time_s"])
    return float(time_s)


@compiled
def _nodes_change(world: World) -> None:
    clock = world.clock[0]
    while clock["failures"] < len(world.failures):
        failure = world.failures[clock["failures"]]
        if failure["time_s"] > clock["now_s"]:
            break
        clock["failures"] += 1
        there = world.nodes[failure["node"]]
        there["up"] = False
        there["repaired_s"] = max(there["repaired_s"], failure["repaired_s"])
        fail_jobs_on(world, failure["node"])
        if math.isfinite(there["repaired_s"]):
            plan(world, len(world.jobs) + 0 + failure["node"], there["repaired_s"])
        else:
            cancel_plan(world, len(world.jobs) + failure["node"])
        wake(world)


@compiled
def _agenda_comes_due(world: World) -> None:
    clock, jobs = world.clock[0], len(world.jobs)
    while clock["waiting"] > 0:
        number = world.agenda[0]
        if world.agenda_s[number] > clock["now_s"]:
            break
        cancel_plan(world, number)
        if number >= jobs:
            world.nodes[number - jobs]["up"] = True
            plan_look(world)
            wake(world)
        else:
            _job_comes_due(world, number)


@compiled
def _job_comes_due(world: World, number: int) -> None:
    job, clock = world.jobs[number], world.clock[0]
    if job["state"] == RUNNING:
        finish(world, number, 0 + job["ends_as"])  # widened: one compilation
        wake(world)
    elif job["cancel_s"] <= clock["now_s"]:
        if job["state"] == PENDING:
            dequeue(world, number)
            wake(world)
        conclude(world, number, CANCELLED)
    elif job["state"] == DEFERRED:
        await_turn(world, number)
        unchanged_s = clock["next_backfill_s"]
        _arm(world)
        # That a begin time has passed is no change that wakes backfill: it sees the job when it looks anyway.
        tick_s = _next_tick(clock["now_s"], world.rules[0]["bf_interval"], clock["last_backfill_s"])
        if world.rules[0]["backfill"]:
            clock["next_backfill_s"] = min(unchanged_s, tick_s)
        _at_next_full_pass(world)
    elif job["state"] == PENDING:  # its nice falls
        dequeue(world, number)
        await_turn(world, number)
        wake(world)


@compiled
def _at_next_full_pass(world: World) -> None:
    clock = world.clock[0]
    if math.isinf(clock["next_full_pass_s"]):
        clock["next_full_pass_s"] = _next_tick(clock["now_s"], world.rules[0]["sched_interval"], clock["last_pass_s"])


@compiled
def _jobs_arrive(world: World) -> None:
    clock, rules = world.clock[0], world.rules[0]
    while clock["arrived"] < len(world.jobs):
        number = clock["arrived"]
        job = world.jobs[number]
        if job["submit_s"] > clock["now_s"]:
            break
        clock["arrived"] += 1
        job["queued"] = clock["queued"]
        job["accrue_s"] = max(job["submit_s"], job["begin_s"])
        if job["managed"]:
            defer(world, number, max(job["begin_s"], job["submit_s"] + rules["grace"]))
            world.asked[clock["asked"]] = number
            clock["asked"] += 1
            interval_s = rules["decision_interval"]
            if math.isinf(clock["next_answer_s"]):
                clock["next_answer_s"] = (
                    clock["now_s"] if interval_s <= 0 else math.ceil(clock["now_s"] / interval_s) * interval_s
                )
        elif job["begin_s"] > clock["now_s"]:
            defer(world, number, job["begin_s"])
        else:
            await_turn(world, number)
            wake(world)


@compiled
def _schedule(world: World) -> None:
    clock, rules = world.clock[0], world.rules[0]
    now_s = clock["now_s"]
    if clock["next_calculation_s"] <= now_s:
        clock["next_calculation_s"] = math.inf
        reordered = calculate(world)
        something_comes = clock["waiting"] > 0 or clock["arrived"] < len(world.jobs)
        if clock["queued"] > 0 and something_comes:
            clock["next_calculation_s"] = now_s + rules["calc_period"]
        if reordered:
            _arm(world)
    full = clock["next_full_pass_s"] <= now_s
    if full or clock["next_pass_s"] <= now_s:
        clock["next_pass_s"] = math.inf
        if full:
            clock["next_full_pass_s"] = math.inf
        clock["last_pass_s"] = now_s
        if clock["queued"] > 0 and main_pass(world, 0 if full else rules["default_queue_depth"]):
            _at_next_full_pass(world)
    if clock["next_backfill_s"] <= now_s:
        clock["next_backfill_s"] = math.inf
        clock["last_backfill_s"] = now_s
        if clock["queued"] > 0 and backfill(world):
            _arm(world)


@compiled
def _review(world: World) -> None:
    """Ask again for managed jobs that still wait near the head of the queue."""
    clock, rules = world.clock[0], world.rules[0]
    if clock["next_review_s"] > clock["now_s"]:
        return
    clock["next_review_s"] = math.inf
    for place in range(min(clock["queued"], rules["review_depth"])):
        number = world.queue[place]
        job = world.jobs[number]
        if job["managed"] and 0 < job["decisions"] < rules["review_limit"]:
            world.asked[clock["asked"]] = number
            clock["asked"] += 1
            clock["next_answer_s"] = clock["now_s"]


@compiled
def _still_waiting(world: World) -> bool:
    """Drop questions about jobs that are not pending any more; return whether any is left."""
    clock = world.clock[0]
    kept = 0
    for place in range(clock["asked"]):
        number = world.asked[place]
        if world.jobs[number]["state"] == DEFERRED or world.jobs[number]["state"] == PENDING:
            world.asked[kept] = number
            kept += 1
    clock["asked"] = kept
    return kept > 0
