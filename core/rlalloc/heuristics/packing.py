"""A CP-SAT packing of the pending window, with OR-Tools (``pip install rlalloc[ortools]``).

After "Priority Matters" (Christensen, Giallorenzo and Mauro, 2025, arXiv:2511.08373), which packs Kubernetes' pending
pods with CP-SAT within a time budget. There pods have one size and are placed now or not at all; here the job that is
asked for has several sizes and may wait, so that the packing is over time: a cumulative constraint with one optional
interval a size (the multi-mode scheduling problem; Baptiste, Le Pape and Nuijten, 2001, Constraint-Based Scheduling).
"""

import importlib.util
import math
from typing import Final

from rlalloc.heuristics.asked import as_requested
from rlalloc.heuristics.sizes import shares_for_count
from rlalloc.job import JobView, Shares
from rlalloc.speed import PRIOR
from rlalloc.view import ClusterView, expected_run_time_s

WINDOW: Final = 12
"""Jobs from the head of the queue that are packed together with the one that is asked for; those behind count too
little to pay for their time."""
STEPS: Final = 200
"""Time steps that the work in the window, one job after the other, is divided into."""
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
    from ortools.sat.python import cp_model

    total = int(view.totals[0])
    counts = [count for count in job.bounds.gpu_counts if count <= total]
    if not counts:
        return as_requested(job, view)
    asked_s = expected_run_time_s(job.request, job.request)
    asked_speed = _speed(job.request.gpus)
    runs_s = [asked_s * asked_speed / _speed(count) for count in counts]
    others = [(min(total, max(1, int(gpus))), float(run_s)) for gpus, run_s in view.queued[:WINDOW]]
    last_release_s = float(view.releases[-1, 0]) if len(view.releases) else 0.0
    step_s = max(1.0, (last_release_s + max(runs_s) + sum(run_s for _, run_s in others)) / STEPS)
    horizon = sum(_steps(run_s, step_s) for _, run_s in others)
    horizon += max(_steps(run_s, step_s) for run_s in runs_s) + _steps(last_release_s, step_s)

    model = cp_model.CpModel()
    intervals, demands, ends = [], [], []
    for left_s, gpus, *_ in view.releases.tolist():
        steps = math.ceil(left_s / step_s)
        intervals.append(model.new_fixed_size_interval_var(0, steps, ""))
        demands.append(int(gpus))
    for gpus, run_s in others:
        start = model.new_int_var(0, horizon, "")
        steps = _steps(run_s, step_s)
        intervals.append(model.new_fixed_size_interval_var(start, steps, ""))
        demands.append(gpus)
        ends.append(start + steps)
    start = model.new_int_var(0, horizon, "")
    chosen = [model.new_bool_var("") for _ in counts]
    model.add_exactly_one(chosen)
    for count, run_s, is_chosen in zip(counts, runs_s, chosen, strict=True):
        steps = _steps(run_s, step_s)
        intervals.append(model.new_optional_fixed_size_interval_var(start, steps, is_chosen, ""))
        demands.append(count)
    model.add_cumulative(intervals, demands, total)
    own_steps = sum(_steps(run_s, step_s) * is_chosen for run_s, is_chosen in zip(runs_s, chosen, strict=True))
    model.minimize(sum(ends) + start + own_steps)

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = SOLVER_TIME
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return as_requested(job, view)
    given = next(count for count, is_chosen in zip(counts, chosen, strict=True) if solver.boolean_value(is_chosen))
    return shares_for_count(given, job.bounds)


def _steps(run_s: float, step_s: float) -> int:
    return max(1, math.ceil(run_s / step_s))


def _speed(gpus: int) -> float:
    return PRIOR.at(max(1, gpus), PRIOR.cpus_per_gpu_needed)
