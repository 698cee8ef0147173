"""Results of workloads that were never run: figures that can be followed by hand."""

from pathlib import Path

from rlalloc_trainer.evaluation.paired_comparison import LEAST_JOBS
from rlalloc_trainer.evaluation.runner import WorkloadKey
from rlalloc_trainer.evaluation.scenarios import FileWeeks
from rlalloc_trainer.evaluation.workload_figures import UserSum, WorkloadFigures


def figures(jct_s: float, users: dict[str, tuple[int, float]] | None = None, p95: float = 2.0) -> WorkloadFigures:
    """``users``: jobs and mean JCT of each."""
    there = users or {"ada": (LEAST_JOBS, jct_s)}
    return WorkloadFigures(
        jobs=100,
        jct_s=jct_s,
        jct_p95_s=p95 * jct_s,
        jct_p99_s=3.0 * jct_s,
        wait_s=jct_s / 2,
        bounded_slowdown=2.0,
        gpu_hours=10.0,
        gpu_use=0.5,
        killed=0,
        requeues=0,
        users={name: UserSum(jobs, jobs * mean_s) for name, (jobs, mean_s) in there.items()},
    )


def key(scenario: str, week: int, load: float, part: int = 0) -> WorkloadKey:
    return WorkloadKey(FileWeeks(scenario, Path(), "", (0, 1, 2, 3)), week, part, load)
