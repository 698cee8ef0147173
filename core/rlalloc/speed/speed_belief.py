"""What is believed of a family's speed: a Gaussian over the parameters of ``step_time``, updated by measurements.

The posterior is Laplace's approximation: the most probable parameters, found by damped Gauss-Newton steps, and the
curvature there. Speeds are known up to a factor for each group of measurements (what one GPU does, how much work a
run had): the factor has a flat prior and is integrated out.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rlalloc.speed.cpus_needed import CPUS_NEEDED, CpusNeeded
from rlalloc.speed.measured_scaling import MeasuredScaling
from rlalloc.speed.step_time import FloatArray, Layouts, log_speed

_STEPS: Final = 40
_DIFFERENCE: Final = 1e-4
"""For derivatives by finite differences, in a parameter's own unit (a logarithm)."""


@dataclass(frozen=True, eq=False)
class Measurements:
    """Measured speeds: where, how fast, and which of them share an unknown factor.

    log_speed  natural logarithm of samples a second, or minus that of a run time, shape (points,)
    group      which of them share a factor, integers from 0 on, shape (points,)
    noise      standard deviation of ``log_speed`` (0.1 is 10%), shape (points,)
    """

    layouts: Layouts
    log_speed: FloatArray
    group: NDArray[np.int64]
    noise: FloatArray

    def chosen(self, places: NDArray[np.bool_]) -> "Measurements":
        """The points where ``places`` is true."""
        layouts = self.layouts.chosen(places)
        return Measurements(layouts, self.log_speed[places], self.group[places], self.noise[places])


@dataclass(frozen=True, eq=False)
class SpeedBelief:
    """A Gaussian over the parameters: mean, shape (6,), and covariance, shape (6, 6).

    Beside it the CPUs needed, and what was measured of this very model, where something was.
    """

    mean: FloatArray
    covariance: FloatArray
    cpus: CpusNeeded = CPUS_NEEDED
    scaling: tuple[MeasuredScaling, ...] = ()

    def updated(self, measured: Measurements) -> "SpeedBelief":
        """Return what is believed after ``measured``."""
        precision: FloatArray = np.linalg.inv(self.covariance).astype(np.float64)
        spread = np.sqrt(np.diag(self.covariance))
        here, damping = self.mean, 1e-2
        residuals = self._residuals(here, measured)
        loss = self._loss(here, residuals, precision)
        curvature = precision
        for _ in range(_STEPS):
            slopes = self._slopes(here, residuals, measured)
            curvature = slopes.T @ slopes + precision
            descent = slopes.T @ residuals + precision @ (here - self.mean)
            damped = curvature + damping * np.diag(np.diag(curvature))
            step = -np.linalg.solve(damped, descent)
            step *= min(1.0, 1.0 / max(1e-12, float(np.max(np.abs(step) / spread))))
            there = here + step
            residuals_there = self._residuals(there, measured)
            loss_there = self._loss(there, residuals_there, precision)
            if loss_there < loss:
                settled = loss - loss_there < 1e-6 * (1.0 + loss)
                here, residuals, loss, damping = there, residuals_there, loss_there, damping / 4
                if settled:
                    break
            else:
                damping *= 8
                if damping > 1e8:
                    break
        slopes = self._slopes(here, residuals, measured)
        covariance = np.linalg.inv(slopes.T @ slopes + precision).astype(np.float64)
        return SpeedBelief(here, covariance, self.cpus, self.scaling)

    def predicted(self, measured: Measurements, wanted: Layouts, group: int) -> FloatArray:
        """Most probable log speeds at ``wanted`` in the unit of ``group``; the belief has seen ``measured``."""
        same = measured.group == group
        weight = 1.0 / measured.noise[same] ** 2
        gap = measured.log_speed[same] - log_speed(self.mean, measured.layouts.chosen(same))
        return np.asarray(log_speed(self.mean, wanted) + np.average(gap, weights=weight))

    def samples(self, draws: FloatArray) -> FloatArray:
        """Parameters for standard normal ``draws``, shape (samples, 6)."""
        return np.asarray(self.mean + draws @ np.linalg.cholesky(self.covariance).T)

    def _loss(self, parameters: FloatArray, residuals: FloatArray, precision: FloatArray) -> float:
        away = parameters - self.mean
        return float(residuals @ residuals + away @ precision @ away)

    @staticmethod
    def _residuals(parameters: FloatArray, measured: Measurements) -> FloatArray:
        """Gaps in standard deviations, each group's own factor taken out; shape (..., points)."""
        gap = measured.log_speed - log_speed(parameters, measured.layouts)
        weight = 1.0 / measured.noise**2
        groups = np.eye(int(measured.group.max()) + 1)[measured.group]
        shift = (gap * weight) @ groups / np.maximum(1e-300, weight @ groups)
        return np.asarray((gap - shift @ groups.T) / measured.noise)

    @classmethod
    def _slopes(cls, parameters: FloatArray, residuals: FloatArray, measured: Measurements) -> FloatArray:
        moved = parameters + _DIFFERENCE * np.eye(len(parameters))
        return np.asarray((cls._residuals(moved, measured) - residuals).T / _DIFFERENCE)
