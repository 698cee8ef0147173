"""What is expected of a job's run time, and how long a running job is expected to go on."""

import math
from typing import Final

import msgspec

EXPECTED_FRACTION_OF_LIMIT: Final = 0.44
"""Expected run time over the time limit where nothing else is known of a job (Philly)."""
PAST_THE_LIMIT_S: Final = 120.0
"""So long may Slurm take to end a job that has reached its limit."""
LOG_ODDS: Final = math.log(9.0)
"""Of a job to have ended by its 90 % quantile."""
REMAINING_PARTS: Final = (0.1, 0.9)
"""Between these quantiles of what remains of a running job lies its 80 % interval, if run times are as predicted."""


class RunTimeEstimate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Quantiles of a job's run time [s] in the size that it asked for: 10, 50 and 90 %.

    ``source`` says in a few words what it rests on, for people. While the job runs, the 80 % interval of what remains
    lies between its quantiles ``remaining_parts`` (``rlalloc.run_times.remaining_parts``). Raises ValueError unless
    0 < low ≤ median ≤ high, all of them finite, and unless the parts lie on either side of the median.
    """

    low_s: float
    median_s: float
    high_s: float
    source: str
    remaining_parts: tuple[float, float] = REMAINING_PARTS

    def __post_init__(self) -> None:
        if not 0.0 < self.low_s <= self.median_s <= self.high_s < math.inf:
            raise ValueError(
                f"run time quantiles {self.low_s}, {self.median_s}, {self.high_s}: give them above 0 and ascending"
            )
        require_parts(self.remaining_parts)


def require_parts(parts: tuple[float, float]) -> None:
    """Raise ValueError unless the parts of the remaining time lie on either side of the median."""
    low, high = parts
    if not 0.0 < low <= 0.5 <= high < 1.0:
        raise ValueError(f"parts of the remaining time {low}, {high}: give one below 0.5 and one above")


def expected_s(time_limit_s: float, median_s: float) -> float:
    """Run time [s] that is expected of a job: its median, at most its limit.

    Where ``median_s`` is NaN only the limit is known, and the usual part of it is expected. A limit of 0 is none.
    """
    if math.isnan(median_s):
        return EXPECTED_FRACTION_OF_LIMIT * time_limit_s
    return min(median_s, time_limit_s) if time_limit_s > 0 else median_s


def mean_s(time_limit_s: float, estimate: RunTimeEstimate | None) -> float:
    """Mean run time [s] of a job: of its quantiles, each at most its limit, by Swanson's weights of 30, 40 and 30%.

    Run times have a long tail, so the mean is above the median: what is uncertain holds its share for longer. The
    usual part of the limit where only that is known. A limit of 0 is none. (Hurst, Brown and Swanson, 2000, Swanson's
    30-40-30 rule, AAPG Bulletin 84.)
    """
    if estimate is None:
        return expected_s(time_limit_s, math.nan)
    quantiles_s = (estimate.low_s, estimate.median_s, estimate.high_s)
    return sum(
        weight * expected_s(time_limit_s, each) for weight, each in zip((0.3, 0.4, 0.3), quantiles_s, strict=True)
    )


def expected_remaining_s(
    time_limit_s: float, elapsed_s: float, low_s: float, median_s: float, high_s: float, part: float = 0.5
) -> float:
    """Seconds that a running job is expected to go on; never beyond its limit, of which 0 is none.

    The quantile ``part`` of what remains, given that it has run for ``elapsed_s``. Run times are taken as
    log-logistic on either side of the median, through its 10 and 90 % quantiles: such a tail is as long as run times'
    are. With a spread of 0, or where only the limit is known (``median_s`` is NaN), nothing is known of a job that
    has outlived its median: it may end anywhen until its limit. Python and numba both run this function.
    """
    expected = EXPECTED_FRACTION_OF_LIMIT * time_limit_s if math.isnan(median_s) else median_s
    left_s = time_limit_s - elapsed_s if time_limit_s > 0 else math.inf
    is_late = elapsed_s >= expected
    scale = 0.0 if math.isnan(median_s) else abs(math.log((high_s if is_late else low_s) / median_s)) / LOG_ODDS
    if scale == 0.0 and is_late:
        return max(0.0, (time_limit_s - elapsed_s) * part)
    if math.isnan(median_s):
        return max(0.0, min(expected - elapsed_s, left_s))
    # The odds of having ended are (elapsed/median)^(1/scale) now; when ``part`` of those that still run have ended,
    # they are (part + odds)/(1 - part).
    log_odds = (math.log(elapsed_s) - math.log(median_s)) / scale if scale > 0.0 and elapsed_s > 0.0 else -math.inf
    if log_odds < 700.0:
        log_odds_then = math.log1p((2.0 * part - 1.0 + math.exp(log_odds)) / (1.0 - part))
    else:
        log_odds_then = log_odds - math.log(1.0 - part)
    spread = math.log(high_s / median_s) if log_odds_then > 0.0 else math.log(median_s / low_s)
    ends_s = median_s * math.exp(log_odds_then * spread / LOG_ODDS)
    return max(0.0, min(ends_s - elapsed_s, left_s))


def remaining_quantiles_s(
    time_limit_s: float, elapsed_s: float, estimate: RunTimeEstimate, slowdown: float = 1.0
) -> tuple[float, float, float]:
    """Return how long a job goes on [s] that has run for ``elapsed_s``: lower end of 80 %, median, upper end.

    The ends are the quantiles ``remaining_parts`` of the estimate, as expected_remaining_s has them. A job that
    reaches its limit ends up to PAST_THE_LIMIT_S later. ``slowdown`` is how many times as long it takes in its size
    as in the one that it asked for.
    """
    quantiles_s = slowdown * estimate.low_s, slowdown * estimate.median_s, slowdown * estimate.high_s
    most_s = time_limit_s + PAST_THE_LIMIT_S if time_limit_s > 0 else 0.0
    low, high = estimate.remaining_parts
    low_s, median_s, high_s = (
        expected_remaining_s(most_s, elapsed_s, *quantiles_s, part) for part in (low, 0.5, high)
    )
    return low_s, median_s, high_s
