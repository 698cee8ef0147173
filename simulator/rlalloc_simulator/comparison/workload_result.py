"""What came of one workload under one policy, small enough to be kept by the thousand."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from rlalloc_simulator.engine import SimulatedSite, SubmittedJob
from rlalloc_simulator.engine.engine_records import OUT_OF_MEMORY, TIMEOUT, Reals, Records
from rlalloc_simulator.report.job_figures import BOUND_S
from rlalloc_simulator.report.recording import alone_s


class UserSum(msgspec.Struct, frozen=True):
    """A user's jobs that ended, and the sum of their JCTs [s]."""

    jobs: int
    jct_s: float


class WorkloadResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Figures of one workload under one policy; seconds, and all over the jobs that ended.

    ``jct_*`` count every job that ended, also one cancelled while it waited, so that all policies are measured over
    the same jobs. ``wait_s`` and ``bounded_slowdown`` are of those that started. Means of no jobs are NaN.
    ``gpu_use`` is GPU time held over what there was from the first submission to the last end. ``killed`` counts jobs
    whose first run, or end, was a kill for time or memory, also where their users had asked for too little;
    ``killed_by_policy`` those of them that would have ended by themselves as requested. ``requeues`` counts runs,
    ``updates`` changes of a waiting job's size or nice. ``further`` are those of ``plugin_metrics``, plug-ins' too,
    ``costs`` the mean costs of the objective's terms; both are empty unless asked for.

    Of ``replicates`` runs with moved submissions, counts and sums are over all of them, other figures their means.
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
    killed_by_policy: int = 0
    requeues: int
    users: dict[str, UserSum]
    updates: int = 0
    further: dict[str, float | None] = {}
    costs: dict[str, float | None] = {}
    replicates: int = 1


def together(results: Sequence[WorkloadResult]) -> WorkloadResult:
    """Return the figures of several runs of one workload; those of one run are that run's."""
    if len(results) == 1:
        return results[0]
    names = dict.fromkeys(name for result in results for name in result.users)
    users = {name: [result.users[name] for result in results if name in result.users] for name in names}
    counts = {name: sum(getattr(result, name) for result in results) for name in _COUNTS}
    means = {name: float(np.mean([getattr(result, name) for result in results])) for name in _MEANS}
    return msgspec.structs.replace(
        results[0],
        **counts,
        **means,
        users={
            name: UserSum(sum(one.jobs for one in of), sum(one.jct_s for one in of)) for name, of in users.items()
        },
        further=_means([result.further for result in results]),
        costs=_means([result.costs for result in results]),
    )


_COUNTS: Final = ("jobs", "killed", "killed_by_policy", "requeues", "updates", "replicates")
_MEANS: Final = ("jct_s", "jct_p95_s", "jct_p99_s", "wait_s", "bounded_slowdown", "gpu_hours", "gpu_use")


def _means(figures: Sequence[Mapping[str, float | None]]) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for name in dict.fromkeys(name for each in figures for name in each):
        values = [value for each in figures if (value := each.get(name)) is not None]
        found[name] = float(np.mean(values)) if values else None
    return found


def result_of(outcomes: Records, jobs: Sequence[SubmittedJob], site: SimulatedSite) -> WorkloadResult:
    """Return the figures of a workload that has been run to its end, without further ones and costs."""
    ended = ~np.isnan(outcomes["finished_s"])
    done = outcomes[ended]
    jct_s = done["finished_s"] - done["submit_s"]
    started = ~np.isnan(done["first_start_s"])
    alone = np.array([alone_s(job) for job, is_there in zip(jobs, ended, strict=True) if is_there])
    slowdowns = np.maximum(1.0, jct_s / np.maximum(alone, BOUND_S))
    p95_s, p99_s = np.quantile(jct_s, (0.95, 0.99)).tolist() if len(done) else (math.nan, math.nan)
    makespan_s = float(done["finished_s"].max() - outcomes["submit_s"].min()) if len(done) else 0.0
    capacity_s = sum(kind.count * kind.whole_gpus for kind in site.nodes) * makespan_s
    held_s = float(outcomes["held_gpu_s"][outcomes["whole_gpus"]].sum())
    killed = [np.isin(outcomes[name], (TIMEOUT, OUT_OF_MEMORY)) for name in ("first_state", "state")]
    was_killed = killed[0] | killed[1]
    return WorkloadResult(
        jobs=len(done),
        jct_s=_mean(jct_s),
        jct_p95_s=p95_s,
        jct_p99_s=p99_s,
        wait_s=_mean((done["first_start_s"] - done["submit_s"])[started]),
        bounded_slowdown=_mean(slowdowns[started]),
        gpu_hours=held_s / 3600.0,
        gpu_use=held_s / capacity_s if capacity_s else math.nan,
        killed=int(was_killed.sum()),
        killed_by_policy=int((was_killed & ~outcomes["killed_as_requested"]).sum()),
        requeues=int(outcomes["restarts"].sum()),
        users=_users(done["user"].tolist(), jct_s.tolist(), site),
    )


def _mean(values: Reals) -> float:
    return float(values.mean()) if len(values) else math.nan


def _users(users: Sequence[int], jct_s: Sequence[float], site: SimulatedSite) -> dict[str, UserSum]:
    sums: dict[str, list[float]] = defaultdict(list)
    for user, seconds in zip(users, jct_s, strict=True):
        sums[f"{site.users[user].account}/{site.users[user].name}"].append(seconds)
    return {name: UserSum(len(values), float(np.sum(values))) for name, values in sorted(sums.items())}
