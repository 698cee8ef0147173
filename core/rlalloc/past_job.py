"""A job that has ended, whoever decided its size: a line of a site's history."""

import math
import re
from collections.abc import Iterable
from typing import Final

import msgspec

from rlalloc.run_times.job_facts import JobFacts

ENDED_STATES: Final = frozenset(
    {
        *("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY"),
        *("NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE"),
    }
)
"""Slurm's states of a job that has ended."""
NOT_ENDED_STATES: Final = frozenset(
    {
        *("PENDING", "RUNNING", "SUSPENDED", "REQUEUED", "RESIZING", "REVOKED", "COMPLETING", "CONFIGURING"),
        *("STOPPED", "SIGNALING", "STAGE_OUT", "SPECIAL_EXIT"),
    }
)
"""Its states of one that has not, and of a run after which it went back into the queue."""
_JOB_ID: Final = re.compile(r"[0-9]{1,10}([_+][^.]+)?")
_LATEST_S: Final = 1e11
_MOST: Final = 2**31 - 1
_LONGEST: Final = {
    "job_id": 32,
    "user": 64,
    "account": 64,
    "partition": 64,
    "qos": 64,
    "name": 128,
}
"""Characters that are kept; of a job's id all are needed."""


class Allotted(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The size in which a job ran that rlalloc had changed; totals over all nodes, memory in MiB.

    ``slowdown`` is the run time that was expected in this size over that in the size that its user asked for.
    """

    nodes: int
    cpus: int
    gpus: int
    mem_mib: float
    limit_s: float | None
    slowdown: float = 1.0


class PastJob(JobFacts, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What accounting keeps of a job, or of one task of an array, with what was known when it was submitted.

    ``job_id`` is the one that users see (``7``, ``7_3``). Times are seconds since the epoch; memory is in MiB;
    ``max_rss_mib`` is the largest peak of one task, as sacct has it. ``state`` is Slurm's (``COMPLETED``,
    ``TIMEOUT``, …). ``script`` and ``job_class`` are empty where rlalloc.lua did not tag it.

    The size is the one that its user asked for; where rlalloc had changed it, it ran in ``allotted``.
    ``node_rss_mib`` bounds from above what its processes held at once on any of its nodes; None where sacct does not
    say how many tasks there were.
    """

    job_id: str
    started_s: float
    ended_s: float
    state: str
    eligible_s: float | None = None
    max_rss_mib: float | None = None
    cpu_s_used: float | None = None
    node_rss_mib: float | None = None
    allotted: Allotted | None = None

    @property
    def run_s(self) -> float:
        """How long it ran, seconds."""
        return self.ended_s - self.started_s

    @property
    def run_s_as_requested(self) -> float:
        """How long it would have run in the size that its user asked for, as far as that is known, seconds."""
        return self.run_s if self.allotted is None else self.run_s / self.allotted.slowdown


def checked(job: PastJob) -> PastJob:
    """The job with its names cut to what is kept. Raises ValueError for what no job can have."""
    times_s = (job.submitted_s, job.started_s, job.ended_s, job.eligible_s or 0.0, job.limit_s or 0.0)
    if not all(0 <= time_s < _LATEST_S for time_s in times_s):
        raise ValueError("a time lies outside of what clocks show")
    if job.ended_s < job.started_s:
        raise ValueError("End lies before Start")
    peaks = (job.max_rss_mib or 0.0, job.node_rss_mib or 0.0)
    counts = (job.nodes, job.cpus, job.gpus, job.mem_mib, job.cpu_s_used or 0.0, *peaks)
    if not all(count >= 0 and math.isfinite(count) for count in counts) or max(counts[:3]) > _MOST:
        raise ValueError("a size is too large")
    if len(job.job_id) > _LONGEST["job_id"] or _JOB_ID.fullmatch(job.job_id) is None:
        raise ValueError(f"{job.job_id[:32]!r} is not a job's id")
    too_long = {name: value[:most] for name, most in _LONGEST.items() if len(value := getattr(job, name)) > most}
    return msgspec.structs.replace(job, **too_long) if too_long else job


def can_be_learned(job: PastJob) -> bool:
    """Whether a past job says how long it ran: it began, and its times are in order."""
    times = (job.submitted_s, job.started_s, job.ended_s)
    return all(map(math.isfinite, times)) and 0.0 <= job.started_s <= job.ended_s


def in_order_of_submission(jobs: Iterable[PastJob]) -> list[PastJob]:
    """Return the jobs that can be learned from, by submission."""
    return sorted(filter(can_be_learned, jobs), key=lambda job: job.submitted_s)
