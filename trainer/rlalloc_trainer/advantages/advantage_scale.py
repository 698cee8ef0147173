"""Advantages on one scale: rewards of one size, whatever the weights of the objective.

A decision changes some terms of the objective far more than others: the completion times of all jobs by many times
the GPU time of its own job. A single outcome's reward is divided by the largest weight alone (``rlalloc.reward``).
Scaled like that, advantages under a large weight of a small term would be too small for SAC to leave the heuristic
(its anchor and its temperature are in units of reward), and the noise of a large term would drown them. Therefore:

- each term's advantage is cut to ±5 before it is weighted,
- the advantage is expressed in multiples of what a decision typically changes in that term (``scaled``), and
- the weights of its sum are a unit vector on that scale (``conditioned_critics.term_importance``).

Apart from the cuts, this does not change which of two decisions is better under any weights. Under the default
weights the reward is the weighted advantage itself.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from rlalloc.objective import DEFAULT_WEIGHTS, TERM_NAMES
from rlalloc.objective.consequences import FloatArray
from rlalloc.reward import LARGEST_REWARD, WORST_REWARD

_MEASURED: Final[Mapping[str, float]] = {
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
"""Root mean squares of advantages cut to ±5: 8,976 rows of 120 training workloads of 100 jobs, drawn evenly over
decisions (``python -m rlalloc_research typical-advantages`` prints today's). No job ran into its time limit there; a
timeout is taken to be as bad as running out of memory."""
UNMEASURED: Final = 1.0
"""For a term that was added since: it learns in larger or smaller steps until it is measured."""
TYPICAL_ADVANTAGES: Final[Mapping[str, float]] = {name: _MEASURED.get(name, UNMEASURED) for name in TERM_NAMES}
_TYPICAL: Final = np.array([TYPICAL_ADVANTAGES[name] for name in TERM_NAMES])
_DEFAULT_SIZE: Final = float(np.linalg.norm(DEFAULT_WEIGHTS.array * _TYPICAL))


def size_of(weights: FloatArray) -> FloatArray:
    """Typical size of advantages weighted by ``weights`` (…, terms), relative to the default weights: (…,)."""
    return np.asarray(np.linalg.norm(weights * _TYPICAL, axis=-1) / _DEFAULT_SIZE)


def cut(advantage: FloatArray) -> FloatArray:
    """Cut each advantage to the range of a reward, ±5."""
    return np.clip(advantage, WORST_REWARD, LARGEST_REWARD)


def scaled(advantage: FloatArray) -> FloatArray:
    """Cut advantages by term (rows, terms) and scale them by what is typical of each term.

    The product with ``conditioned_critics.term_importance`` is the reward under a site's weights. NaN, an advantage
    that is not known, stays NaN.
    """
    return np.asarray(cut(advantage) / _TYPICAL * _DEFAULT_SIZE)
