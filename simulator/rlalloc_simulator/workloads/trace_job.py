"""A job as a trace records it: what every reader yields, with None where its format says nothing."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from rlalloc.job import JobClass

TraceState = Literal["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "UNKNOWN"]


class TraceJob(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded job.

    ``submit_s`` counts from any origin that is the same for the whole trace. ``elapsed_s`` is from start to end; a
    job that never started has ``elapsed_s`` 0 and ``ended_pending_s``, the seconds from its submission to its end.
    ``gpus``, ``tasks``, ``cpus``, ``mem_mib`` and ``max_rss_mib`` are totals over all nodes; ``cpus_used`` is CPU
    time over elapsed time, on all nodes.
    ``key`` names the job in its trace, ``after`` the jobs that had to end before it.
    """

    key: str
    submit_s: float
    gpus: int
    elapsed_s: float
    state: TraceState = "UNKNOWN"
    ended_pending_s: float | None = None
    user: str = ""
    account: str = ""
    partition: str = ""
    qos: str = ""
    name: str = ""
    job_class: JobClass | None = None
    nodes: int | None = None
    tasks: int | None = None
    cpus: float | None = None
    mem_mib: float | None = None
    gpu_type: str = ""
    time_limit_s: float | None = None
    cpus_used: float | None = None
    max_rss_mib: float | None = None
    after: tuple[str, ...] = ()


def in_slower_time(trace: Sequence[TraceJob], slower: float) -> list[TraceJob]:
    """Return the jobs of a test site in the time that they stand for, ``slower`` times as long as there.

    What such jobs do not show is left out: time limits, whole minutes there, and CPUs and memory used by sleeping.
    """
    first_s = min(job.submit_s for job in trace)
    return [
        msgspec.structs.replace(
            job,
            submit_s=first_s + (job.submit_s - first_s) * slower,
            elapsed_s=job.elapsed_s * slower,
            ended_pending_s=None if job.ended_pending_s is None else job.ended_pending_s * slower,
            time_limit_s=None,
            cpus_used=None,
            max_rss_mib=None,
        )
        for job in trace
    ]
