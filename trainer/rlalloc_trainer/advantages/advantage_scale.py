"""Gains by term on one scale, and how much each counts under weights: rewards of one size, whatever the weights.

A decision changes some terms of the objective far more than others: all jobs' completion times by many times what it
changes of the GPU time that its own job holds. Divided by the largest weight alone, as a single outcome's reward is
(``rlalloc.reward``), gains under a large weight of a small term would be too small for SAC to leave the heuristic for
(its anchor and its temperature are in units of reward), and a large term's noise would drown them. So

- each term's gain is cut to ±5 on its own, before it is weighted,
- it is told in multiples of what a decision typically changes by that term (``scaled``), and
- a reward is their sum by weights that are a unit vector on that scale (``weighed_critic.importance_told``).

Which decision is the better one under any weights stays as it was, but for the cuts; under the default weights a
reward is the gain.
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
"""Root mean squares of gains that were cut to ±5: 8,976 labels of 120 training workloads of 100 jobs, drawn evenly
over decisions (``rlalloc_research.typical_advantages`` prints today's). No job ran into its time limit there; it is
taken to be as bad as running out of memory."""
_TYPICAL: Final = np.array([TYPICAL_GAINS[name] for name in TERM_NAMES])
_DEFAULT_SIZE: Final = float(np.linalg.norm(DEFAULT_WEIGHTS.array * _TYPICAL))


def size_of(weights: FloatArray) -> FloatArray:
    """How large weighted gains typically are under weights (…, terms), over those under the default ones: (…,)."""
    return np.asarray(np.linalg.norm(weights * _TYPICAL, axis=-1) / _DEFAULT_SIZE)


def cut(gain: FloatArray) -> FloatArray:
    """Gains, each cut to what a decision can be worth at most."""
    return np.clip(gain, WORST_REWARD, LARGEST_REWARD)


def scaled(gain: FloatArray) -> FloatArray:
    """Cut gains of our terms (rows, terms) over what is typical of each, times what is typical by default.

    What they are worth under weights is their product with ``weighed_critic.importance_told``. What is not known
    (NaN) stays so.
    """
    return np.asarray(cut(gain) / _TYPICAL * _DEFAULT_SIZE)
