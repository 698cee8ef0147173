"""What is known of a job when it is submitted."""

import math
import re
from collections.abc import Iterable
from typing import Final

import msgspec

from rlalloc.past_job import PastJob

NAME_LENGTH: Final = 64
NO_LIMIT_S: Final = 1e10
"""Three centuries: a limit that says nothing."""
_NO_WORD: Final = re.compile(r"[\W\d_]+")


class JobFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is known of a job when it is submitted; totals over all nodes, memory in MiB, times in seconds.

    ``submitted_s`` counts from the epoch. ``limit_s`` is None where the job has no time limit. ``script`` is the
    fingerprint of its batch script, ``job_class`` what kind of LLM job it is; both are empty where that is not known.
    """

    user: str
    submitted_s: float
    nodes: int
    cpus: int
    gpus: int = 0
    mem_mib: float = 0.0
    limit_s: float | None = None
    account: str = ""
    partition: str = ""
    qos: str = ""
    name: str = ""
    script: str = ""
    job_class: str = ""

    @property
    def limit(self) -> float | None:
        """The time limit [s] where there is a usable one."""
        limit = self.limit_s
        return limit if limit is not None and 0.0 < limit < NO_LIMIT_S else None


def facts_of(job: PastJob) -> JobFacts:
    """Return what was known of a past job when it was submitted."""
    return JobFacts(
        user=job.user,
        submitted_s=job.submitted_s,
        nodes=job.nodes,
        cpus=job.cpus,
        gpus=job.gpus,
        mem_mib=job.mem_mib,
        limit_s=job.limit_s,
        account=job.account,
        partition=job.partition,
        qos=job.qos,
        name=job.name,
        script=job.script,
        job_class=job.job_class,
    )


def family_name(name: str) -> str:
    """Return a job's name without digits, dates and punctuation: ``train_7b-2026-11-23`` is ``train-b``."""
    return _NO_WORD.sub("-", name[: 4 * NAME_LENGTH]).strip("-").lower()[:NAME_LENGTH]


def can_be_learned(job: PastJob) -> bool:
    """Whether a past job says how long it ran: it began, and its times are in order."""
    times = (job.submitted_s, job.started_s, job.ended_s)
    return all(map(math.isfinite, times)) and 0.0 <= job.started_s <= job.ended_s


def in_order_of_submission(jobs: Iterable[PastJob]) -> list[PastJob]:
    """Return the jobs that can be learned from, by submission."""
    return sorted(filter(can_be_learned, jobs), key=lambda job: job.submitted_s)
