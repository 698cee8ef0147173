"""What came of one workload under one policy, small enough to be kept by the thousand."""

from collections import defaultdict
from collections.abc import Sequence

import msgspec
import numpy as np

from rlalloc_simulator.engine import SimulatedSite, SubmittedJob
from rlalloc_simulator.engine.engine_records import OUT_OF_MEMORY, STATE_NAMES, TIMEOUT, Records
from rlalloc_simulator.report.history import JobEnd
from rlalloc_simulator.report.job_figures import bounded_slowdown, distribution
from rlalloc_simulator.report.recording import alone_s


class UserSum(msgspec.Struct, frozen=True):
    """A user's jobs that ended, and the sum of their JCTs [s]."""

    jobs: int
    jct_s: float


class WorkloadFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one workload under one policy; seconds, and all over the jobs that ended.

    ``jct_*`` and ``bounded_slowdown`` count every job that ended, also one cancelled while it waited, so that all
    policies are measured over the same jobs. ``wait_s`` is of those that started. ``gpu_use`` is GPU time held over
    what there was from the first submission to the last end. ``killed`` counts jobs whose first run, or end, was a
    kill for time or memory; ``requeues`` counts runs. ``further`` are those of ``report.metrics``, plug-ins' too.
    """

    jobs: int
    jct_s: float
    jct_p95_s: float
    jct_p99_s: float
    wait_s: float
    bounded_slowdown: float
    gpu_hours: float
    gpu_use: float
    killed: int
    requeues: int
    users: dict[str, UserSum]
    further: dict[str, float | None] = {}


def figures_of(outcomes: Records, jobs: Sequence[SubmittedJob], site: SimulatedSite) -> WorkloadFigures:
    """Return the figures of a workload that has been run to its end. Raises ValueError if none of its jobs ended."""
    ended = ~np.isnan(outcomes["finished_s"])
    if not ended.any():
        raise ValueError("none of the workload's jobs has ended: run the simulator to its end first")
    done = outcomes[ended]
    jct_s = done["finished_s"] - done["submit_s"]
    started = done[~np.isnan(done["first_start_s"])]
    jct = distribution(jct_s.tolist())
    makespan_s = float(done["finished_s"].max() - outcomes["submit_s"].min())
    gpus = sum(kind.count * kind.shape.gpus for kind in site.nodes)
    held_s = float(outcomes["held_gpu_s"].sum())
    killed = [np.isin(outcomes[name], (TIMEOUT, OUT_OF_MEMORY)) for name in ("first_state", "state")]
    return WorkloadFigures(
        jobs=len(done),
        jct_s=jct.mean or 0.0,
        jct_p95_s=jct.p95 or 0.0,
        jct_p99_s=jct.p99 or 0.0,
        wait_s=float((started["first_start_s"] - started["submit_s"]).mean()) if len(started) else 0.0,
        bounded_slowdown=float(np.mean(_slowdowns(outcomes, jobs, site))),
        gpu_hours=held_s / 3600.0,
        gpu_use=held_s / (gpus * makespan_s),
        killed=int((killed[0] | killed[1]).sum()),
        requeues=int(outcomes["restarts"].sum()),
        users=_users(done["user"].tolist(), jct_s.tolist(), site),
    )


def _slowdowns(outcomes: Records, jobs: Sequence[SubmittedJob], site: SimulatedSite) -> list[float]:
    return [
        bounded_slowdown(
            JobEnd(
                user=site.users[job.user].name,
                submit_s=job.submit_s,
                alone_s=alone_s(job),
                first_start_s=float(record["first_start_s"]),
                end_s=float(record["finished_s"]),
                state=STATE_NAMES[record["state"]],
            )
        )
        for job, record in zip(jobs, outcomes, strict=True)
        if not np.isnan(record["finished_s"]) and not np.isnan(record["first_start_s"])
    ]


def _users(users: Sequence[int], jct_s: Sequence[float], site: SimulatedSite) -> dict[str, UserSum]:
    sums: dict[str, list[float]] = defaultdict(list)
    for user, seconds in zip(users, jct_s, strict=True):
        sums[f"{site.users[user].account}/{site.users[user].name}"].append(seconds)
    return {name: UserSum(len(values), float(np.sum(values))) for name, values in sorted(sums.items())}
