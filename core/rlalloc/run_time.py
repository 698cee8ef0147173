"""What is expected of a job's run time, and how long a running job is expected to go on."""

import math
from typing import Final

import msgspec

EXPECTED_FRACTION_OF_LIMIT: Final = 0.44
"""Expected run time over the time limit where nothing else is known of a job (Philly)."""
_HIGH_QUANTILE: Final = 1.2815515655446004  # of the standard normal distribution, for a probability of .9
_NONE_LEFT: Final = 1e-300


class RunTimeEstimate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Quantiles of a job's run time [s] in the size that it asked for: 10, 50 and 90 %.

    ``source`` says in a few words what it rests on, for people. Raises ValueError unless 0 < low ≤ median ≤ high,
    all of them finite.
    """

    low_s: float
    median_s: float
    high_s: float
    source: str

    def __post_init__(self) -> None:
        if not 0.0 < self.low_s <= self.median_s <= self.high_s < math.inf:
            raise ValueError(
                f"run time quantiles {self.low_s}, {self.median_s}, {self.high_s}: give them above 0 and ascending"
            )

    def slower(self, factor: float) -> "RunTimeEstimate":
        """Return the same for a size in which the job takes ``factor`` times as long."""
        if factor == 1.0:
            return self
        return RunTimeEstimate(self.low_s * factor, self.median_s * factor, self.high_s * factor, self.source)


def expected_s(time_limit_s: float, median_s: float) -> float:
    """Run time [s] that is expected of a job: its median, at most its limit.

    Where ``median_s`` is NaN only the limit is known, and the usual part of it is expected. A limit of 0 is none.
    """
    if math.isnan(median_s):
        return EXPECTED_FRACTION_OF_LIMIT * time_limit_s
    return min(median_s, time_limit_s) if time_limit_s > 0 else median_s


def expected_remaining_s(
    time_limit_s: float, elapsed_s: float, low_s: float, median_s: float, high_s: float
) -> float:
    """Seconds that a running job is expected to go on; never beyond its limit, of which 0 is none.

    The median of what remains, given that it has run for ``elapsed_s``. Run times are taken as log-normal on either
    side of the median, through its 10 and 90 % quantiles. With a spread of 0, or where only the limit is known
    (``median_s`` is NaN), nothing is known of a job that has outlived its median: half of what is left of its limit
    is expected. Python and numba both run this function.
    """
    left_s = time_limit_s - elapsed_s if time_limit_s > 0 else math.inf
    if math.isnan(median_s):
        expected = EXPECTED_FRACTION_OF_LIMIT * time_limit_s
        return max(0.0, expected - elapsed_s if elapsed_s < expected else (time_limit_s - elapsed_s) / 2)
    place = 0.0  # of the elapsed time, in standard deviations from the median of the logarithms
    longer = 1.0  # the part of such jobs that run longer
    if elapsed_s > 0.0:
        end_s = high_s if elapsed_s > median_s else low_s
        spread = abs(math.log(end_s / median_s)) / _HIGH_QUANTILE
        if spread > 0.0:
            place = math.log(elapsed_s / median_s) / spread
            longer = 0.5 * math.erfc(place / math.sqrt(2.0))
        elif elapsed_s >= median_s:
            longer = 0.0
    if longer < _NONE_LEFT:
        return max(0.0, left_s / 2 if time_limit_s > 0 else 0.0)
    # The normal quantile of 1 - longer/2: Abramowitz and Stegun, Handbook of Mathematical Functions (1964), 26.2.23,
    # which is off by less than 4.5e-4.
    t = math.sqrt(-2.0 * math.log(longer / 2))
    above = (2.515517 + t * (0.802853 + t * 0.010328)) / (1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308)))
    deviations = max(0.0, t - above)
    ends_s = median_s * math.exp(deviations * math.log(high_s / median_s) / _HIGH_QUANTILE)
    return max(0.0, min(ends_s - elapsed_s, left_s))
