"""From urgency, a policy's fourth answer, to Slurm's ``nice``. Pure functions.

A job steps back by at most the site's band, the less urgent the further; no job is ever put before where it stands,
for only operators may. docs/urgency.md has it for people.
"""

import math
from typing import Annotated, Final

import msgspec

SHORT_S: Final = 60.0
"""A job that is expected to run no longer than this is as urgent as can be."""
LONG_S: Final = 7 * 86_400.0
"""One that is expected to run at least this long is not urgent at all."""


class UrgencyRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a site lets urgency do.

    ``nice_band`` is the most that rlalloc adds to a job's nice; 0, the default, switches urgency off.
    """

    nice_band: Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)] = 0


def urgency_of_run_time(run_time_s: float) -> float:
    """Shortest first: 1 for a job of SHORT_S seconds or less, 0 for one of LONG_S or more, on a log scale between.

    On a log scale, for twice as long is as much to a job of a minute as to one of a day.
    """
    return 1.0 - min(1.0, math.log(max(SHORT_S, run_time_s) / SHORT_S) / math.log(LONG_S / SHORT_S))


def nice_for(urgency: float, rules: UrgencyRules) -> int:
    """What is added to a job's nice: 0 for the most urgent, the whole band for the least."""
    return round(rules.nice_band * (1.0 - min(1.0, max(0.0, urgency))))
