"""What the past says of the needs of a job in the queue: what like jobs used, and what became of those we shrank."""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from rlalloc.job import Allocation
from rlalloc.past_job import PastJob
from rlalloc.speed.profile_file import Profile
from rlalloc.speed.profiled_speeds import named_for
from rlalloc.usage.family_kills import FamilyKills
from rlalloc.usage.past_bounds import NO_NEEDS, KnownNeeds
from rlalloc.usage.past_usage import PastUsage
from rlalloc.usage.profiled_needs import floors_of_profile
from rlallocd.slurm import JobRecord
from rlallocd.submissions.job_tag import read_tag

_log = logging.getLogger(__name__)

Usage = Callable[[JobRecord, Allocation], KnownNeeds]
"""Of a job that asked for that size."""


class Learned(Protocol):
    """What past jobs taught (``rlallocd.knowledge.site_predictor``)."""

    @property
    def usage(self) -> PastUsage:
        """What they used."""
        ...

    @property
    def kills(self) -> FamilyKills:
        """Which of them were killed for a size of ours."""
        ...


def no_usage(job: JobRecord, request: Allocation) -> KnownNeeds:  # noqa: ARG001 (as Usage)
    """Nothing is known of any job."""
    return NO_NEEDS


class KnownUsage:
    """Answers from ``learned`` and the ``profiles`` in use.

    ``named`` gives a job the names under which past jobs are kept; profiles name jobs as they are called.
    Counts ``usage_unknown`` where that fails: such a job keeps the bounds that it has without a past.
    """

    def __init__(
        self,
        learned: Learned,
        counters: Counter[str],
        named: Callable[[PastJob], PastJob],
        profiles: Callable[[], Sequence[Profile]] = tuple,
    ) -> None:
        self._learned = learned
        self._counters = counters
        self._named = named
        self._profiles = profiles

    def __call__(self, job: JobRecord, request: Allocation) -> KnownNeeds:
        """What is known of the needs of a job that asked for ``request``."""
        usage, kills = self._learned.usage, self._learned.kills
        profile = named_for(self._profiles(), job.user, job.name)
        profiled = None if profile is None else floors_of_profile(profile, request, usage.rules.memory_margin)
        try:
            facts = self._named(as_past_job(job, request))
        except Exception as err:  # noqa: BLE001 (a missing key for pseudonyms, say: no job is to wait for it)
            self._counters["usage_unknown"] += 1
            _log.warning("cannot tell what jobs like job %d used, it is not trimmed: %s", job.job_id, err)
            return NO_NEEDS._replace(profiled=profiled)
        return KnownNeeds(
            usage.floors(facts),
            kills.in_force(facts.user, facts.name, usage.rules.least_jobs),
            kills.gpus_too_few(facts.user, facts.name),
            profiled,
        )


def as_past_job(job: JobRecord, request: Allocation) -> PastJob:
    """The job as accounting will know it, in the size that it asked for; it has not run yet."""
    tag = read_tag(job.admin_comment)
    nodes = request.nodes if request.nodes > 1 else job.nodes
    return PastJob(
        job_id=str(job.job_id),
        user=job.user,
        account=job.account,
        partition=job.partition,
        qos=job.qos,
        name=job.name,
        submitted_s=float(job.submitted_s),
        started_s=float(job.submitted_s),
        ended_s=float(job.submitted_s),
        state=job.state,
        nodes=nodes,
        cpus=request.cpus,
        gpus=request.gpus,
        mem_mib=float(request.mem_mib),
        limit_s=float(request.time_limit_s) or None,
        script="" if tag is None else tag.script,
        job_class="" if tag is None else tag.job_class,
    )
