"""What gains by term are worth under weights: rewards of one size, whatever the weights.

A decision changes some terms of the objective far more than others: all jobs' completion times by ten times what it
changes of the GPU time that its own job holds. Divided by the largest weight alone, as a single outcome's reward is
(``rlalloc.reward``), gains under a large weight of a small term would be too small for SAC to leave the heuristic for
(its anchor and its temperature are in units of reward), and a large term's noise would drown them. So

- each term's gain is cut to ±5 on its own, before it is weighted, and
- the weighted sum is divided by what such sums typically come to under these weights (``importance``).

Which decision is the better one under any weights stays as it was, but for the cuts; under the default weights a gain
is what it was.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from rlalloc.objective import DEFAULT_WEIGHTS, TERM_NAMES
from rlalloc.objective.consequences import FloatArray
from rlalloc.reward import LARGEST_REWARD, WORST_REWARD

TYPICAL_GAINS: Final[Mapping[str, float]] = {
    "jct": 1.85,
    "wait": 1.85,
    "slowdown": 2.5,
    "gpu_held": 0.15,
    "cpu_held": 0.27,
    "mem_held": 0.12,
    "gpu_waste": 0.14,
    "cpu_waste": 0.27,
    "mem_waste": 0.11,
    "energy": 0.08,
    "latency": 1.0,
    "network": 0.03,
    "fairness": 0.5,
    "out_of_memory": 0.18,
    "timeout": 0.18,
}
"""Root mean squares of gains that were cut to ±5: 8,976 labels of 120 training streams of 100 jobs
(``rlalloc_trainer.counterfactual``). There no job ran into its time limit; that is as bad as to run out of memory."""
_TYPICAL: Final = np.array([TYPICAL_GAINS[name] for name in TERM_NAMES])
_DEFAULT_SIZE: Final = float(np.linalg.norm(DEFAULT_WEIGHTS.array * _TYPICAL))


def importance(weights: FloatArray) -> FloatArray:
    """How much each term matters under weights (rows, terms) that are not all 0: unit vectors (rows, terms).

    A weight times what a decision typically changes by its term; only ratios of weights count.
    """
    typical = weights * _TYPICAL
    return np.asarray(typical / np.linalg.norm(typical, axis=-1, keepdims=True))


def learned_rewards(gain: FloatArray, weights: FloatArray, further: FloatArray) -> FloatArray:
    """Return rewards (rows,) in [-5, 5] of gains (rows, terms and further terms), NaN where one is not known.

    ``weights`` are (rows, terms), not all 0 in a row; ``further`` those of terms beside our own, which nothing is
    typical of.
    """
    ours = len(TERM_NAMES)
    cut = np.clip(np.nan_to_num(gain), WORST_REWARD, LARGEST_REWARD)
    worth = (cut[:, :ours] * weights).sum(axis=1) + cut[:, ours:] @ further
    size = np.linalg.norm(weights * _TYPICAL, axis=1) / _DEFAULT_SIZE
    return np.asarray(np.clip(worth / size, WORST_REWARD, LARGEST_REWARD))
