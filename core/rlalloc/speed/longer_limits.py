"""By how much the time limit of a job grows when it gets a smaller size: an upper quantile of its slowdown.

A job that is killed at a limit which we should have extended further is killed for our decision, while a limit that
is too long costs only backfill its knowledge. So limits follow an upper quantile, and decisions an expectation.
"""

import functools
import math
from typing import Final

import numpy as np

from rlalloc.job import Allocation
from rlalloc.speed.speed_belief import SpeedBelief
from rlalloc.speed.speed_prior import CPUS_PER_GPU, CPUS_PER_GPU_SPREAD, PRIOR_BELIEF
from rlalloc.speed.step_time import FloatArray, Layouts, log_speed

QUANTILE: Final = 0.95
_LEAST_EXPONENT: Final = 0.05
"""A speed-up is taken to grow at least with this power of the GPUs: nothing is flat, measured or not."""
_SAMPLES: Final = 256


@functools.lru_cache(maxsize=8192)
def slowdown_to_allow(request: Allocation, allocation: Allocation, belief: SpeedBelief = PRIOR_BELIEF) -> float:
    """Upper quantile of the run time under ``allocation`` over that as submitted."""
    return float(np.quantile(slowdowns(request, allocation, belief), QUANTILE))


def slowdowns(request: Allocation, allocation: Allocation, belief: SpeedBelief = PRIOR_BELIEF) -> FloatArray:
    """Run time under ``allocation`` over that as submitted, shape (samples,): equally likely values.

    The global batch stays. With GPUs the speed rises, and never more than in proportion.
    """
    gpus = [max(1, size.gpus) for size in (request, allocation)]
    nodes = [min(size.nodes, count) for size, count in zip((request, allocation), gpus, strict=True)]
    parameters, cpus_needed = _samples(belief)
    by_size = log_speed(parameters, Layouts.at_fixed_global_batch(gpus, nodes, gpus[0]))
    linear = math.log(gpus[0] / gpus[1])
    least, most = sorted((_LEAST_EXPONENT * linear, linear))
    slower = np.clip(by_size[:, 0] - by_size[:, 1], least, most)
    fed, fed_then = (
        np.minimum(1.0, size.cpus_per_gpu / cpus_needed) if size.cpus_per_gpu else np.ones(_SAMPLES)
        for size in (request, allocation)
    )
    return np.asarray(np.exp(slower) * fed / fed_then)


@functools.lru_cache(maxsize=256)
def _samples(belief: SpeedBelief) -> tuple[FloatArray, FloatArray]:
    """Parameters, shape (samples, 6), and CPUs needed a GPU, shape (samples,); the same ones each time."""
    generator = np.random.default_rng(0)
    parameters = belief.samples(generator.standard_normal((_SAMPLES, len(belief.mean))))
    cpus_needed = CPUS_PER_GPU * np.exp(CPUS_PER_GPU_SPREAD * generator.standard_normal(_SAMPLES))
    return parameters, cpus_needed
