"""What is known of the run times of the jobs in one snapshot."""

import math
from collections.abc import Mapping
from typing import Final

import msgspec

from rlalloc.run_time import RunTimeEstimate, expected_remaining_s, expected_s
from rlallocd.slurm import JobRecord


class KnownRunTime(msgspec.Struct, frozen=True):
    """An estimate for the size that a job asked for, and how much longer it takes in the size that it has now."""

    as_requested: RunTimeEstimate
    slowdown: float = 1.0


class KnownRunTimes(msgspec.Struct, frozen=True):
    """By the ids of Slurm's records; of another job only the time limit is known, a year if it has none."""

    by_id: Mapping[int, KnownRunTime] = {}

    def as_requested(self, job: JobRecord) -> RunTimeEstimate | None:
        """Return what is expected of a job in the size that it asked for."""
        known = self.by_id.get(job.job_id)
        return None if known is None else known.as_requested

    def expected_s(self, job: JobRecord) -> float:
        """Return the run time [s] that is expected of a job in the size that it has now."""
        known = self.by_id.get(job.job_id)
        median_s = math.nan if known is None else known.slowdown * known.as_requested.median_s
        return expected_s(job.most_s, median_s)

    def remaining_s(self, job: JobRecord, now_s: float) -> float:
        """Return the seconds that a running job is expected to go on."""
        return expected_remaining_s(job.most_s, now_s - job.started_s, *self._quantiles_s(job))

    def _quantiles_s(self, job: JobRecord) -> tuple[float, float, float]:
        """10, 50 and 90 % in the size that it has now; NaN where only its limit is known."""
        known = self.by_id.get(job.job_id)
        if known is None:
            return math.nan, math.nan, math.nan
        estimate, slower = known.as_requested, known.slowdown
        return slower * estimate.low_s, slower * estimate.median_s, slower * estimate.high_s


LIMITS_ONLY: Final = KnownRunTimes()
