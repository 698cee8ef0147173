"""A job that has ended, whoever decided its size: a line of a site's history."""

import msgspec


class PastJob(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What accounting keeps of a job, or of one task of an array.

    ``job_id`` is the one that users see (``7``, ``7_3``). Times are seconds since the epoch; memory is in MiB, of all
    nodes together; ``max_rss_mib`` is the largest peak of one task, as sacct has it. ``state`` is Slurm's
    (``COMPLETED``, ``TIMEOUT``, …). ``script`` is the fingerprint of its batch script, empty where none is known.
    ``limit_s`` is the time limit as submitted, where that is known, None where there was none.
    """

    job_id: str
    user: str
    submitted_s: float
    started_s: float
    ended_s: float
    state: str
    nodes: int
    cpus: int
    gpus: int = 0
    mem_mib: float = 0.0
    limit_s: float | None = None
    eligible_s: float | None = None
    account: str = ""
    partition: str = ""
    qos: str = ""
    name: str = ""
    script: str = ""
    max_rss_mib: float | None = None
    cpu_s_used: float | None = None

    @property
    def run_s(self) -> float:
        """How long it ran, seconds."""
        return self.ended_s - self.started_s
