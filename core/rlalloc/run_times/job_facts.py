"""What is known of a job when it is submitted."""

import re
from typing import Final

import msgspec

NAME_LENGTH: Final = 64
NO_LIMIT_S: Final = 1e10
"""Three centuries: a limit that says nothing."""
_NO_WORD: Final = re.compile(r"[\W\d_]+")


class JobFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is known of a job when it is submitted; totals over all nodes, memory in MiB, times in seconds.

    ``submitted_s`` counts from the epoch. ``limit_s`` is None where the job has no time limit. ``script`` is the
    fingerprint of its batch script, ``job_class`` what kind of LLM job it is (``train``, ``finetune``, ``serve``);
    both are empty where that is not known.
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


def family_name(name: str) -> str:
    """Return a job's name without digits, dates and punctuation: ``train_7b-2026-11-23`` is ``train-b``."""
    return _NO_WORD.sub("-", name[: 4 * NAME_LENGTH]).strip("-").lower()[:NAME_LENGTH]
