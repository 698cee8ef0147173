"""What a decision was worth: the weighted sum of what it cost by each term of the objective. Pure functions.

A cost is divided by a scale that does not depend on the decision, so that minutes of a short job and hours of a
long one count alike; weights by the largest of them, so that rewards stay on one scale. By default::

    reward = -(end - decided + share·[n0·T + λ·q^p·min(T, τ)]) / (60 s + expected run time as submitted)

what the job's owner waited from then on, and the price that price-EF puts on what the job took from the others, both
as they came to be. A job that was killed for its size (OUT_OF_MEMORY, TIMEOUT) gets the worst reward there is.

Where a simulator takes a decision again, the difference in costs of *all* jobs stands in the sum's place, and what
the others wait is counted instead of estimated.
"""

from typing import Final

import numpy as np

from rlalloc.objective.consequences import FloatArray
from rlalloc.objective.weights import relative

LARGEST_REWARD: Final = 5.0
WORST_REWARD: Final = -LARGEST_REWARD


def rewards(scaled: FloatArray, weights: FloatArray) -> FloatArray:
    """Return rewards (rows,) in [-5, 5] of gains, or costs below zero, in scales (rows, terms).

    ``weights`` are (terms,), or (rows, terms) for each row its own. What is not known (NaN) does not count where its
    weight is 0; else the reward is NaN, too.
    """
    share = np.broadcast_to(relative(weights), scaled.shape)
    counted = np.where(share == 0.0, 0.0, scaled * share)
    return np.asarray(np.clip(counted.sum(axis=-1), WORST_REWARD, LARGEST_REWARD), dtype=np.float64)
