"""What an outcome was worth. Pure functions.

The cost of a decision is what its job's owner waited from then on, plus the price that price-EF puts on what the job
took from others, both as they came to be and not as they were estimated::

    cost = (end - decided) + share·[n0·T + λ·q^p·min(T, τ)]

It is divided by a scale that does not depend on the decision, so that minutes of a short job and hours of a long one
count alike. A job that was killed for its size (OUT_OF_MEMORY, TIMEOUT) gets the worst reward there is.
"""

from typing import Final

import msgspec

from rlalloc.heuristics import DEFAULT_PRICE, PriceConstants

WORST_REWARD: Final = -5.0
_SCALE_FLOOR_S: Final = 60.0
_KILLED_FOR_ITS_SIZE: Final = frozenset({"OUT_OF_MEMORY", "TIMEOUT"})


class Consequence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What became of one decision.

    ``wait_s`` counts from the decision to the start. ``queued`` jobs waited when it was taken. ``reference_s`` is
    the run time expected as submitted, known before the decision.
    """

    state: str
    wait_s: float
    run_time_s: float
    dominant_share: float
    queued: int
    reference_s: float


def reward(consequence: Consequence, price: PriceConstants = DEFAULT_PRICE) -> float:
    """Return a number in [-5, 0]; 0 would be a job that ended at once and took nothing from anybody."""
    if consequence.state in _KILLED_FOR_ITS_SIZE:
        return WORST_REWARD
    taken_s = price.price_s(consequence.dominant_share, consequence.run_time_s, consequence.queued)
    cost_s = consequence.wait_s + consequence.run_time_s + taken_s
    return max(WORST_REWARD, -cost_s / (_SCALE_FLOOR_S + consequence.reference_s))
