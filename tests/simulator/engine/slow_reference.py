"""The main scheduler and backfill once more, in plain Python, as slow as it is plain.

Written from docs/explanation/simulator.md and not from the engine: a list of jobs, time in a loop over the
moments at which anything can happen, and availability found by trying every moment and asking every node. It knows
one partition, FIFO order, rigid jobs that end before their limits, and nothing else.
"""

import itertools
import math
from dataclasses import dataclass, field


@dataclass
class RigidJob:
    """Needs (GPUs, CPUs, MiB) are of each of its ``nodes``."""

    submit_s: float
    nodes: int
    need: tuple[int, int, int]
    limit_s: float
    run_s: float
    start_s: float = math.nan
    held: list[int] = field(default_factory=list)

    @property
    def end_s(self) -> float:
        return self.start_s + self.run_s


@dataclass
class Reserved:
    nodes: list[int]
    begin_s: float
    end_s: float


def starts_of(
    jobs: list[RigidJob],
    nodes: int,
    capacity: tuple[int, int, int],
    reserve_for: int | None,
    interval_s: float = 30.0,
    resolution_s: float = 60.0,
    window_s: float = 86_400.0,
) -> list[float]:
    """Run all jobs and return their starts; ``reserve_for`` None reserves for every job."""
    now_s, last_cycle_s = 0.0, -math.inf
    changed = True
    while any(math.isnan(job.start_s) for job in jobs):
        pending = [job for job in jobs if job.submit_s <= now_s and math.isnan(job.start_s)]
        running = [job for job in jobs if job.start_s <= now_s < job.end_s]
        happened = any(now_s in (job.submit_s, job.end_s) for job in jobs)
        if happened:
            changed = True
            while pending and (where := _room(pending[0], running, nodes, capacity)) is not None:
                _start(pending.pop(0), where, now_s, running)
        if changed and now_s >= last_cycle_s + interval_s:
            changed, last_cycle_s = False, now_s
            _cycle(pending, running, nodes, capacity, now_s, reserve_for, resolution_s, now_s + window_s)
        coming = [time for job in jobs for time in (job.submit_s, job.end_s) if time > now_s]
        ticks = [last_cycle_s + interval_s] if changed else []
        now_s = min(coming + ticks)
    return [job.start_s for job in jobs]


def _cycle(
    pending: list[RigidJob],
    running: list[RigidJob],
    nodes: int,
    capacity: tuple[int, int, int],
    now_s: float,
    reserve_for: int | None,
    resolution_s: float,
    window_end_s: float,
) -> None:
    reserved: list[Reserved] = []
    for job in list(pending):
        where = _room(job, running, nodes, capacity, reserved, now_s)
        if where is not None:
            pending.remove(job)
            _start(job, where, now_s, running)
        elif reserve_for is None or len(reserved) < reserve_for:
            found = _first_chance(job, running, nodes, capacity, reserved, now_s, window_end_s)
            if found is not None:
                start_s, where = found
                reserved.append(
                    Reserved(
                        where,
                        math.floor(start_s / resolution_s) * resolution_s,
                        math.floor((start_s + job.limit_s) / resolution_s) * resolution_s,
                    )
                )


def _first_chance(
    job: RigidJob,
    running: list[RigidJob],
    nodes: int,
    capacity: tuple[int, int, int],
    reserved: list[Reserved],
    now_s: float,
    window_end_s: float,
) -> tuple[float, list[int]] | None:
    """Try every moment at which something becomes free."""
    limits = [other.start_s + other.limit_s for other in running]
    moments = sorted({now_s, *limits, *(each.end_s for each in reserved)})
    for moment in moments:
        if now_s <= moment <= window_end_s:
            left = [other for other in running if other.start_s + other.limit_s > moment]
            where = _room(job, left, nodes, capacity, reserved, moment)
            if where is not None:
                return moment, where
    return None


def _room(
    job: RigidJob,
    running: list[RigidJob],
    nodes: int,
    capacity: tuple[int, int, int],
    reserved: list[Reserved] | None = None,
    from_s: float = 0.0,
) -> list[int] | None:
    """Nodes for the job beside ``running``, not reserved while it may run; None if there are too few."""
    usable = []
    for node in range(nodes):
        used = [sum(other.need[kind] for other in running if node in other.held) for kind in range(3)]
        fits = all(used[kind] + job.need[kind] <= capacity[kind] for kind in range(3))
        taken = any(
            node in each.nodes and each.begin_s <= from_s + job.limit_s and each.end_s > from_s
            for each in reserved or []
        )
        if fits and not taken:
            usable.append(node)
    if len(usable) < job.nodes:
        return None
    sets = [
        [node for _, node in group]
        for _, group in itertools.groupby(enumerate(usable), key=lambda pair: pair[1] - pair[0])
    ]
    chosen: list[int] = []
    while len(chosen) < job.nodes:
        missing = job.nodes - len(chosen)
        enough = [each for each in sets if len(each) >= missing]
        best = min(enough, key=len) if enough else max(sets, key=len)
        chosen += best[:missing]
        sets.remove(best)
    return chosen


def _start(job: RigidJob, where: list[int], now_s: float, running: list[RigidJob]) -> None:
    job.start_s, job.held = now_s, where
    running.append(job)
