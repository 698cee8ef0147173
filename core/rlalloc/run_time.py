"""What is expected of a job's run time."""

import math
from typing import Final

import msgspec

_AT_TAIL: Final = math.log(9.0)
"""The standard logistic distribution's quantile of 90 %."""
_LONGEST: Final = 40.0
"""Natural logarithm of seconds that no estimate exceeds."""


class RunTimeEstimate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Quantiles of a job's run time [s] in the size that it asked for: 10, 50 and 90 %.

    ``source`` says in a few words what it rests on, for people.
    """

    low_s: float
    median_s: float
    high_s: float
    source: str

    def remaining(self, elapsed_s: float, limit_s: float | None = None) -> "RunTimeEstimate":
        """Return the quantiles of what is left [s] of a job that has run for ``elapsed_s``, at most to its limit.

        Between and beyond the three quantiles the run time is taken as log-logistic, one scale below and one above
        the median. Such a tail is as long as run times' are: what has run far beyond its estimate is expected to run
        on for a time in proportion to what it has run.
        """
        if elapsed_s <= 1.0:
            return self
        centre = math.log(max(self.median_s, 1.0))
        elapsed = math.log(elapsed_s)
        below = max((centre - math.log(max(self.low_s, 1.0))) / _AT_TAIL, 1e-3)
        above = max((math.log(max(self.high_s, 1.0)) - centre) / _AT_TAIL, 1e-3)
        position = (elapsed - centre) / (above if elapsed > centre else below)
        most = math.inf if limit_s is None else max(limit_s - elapsed_s, 1.0)

        def left_s(quantile: float) -> float:
            # The odds of ending by then: of the survivors, that part ends. In logarithms, since the tail is long.
            most_odds, least_odds = max(position, math.log(quantile)), min(position, math.log(quantile))
            odds = most_odds + math.log1p(math.exp(least_odds - most_odds)) - math.log(1.0 - quantile)
            total_s = math.exp(min(centre + odds * (above if odds > 0.0 else below), _LONGEST))
            return min(max(total_s - elapsed_s, 1.0), most)

        return RunTimeEstimate(left_s(0.1), left_s(0.5), left_s(0.9), self.source)
