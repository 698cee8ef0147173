"""Speeds of one model as measured, number of GPUs by number of GPUs: what no fitted model may fall below.

The formula of ``step_time`` has six parameters and fits some curves poorly. Where a model was measured in several
sizes, its slowdown between two of them is known without a formula.
"""

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

_LEAST_SLOPE: Final = 0.05


class MeasuredScaling(NamedTuple):
    """Natural logarithms of GPU counts, ascending, at least two, and of speeds; ``noise`` is that of a slowdown's."""

    log_gpus: tuple[float, ...]
    log_speed: tuple[float, ...]
    noise: float

    @classmethod
    def of(cls, log_speed: Mapping[int, float], noise: float) -> "MeasuredScaling | None":
        """From speeds (logarithms) by number of GPUs; None where there are fewer than two numbers."""
        if len(log_speed) < 2:
            return None
        gpus = sorted(log_speed)
        return cls(tuple(math.log(count) for count in gpus), tuple(log_speed[count] for count in gpus), noise)

    def log_slowdown(self, requested_gpus: int, gpus: int) -> float:
        """Logarithm of the run time on ``gpus`` over that on ``requested_gpus``, rather too long than too short.

        Straight lines between the points. Below the first, speed is proportional to the GPUs; beyond the last it goes
        on rising with the slope of the last two.
        """
        return self._at(requested_gpus) - self._at(gpus)

    def _at(self, gpus: int) -> float:
        place = math.log(gpus)
        first, last = self.log_gpus[0], self.log_gpus[-1]
        if place < first:
            return self.log_speed[0] + place - first
        if place > last:
            rise = (self.log_speed[-1] - self.log_speed[-2]) / (last - self.log_gpus[-2])
            return self.log_speed[-1] + min(1.0, max(_LEAST_SLOPE, rise)) * (place - last)
        return float(np.interp(place, self.log_gpus, self.log_speed))
