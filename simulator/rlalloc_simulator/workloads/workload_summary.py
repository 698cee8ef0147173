"""A workload in figures: what the commands print, and what tests compare."""

from collections import Counter
from collections.abc import Iterable

import msgspec
import numpy as np

from rlalloc_simulator.workloads.workload_job import WorkloadJob


class Summary(msgspec.Struct, frozen=True):
    """Figures of the jobs of a workload, at their requested sizes.

    ``held_s`` are quantiles 0.5, 0.9, 0.99 and the mean of the time that a job holds its nodes; fractions are means
    of what is needed, or used, over what was asked.
    """

    jobs: int
    span_h: float
    users: int
    gpu_hours: float
    mean_gpus: float
    held_s: tuple[float, float, float, float]
    ends: dict[str, float]
    cpu_fraction: float
    mem_fraction: float
    limit_used: float
    moldable: float

    def load(self, gpus: int, hours: float | None = None) -> float:
        """Offered load: GPU-hours over those of ``gpus`` in ``hours`` (without: the span of the submissions)."""
        available = gpus * (hours or self.span_h)
        return self.gpu_hours / available if available else 0.0


def summarise(jobs: Iterable[WorkloadJob]) -> Summary:
    """Read the jobs once and return their figures."""
    rows = []
    users: set[tuple[str, str]] = set()
    ends: Counter[str] = Counter()
    for job in jobs:
        users.add((job.account, job.user))
        ends[_fate(job)] += 1
        rows.append(
            (
                job.submit_s,
                job.gpu_s,
                job.request.gpus,
                job.held_s,
                job.needs.cpu_fraction,
                job.needs.max_rss_mib / job.request.mem_mib_per_node,
                job.needs.run_time_s / job.request.time_limit_s,
                job.parsed_directives.gpus is not None,
            )
        )
    if not rows:
        return Summary(0, 0.0, 0, 0.0, 0.0, (0.0, 0.0, 0.0, 0.0), {}, 0.0, 0.0, 0.0, 0.0)
    table = np.array(rows, dtype=np.float64)
    mean = table.mean(axis=0)
    median, p90, p99 = np.quantile(table[:, 3], (0.5, 0.9, 0.99))
    return Summary(
        jobs=len(rows),
        span_h=float(table[-1, 0] - table[0, 0]) / 3600,
        users=len(users),
        gpu_hours=float(table[:, 1].sum()) / 3600,
        mean_gpus=float(mean[2]),
        held_s=(float(median), float(p90), float(p99), float(mean[3])),
        ends={state: count / len(rows) for state, count in sorted(ends.items())},
        cpu_fraction=float(mean[4]),
        mem_fraction=float(mean[5]),
        limit_used=float(mean[6]),
        moldable=float(mean[7]),
    )


def _fate(job: WorkloadJob) -> str:
    """How it would end at its requested size, memory and limits included."""
    if job.needs.max_rss_mib > job.request.mem_mib_per_node:
        return "OUT_OF_MEMORY"
    if job.end.while_pending:
        return "CANCELLED while pending"
    ends_s = job.needs.run_time_s if job.end.after_s is None else min(job.end.after_s, job.needs.run_time_s)
    return "TIMEOUT" if ends_s > job.request.time_limit_s else job.end.state
