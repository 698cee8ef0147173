"""By how much the time limit of a job grows when it gets a smaller size: an upper quantile of its slowdown.

A job that is killed at a limit which we should have extended further is killed for our decision, while a limit that
is too long costs only backfill its knowledge. So limits follow an upper quantile, and decisions an expectation.
"""

import functools
import math
from typing import Final

import msgspec
import numpy as np

from rlalloc.job import Allocation
from rlalloc.speed.speed_belief import SpeedBelief
from rlalloc.speed.speed_prior import PRIOR_BELIEF
from rlalloc.speed.step_time import FloatArray, Layouts, log_speed

QUANTILE: Final = 0.95
_LEAST_EXPONENT: Final = 0.05
"""A speed-up is taken to grow at least with this power of the GPUs: nothing is flat, measured or not."""
_SAMPLES: Final = 256


class ExpectedSlowdown(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Run time in another size over that as submitted: its median, what the time limit allows for, and the source."""

    median: float
    allowed: float
    source: str


def expected_slowdown(
    request: Allocation, allocation: Allocation, belief: SpeedBelief, source: str
) -> ExpectedSlowdown:
    """What is expected of ``allocation``; ``source`` says what the belief rests on."""
    return ExpectedSlowdown(*_median_and_upper(_fast_part(request), _fast_part(allocation), belief), source)


def median_slowdown(request: Allocation, allocation: Allocation, belief: SpeedBelief) -> float:
    """Median of the run time under ``allocation`` over that as submitted."""
    return _median_and_upper(_fast_part(request), _fast_part(allocation), belief)[0]


def slowdown_to_allow(request: Allocation, allocation: Allocation, belief: SpeedBelief = PRIOR_BELIEF) -> float:
    """Upper quantile of the run time under ``allocation`` over that as submitted."""
    return _median_and_upper(_fast_part(request), _fast_part(allocation), belief)[1]


def _fast_part(size: Allocation) -> Allocation:
    """The size without what does not change its speed: many jobs then share one computation."""
    return Allocation(size.nodes, size.gpus_per_node, size.tasks_per_node, size.cpus_per_task, 0, 0)


@functools.lru_cache(maxsize=8192)
def _median_and_upper(request: Allocation, allocation: Allocation, belief: SpeedBelief) -> tuple[float, float]:
    """0.5 and QUANTILE, interpolated as ``np.quantile`` does, which takes longer than all the rest."""
    ascending = np.sort(slowdowns(request, allocation, belief))
    median, upper = np.interp((0.5, QUANTILE), np.linspace(0.0, 1.0, len(ascending)), ascending).tolist()
    return median, upper


def slowdowns(request: Allocation, allocation: Allocation, belief: SpeedBelief = PRIOR_BELIEF) -> FloatArray:
    """Run time under ``allocation`` over that as submitted, shape (samples,): equally likely values.

    The global batch stays. With GPUs the speed rises, and never more than in proportion. That the job lacked CPUs, so
    that more of them make it faster, counts only where a profile measured it.
    """
    gpus = [max(1, size.gpus) for size in (request, allocation)]
    nodes = [min(size.nodes, count) for size, count in zip((request, allocation), gpus, strict=True)]
    parameters, cpus_needed, scatter = _samples(belief)
    by_size = log_speed(parameters, Layouts.at_fixed_global_batch(gpus, nodes, gpus[0]))
    slower = by_size[:, 0] - by_size[:, 1]
    for measured in belief.scaling:
        slower = np.maximum(slower, measured.log_slowdown(*gpus) + measured.noise * scatter)
    linear = math.log(gpus[0] / gpus[1])
    least, most = sorted((_LEAST_EXPONENT * linear, linear))
    slower = np.clip(slower, least, most)
    fed, fed_then = (
        np.minimum(1.0, size.cpus_per_gpu / cpus_needed) if size.cpus_per_gpu else np.ones(_SAMPLES)
        for size in (request, allocation)
    )
    by_cpus = fed / fed_then
    if not belief.cpus.is_measured:
        by_cpus = np.maximum(1.0, by_cpus)
    return np.asarray(np.exp(slower) * by_cpus)


@functools.lru_cache(maxsize=256)
def _samples(belief: SpeedBelief) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Parameters, shape (samples, 6), CPUs needed a GPU, and standard normal scatter; the same draws each time."""
    generator = np.random.default_rng(0)
    parameters = belief.samples(generator.standard_normal((_SAMPLES, len(belief.mean))))
    cpus_needed = belief.cpus.samples(generator.standard_normal(_SAMPLES))
    return parameters, cpus_needed, generator.standard_normal(_SAMPLES)
