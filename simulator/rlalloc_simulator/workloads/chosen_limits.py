"""Time limits as people choose them: half of the jobs a round one that fits, half the most that the site allows.

On two sites of real Slurm, users asked for 25 times what their jobs ran (median), and a third of the jobs for exactly
one default. Where a trace has no limits they are drawn around the run time instead (``assumptions.limit_used``), and
tell policies more than people do.
"""

from collections.abc import Iterable
from typing import Final, Literal

import msgspec
import numpy as np

from rlalloc_simulator.workloads.workload_errors import WorkloadError
from rlalloc_simulator.workloads.workload_job import WorkloadJob

Limits = Literal["recorded", "people"]
HOUR_S: Final = 3600
ROUND_S: Final = (HOUR_S, 4 * HOUR_S, 12 * HOUR_S, 24 * HOUR_S)
"""Round limits; from the last on, each is twice the one before."""
PART_OF_MAXIMUM: Final = 0.5
"""So many jobs name the site's maximum."""


def limits_named(text: str) -> Limits:
    """Return the word of an option. Raises WorkloadError."""
    if text == "recorded":
        return "recorded"
    if text == "people":
        return "people"
    raise WorkloadError(f"--limits {text}: write recorded or people")


def with_limits(jobs: Iterable[WorkloadJob], limits: Limits, seed: int) -> Iterable[WorkloadJob]:
    """Return the jobs with the limits that are asked for; ``recorded`` leaves them as they are, and unread.

    The site's maximum is the round limit that fits its longest job: no job ends at its limit as requested.
    """
    if limits == "recorded":
        return jobs
    known = list(jobs)
    maximum_s = round_limit_s(max((job.needs.run_time_s for job in known), default=0.0))
    names_maximum = np.random.default_rng((seed, 19)).random(len(known)) < PART_OF_MAXIMUM
    return [
        with_limit(job, maximum_s if most else round_limit_s(job.needs.run_time_s))
        for job, most in zip(known, names_maximum.tolist(), strict=True)
    ]


def round_limit_s(run_time_s: float) -> int:
    """Return the smallest round limit [s] that is no shorter than a run time."""
    for limit_s in ROUND_S:
        if run_time_s <= limit_s:
            return limit_s
    limit_s = ROUND_S[-1]
    while limit_s < run_time_s:
        limit_s *= 2
    return limit_s


def with_limit(job: WorkloadJob, limit_s: int) -> WorkloadJob:
    """Return the job with another time limit."""
    return msgspec.structs.replace(job, request=msgspec.structs.replace(job.request, time_limit_s=limit_s))
