"""How many CPUs a GPU needs for full speed: what is believed, and what a profile says of it.

With fewer CPUs than needed a job slows down in proportion (Synergy, Mohan et al., OSDI 2022;
msr-fiddle/synergy, MIT).
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from rlalloc.speed.step_time import FloatArray

_GRID: Final = np.linspace(np.log(0.05), np.log(128.0), 801)
_LEAST_NOISE: Final = 0.05
"""Standard deviation of the logarithm of two measurements of the same speed."""


class CpusNeeded(NamedTuple):
    """CPUs that a GPU needs for full speed: median, and standard deviation of the logarithm."""

    median: float
    spread: float

    @property
    def is_measured(self) -> bool:
        """Whether a profile has narrowed it much."""
        return self.spread < 0.5 * CPUS_NEEDED.spread

    def samples(self, draws: FloatArray) -> FloatArray:
        """CPUs for standard normal ``draws``, of the same shape."""
        return np.asarray(self.median * np.exp(self.spread * draws))

    def updated(self, cpus: Sequence[float], log_speed: Sequence[float], group: Sequence[int]) -> "CpusNeeded":
        """Return what is believed after speeds were measured with ``cpus`` CPUs a GPU.

        ``log_speed`` are natural logarithms. Speeds of one ``group`` (same GPUs and nodes) are compared with each
        other. A group with a single count says nothing.
        """
        loss = 0.5 * ((_GRID - np.log(self.median)) / self.spread) ** 2
        groups = np.asarray(group)
        for number in dict.fromkeys(group):
            here = groups == number
            fed = np.minimum(0.0, np.log(np.asarray(cpus)[here])[:, None] - _GRID)
            gap = np.asarray(log_speed)[here][:, None] - fed
            loss = loss + 0.5 * np.sum(((gap - gap.mean(axis=0)) / _LEAST_NOISE) ** 2, axis=0)
        weight = np.exp(loss.min() - loss)
        weight /= weight.sum()
        mean = float(weight @ _GRID)
        return CpusNeeded(float(np.exp(mean)), max(_LEAST_NOISE, float(weight @ (_GRID - mean) ** 2) ** 0.5))


CPUS_NEEDED: Final = CpusNeeded(1.0, 0.35)
"""What is believed of a job of which nothing is known. Synergy's language models need 1; its models fed from decoded
images or audio need 3 and more, but these are not what rlalloc resizes."""
