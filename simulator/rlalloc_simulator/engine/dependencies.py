"""Dependencies between jobs: what a job's start or end means for its dependants."""

import math
from typing import Final

from rlalloc_simulator.engine.compilation import compiled
from rlalloc_simulator.engine.engine_records import (
    AFTER,
    AFTERANY,
    AFTEROK,
    COMPLETED,
    DEFERRED,
    DEPENDENCY,
    DEPENDENCY_NEVER_SATISFIED,
    NOBODY,
    RUNNING,
    World,
)
from rlalloc_simulator.engine.event_heap import plan

NEVER: Final = 1_000_000
"""More unmet dependencies than a job can have: one of them can never be satisfied."""


@compiled
def settle_dependants(world: World, number: int) -> None:
    """Settle the dependencies on a job that has started for the first time, or ended.

    A job without other unmet dependencies becomes eligible at once.
    """
    job = world.jobs[number]
    link = job["first_dependant"]
    while link != NOBODY:
        dependency = world.links[link]
        waiting = world.jobs[dependency["dependant"]]
        link = dependency["next"]
        kind = dependency["kind"]
        if job["state"] == RUNNING:
            if kind != AFTER:
                continue
            satisfied = True
        elif kind == AFTER:
            if not math.isnan(job["first_start_s"]):
                continue  # satisfied at its start
            satisfied = True  # cancelled before it could start
        else:
            satisfied = kind == AFTERANY or (kind == AFTEROK) == (job["state"] == COMPLETED)
        waiting["unmet"] += -1 if satisfied else NEVER
        if waiting["state"] == DEFERRED and waiting["reason"] == DEPENDENCY:
            if waiting["unmet"] == 0:
                plan(world, 0 + dependency["dependant"], world.clock[0]["now_s"])
            elif not satisfied:
                waiting["reason"] = DEPENDENCY_NEVER_SATISFIED
