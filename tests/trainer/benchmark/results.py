"""Results of streams that were never run: figures that can be followed by hand."""

from pathlib import Path

from rlalloc_trainer.benchmark.comparison import LEAST_JOBS
from rlalloc_trainer.benchmark.figures import StreamFigures, UserSum
from rlalloc_trainer.benchmark.runs import StreamKey
from rlalloc_trainer.benchmark.workloads import FileWeeks


def figures(jct_s: float, users: dict[str, tuple[int, float]] | None = None, p95: float = 2.0) -> StreamFigures:
    """``users``: jobs and mean JCT of each."""
    there = users or {"ada": (LEAST_JOBS, jct_s)}
    return StreamFigures(
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


def key(workload: str, week: int, load: float, part: int = 0) -> StreamKey:
    return StreamKey(FileWeeks(workload, Path(), "", (0, 1, 2, 3)), week, part, load)
