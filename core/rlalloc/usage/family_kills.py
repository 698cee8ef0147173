"""Families of jobs that go back to their requests, since one of them was killed for a size that rlalloc gave it.

A family is a user's jobs of one name, digits apart: rather too wide than too narrow.
"""

from collections import OrderedDict
from typing import Final, Literal, NamedTuple

from rlalloc.past_job import PastJob
from rlalloc.run_times.job_facts import family_name

Cause = Literal["out-of-memory", "gpu-out-of-memory", "timeout"]
"""The host's memory; a GPU's memory; the time limit."""
FAMILIES: Final = 10_000
_AT_ONCE: Final = 64
"""Of a family's jobs that ended well since, so many are known by their ids."""


class Kill(NamedTuple):
    """An end that was our doing: of which job, when [s], and how many GPUs it had."""

    job_id: int
    cause: Cause
    ended_s: float
    gpus: int


class _Family:
    """Its last kill, the most GPUs that a kill for GPU memory had, and the jobs that ended well since."""

    def __init__(self) -> None:
        self.last: Kill | None = None
        self.gpus_too_few = 0
        self.well: set[tuple[str, float]] = set()


class FamilyKills:
    """Which families go back, and for how long: until ``least_jobs`` began after the kill and completed."""

    def __init__(self) -> None:
        self._families: OrderedDict[tuple[str, str], _Family] = OrderedDict()

    def add(self, user: str, job_name: str, kill: Kill) -> None:
        """Remember a kill."""
        family = self._families.setdefault(_family(user, job_name), _Family())
        if kill.cause == "gpu-out-of-memory":
            family.gpus_too_few = max(family.gpus_too_few, kill.gpus)
        if family.last is None or kill.ended_s >= family.last.ended_s:
            family.last = kill
            family.well.clear()
        if len(self._families) > FAMILIES:
            self._families.popitem(last=False)

    def ended(self, job: PastJob) -> None:
        """Note that a job ended, more than once if need be."""
        family = self._families.get(_family(job.user, job.name))
        if family is None or family.last is None or job.state != "COMPLETED" or job.started_s < family.last.ended_s:
            return
        if len(family.well) < _AT_ONCE:
            family.well.add((job.job_id, job.submitted_s))

    def in_force(self, user: str, job_name: str, least_jobs: int) -> Kill | None:
        """The kill for which this family keeps its requests; None where there is none."""
        family = self._families.get(_family(user, job_name))
        return family.last if family is not None and len(family.well) < least_jobs else None

    def gpus_too_few(self, user: str, job_name: str) -> int:
        """The most GPUs with which a job of this family ran out of a GPU's memory; 0: none did."""
        family = self._families.get(_family(user, job_name))
        return 0 if family is None else family.gpus_too_few


def _family(user: str, job_name: str) -> tuple[str, str]:
    return user, family_name(job_name)
