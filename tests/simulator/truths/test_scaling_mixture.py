"""Curves that are drawn from what was measured."""

import itertools

import numpy as np
import pytest

from rlalloc.speed import CURVES
from rlalloc_simulator.truths.scaling_mixture import SOURCES, Source, drawn_speed
from rlalloc_simulator.workloads.workload_job import Speed


def efficiency(speed: Speed, gpus: int) -> float:
    return speed.at_full_supply(1.0).at(gpus, 1.0) / gpus


@pytest.mark.parametrize("source", [name for name in SOURCES if name != "analytic"])
def test_measured_scaling_rises_past_every_count_and_never_more_than_in_proportion(source: Source) -> None:
    generator = np.random.default_rng(1)
    for _ in range(50):
        curve = drawn_speed(generator, 8, source).at_full_supply(1.0)
        speeds = [curve.at(gpus, 1.0) for gpus in (1, 2, 8, 64, 512, 4096)]
        assert speeds == sorted(set(speeds))
        assert all(high / low <= 8.001 for low, high in itertools.pairwise(speeds))


def test_the_analytic_model_saturates() -> None:
    """An all-reduce that is not hidden bounds the speed; where a job begins to span nodes it can fall."""
    generator = np.random.default_rng(1)
    curves = [drawn_speed(generator, 16, "analytic").at_full_supply(1.0) for _ in range(50)]
    assert all(curve.at(16384, 1.0) < 1.2 * curve.at(4096, 1.0) for curve in curves)
    assert any(curve.at(12, 1.0) < curve.at(8, 1.0) for curve in curves)


@pytest.mark.parametrize("source", ["pollux", "mlperf", "analytic"])
def test_a_job_is_as_efficient_as_users_choose_in_the_size_that_suits_it(source: Source) -> None:
    generator = np.random.default_rng(2)
    found = [efficiency(drawn_speed(generator, 8, source), 8) for _ in range(200)]
    assert min(found) > 0.45
    assert max(found) < 0.97
    over = [efficiency(drawn_speed(generator, 8, source), 32) for _ in range(200)]
    assert np.median(over) < np.median(found)


def test_no_job_scales_as_policies_assume() -> None:
    generator = np.random.default_rng(3)
    named = {(curve.gpus, curve.speedup) for curve in CURVES.values()}
    drawn = [drawn_speed(generator, 4).at_full_supply(1.0) for _ in range(200)]
    assert named.isdisjoint((curve.gpus, curve.speedup) for curve in drawn)
    spread = np.quantile([curve.at(64, 1.0) / curve.at(8, 1.0) for curve in drawn], (0.1, 0.9))
    assert spread[1] > 2.5 * spread[0]
