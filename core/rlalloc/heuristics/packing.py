"""A CP-SAT packing of the pending window, with OR-Tools (``pip install rlalloc[ortools]``).

After "Priority Matters" (Christensen, Giallorenzo and Mauro, 2025, arXiv:2511.08373), which packs Kubernetes' pending
pods with CP-SAT within a time budget. There pods have one size and are placed now or not at all; here the job that is
asked for has several sizes and may wait, so that the packing is over time: a cumulative constraint with one optional
interval a size (the multi-mode scheduling problem; Baptiste, Le Pape and Nuijten, 2001, Constraint-Based Scheduling).
"""

import importlib.util
import math
from collections.abc import Sequence
from typing import Final

from rlalloc.heuristics.asked import as_requested
from rlalloc.heuristics.workable_sizes import shares_for_count
from rlalloc.job import JobView, Shares
from rlalloc.speed import PRIOR
from rlalloc.view import ClusterView, expected_run_time_s

WINDOW: Final = 12
"""Jobs from the head of the queue that are packed together with the one that is asked for; those behind count too
little to pay for their time."""
SOLVER_TIME: Final = 0.05
"""CP-SAT's deterministic time, about seconds: a limit that gives the same answer on every machine."""


def solver_is_there() -> bool:
    """Whether OR-Tools is installed."""
    return importlib.util.find_spec("ortools") is not None


def window_packing(job: JobView, view: ClusterView) -> Shares:
    """The size with which the window's jobs have the least sum of completion times, at the best starts for all.

    The others keep the sizes that they have, running ones their nodes until their expected ends; GPUs are one pool.
    What is asked where the solver finds nothing in its time. Raises ModuleNotFoundError without OR-Tools.
    """
    total = int(view.totals[0])
    counts = [count for count in job.bounds.gpu_counts if count <= total]
    if not counts:
        return as_requested(job, view)
    asked_s = expected_run_time_s(job, job.request)
    asked_speed = _speed(job.request.gpus)
    runs_s = [asked_s * asked_speed / _speed(count) for count in counts]
    others = [(min(total, max(1, int(gpus))), float(run_s)) for gpus, run_s in view.queued[:WINDOW]]
    releases = [(_whole(left_s), int(gpus)) for left_s, gpus, *_ in view.releases.tolist()]
    sizes = [(count, _whole(run_s)) for count, run_s in zip(counts, runs_s, strict=True)]
    waiting = [(gpus, _whole(run_s)) for gpus, run_s in others]
    best = _best_count(sizes, waiting, releases, total)
    return as_requested(job, view) if best is None else shares_for_count(best, job.bounds)


def _best_count(
    sizes: Sequence[tuple[int, int]],
    waiting: Sequence[tuple[int, int]],
    releases: Sequence[tuple[int, int]],
    total: int,
) -> int | None:
    """Solve the packing on ``total`` GPUs; None where the solver finds nothing in its time.

    sizes     GPUs and run time [s] of each size of the job that is asked for
    waiting   GPUs and run time [s] of each other job of the window
    releases  seconds until a running job ends, and its GPUs
    """
    from ortools.sat.python import cp_model

    horizon_s = max(run_s for _, run_s in sizes) + sum(run_s for _, run_s in waiting)
    horizon_s += max((left_s for left_s, _ in releases), default=0)
    model = cp_model.CpModel()
    intervals = [model.new_fixed_size_interval_var(0, left_s, "") for left_s, _ in releases]
    ends = []
    for _, run_s in waiting:
        start = model.new_int_var(0, horizon_s, "")
        intervals.append(model.new_fixed_size_interval_var(start, run_s, ""))
        ends.append(start + run_s)
    start = model.new_int_var(0, horizon_s, "")
    chosen = [model.new_bool_var("") for _ in sizes]
    model.add_exactly_one(chosen)
    for (_, run_s), is_chosen in zip(sizes, chosen, strict=True):
        intervals.append(model.new_optional_fixed_size_interval_var(start, run_s, is_chosen, ""))
    ends.append(start + sum(run_s * is_chosen for (_, run_s), is_chosen in zip(sizes, chosen, strict=True)))
    demands = [gpus for _, gpus in releases] + [gpus for gpus, _ in waiting] + [count for count, _ in sizes]
    model.add_cumulative(intervals, demands, total)
    model.minimize(sum(ends))

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = SOLVER_TIME
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    return next(count for (count, _), is_chosen in zip(sizes, chosen, strict=True) if solver.boolean_value(is_chosen))


def _whole(seconds: float) -> int:
    """Whole seconds, for the solver knows no others."""
    return max(1, math.ceil(seconds))


def _speed(gpus: int) -> float:
    return PRIOR.at(max(1, gpus), PRIOR.cpus_per_gpu_needed)
