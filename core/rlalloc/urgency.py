"""From urgency, a policy's fourth answer, to Slurm's ``nice``, and how a job gets its place back. Pure functions.

A job steps back by at most the site's band, the less urgent the further; no job is ever put before where it stands,
for only operators may. What it stepped back by falls to nothing as it waits, in a few steps: it cannot starve.
docs/admin/urgency.md has it for people.
"""

import math
from typing import Annotated, Final

import msgspec

SHORT_S: Final = 60.0
"""A job of one GPU that is expected to run no longer than this is as urgent as can be."""
LONG_S: Final = 7 * 86_400.0
"""By run time, one that is expected to run at least this long is not urgent at all."""
LARGE_GPUS: Final = 64
"""By area, one that holds so many GPUs for so long."""
GRADES: Final = 64
"""Different nices in the band: jobs whose nice falls at the same time then often share one call to slurmctld."""
STEPS: Final = 4
"""A job's nice falls in so many steps: that many updates at most, for each of them costs slurmctld a call."""
_TOLERANCE: Final = 1e-6  # of a step: waits are differences of times since the epoch


class UrgencyRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a site lets urgency do.

    nice_band           the most that rlalloc adds to a job's nice; 0, the default, switches urgency off
    patience            expected run times after which nothing is left of it ...
    starvation_limit_s  ... and at most this long
    """

    nice_band: Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)] = 0
    patience: Annotated[float, msgspec.Meta(gt=0, le=1000)] = 64.0
    starvation_limit_s: Annotated[float, msgspec.Meta(ge=1, le=30 * 86_400)] = 7 * 86_400.0

    def patience_s(self, run_time_s: float) -> float:
        """Seconds of waiting after which a job that is expected to run ``run_time_s`` has its own place again."""
        return min(self.starvation_limit_s, self.patience * max(SHORT_S, run_time_s))


def urgency_of_area(run_time_s: float, gpus: int) -> float:
    """Smallest area first: 1 for SHORT_S seconds of one GPU or less, 0 for LONG_S of LARGE_GPUS or more.

    On a log scale between, for twice as much is as much to a job of a minute as to one of a day.
    """
    return _on_log_scale(run_time_s * max(1, gpus), LONG_S * LARGE_GPUS)


def urgency_of_run_time(run_time_s: float, _gpus: int) -> float:
    """Shortest first: 1 for a job of SHORT_S seconds or less, 0 for one of LONG_S or more, on a log scale between."""
    return _on_log_scale(run_time_s, LONG_S)


def _on_log_scale(value_s: float, most_s: float) -> float:
    return 1.0 - min(1.0, math.log(max(SHORT_S, value_s) / SHORT_S) / math.log(most_s / SHORT_S))


def nice_for(urgency: float, rules: UrgencyRules) -> int:
    """What is added to a job's nice: 0 for the most urgent, the whole band for the least."""
    grade = round(GRADES * (1.0 - min(1.0, max(0.0, urgency))))
    return rules.nice_band * grade // GRADES


def steps_taken(waited_s: float, patience_s: float) -> int:
    """How many of its STEPS steps a job's nice has fallen after ``waited_s``."""
    return min(STEPS, int(STEPS * max(0.0, waited_s) / patience_s + _TOLERANCE))


def nice_left(nice: int, steps: int) -> int:
    """What is left of an added nice after so many of its steps."""
    return nice * (STEPS - steps) // STEPS


def is_left_of(nice: int, added: int) -> bool:
    """Whether a nice above a job's own is what some step leaves of what was added, and so not somebody else's."""
    return nice > 0 and any(nice == nice_left(added, steps) for steps in range(STEPS))
