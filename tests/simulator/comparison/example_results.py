"""Results of workloads that were never run: figures that can be followed by hand."""

from rlalloc_simulator.comparison.workload_result import UserSum, WorkloadResult


def result(
    jct_s: float,
    *,
    wait_s: float | None = None,
    killed: int = 0,
    p95: float = 2.0,
    users: dict[str, tuple[int, float]] | None = None,
) -> WorkloadResult:
    """Half of the JCT is waiting, unless said; ``users``: jobs and mean JCT of each."""
    return WorkloadResult(
        jobs=100,
        jct_s=jct_s,
        jct_p95_s=p95 * jct_s,
        jct_p99_s=3.0 * jct_s,
        wait_s=jct_s / 2 if wait_s is None else wait_s,
        bounded_slowdown=2.0,
        gpu_hours=10.0,
        gpu_use=0.5,
        killed=killed,
        requeues=0,
        users={name: UserSum(jobs, jobs * mean_s) for name, (jobs, mean_s) in (users or {}).items()},
    )
