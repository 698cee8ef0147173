"""The time of a step, and what is believed of a family's speed."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlalloc.job import Allocation
from rlalloc.speed import CURVES
from rlalloc.speed.cpus_needed import CpusNeeded
from rlalloc.speed.longer_limits import slowdown_to_allow, slowdowns
from rlalloc.speed.speed_belief import Measurements, SpeedBelief
from rlalloc.speed.speed_prior import PRIOR_BELIEF
from rlalloc.speed.step_time import Layouts, log_speed
from rlalloc.view import slowdown

parameters = st.tuples(*(st.floats(-4.0, 3.0) for _ in PRIOR_BELIEF.mean))
counts = st.sampled_from([1, 2, 3, 4, 8, 16, 24, 32, 64, 128, 1024, 16384])


def layouts(*sizes: tuple[float, float, float]) -> Layouts:
    """Sizes of GPUs, nodes and local batch."""
    gpus, nodes, batch = np.array(sizes, dtype=np.float64).T
    return Layouts(gpus, nodes, batch, np.zeros_like(gpus))


def measured(truth: np.ndarray, where: Layouts, factor: float = 1.0) -> Measurements:
    points = len(where.gpus)
    speeds = log_speed(truth, where) + np.log(factor)
    return Measurements(where, speeds, np.zeros(points, dtype=np.int64), np.full(points, 0.02))


def size(gpus: int, cpus_per_gpu: int = 8) -> Allocation:
    nodes, per_node = max(1, gpus // 8), min(gpus, 8)
    return Allocation(nodes, per_node, 1, cpus_per_gpu * per_node, 1024, 3600)


@given(parameters, counts)
def test_never_faster_than_in_proportion(chosen: tuple[float, ...], gpus: int) -> None:
    """At the same local batch: each GPU does at most what one does alone."""
    one, many = log_speed(np.array(chosen), layouts((1, 1, 1), (gpus, max(1, gpus // 8), 1)))
    assert many - one <= np.log(gpus) + 1e-9


def test_no_communication_is_in_proportion_and_all_of_it_is_not() -> None:
    none = np.array([-20.0, -20.0, -20.0, -20.0, 0.0, 0.0])
    where = layouts((8, 1, 1), (64, 8, 1))
    eight, sixty_four = log_speed(none, where)
    assert sixty_four - eight == pytest.approx(np.log(8))
    with_sync = log_speed(np.array([-20.0, -20.0, 1.0, -20.0, 0.0, 0.0]), where)
    assert with_sync[1] - with_sync[0] < np.log(4)


def test_as_pollux_has_it() -> None:
    """Two nodes of one GPU: T = ((a + m)^g + (s (1 + r))^g)^(1/g), with 2(n - 1)/n = 1."""
    a, s, r, g, m = 0.2, 0.5, 0.1, 1.5, 2.0
    chosen = np.array([np.log(a), 0.0, np.log(s), np.log(r), np.log(g - 1), 0.0])
    step = ((a + m) ** g + (s * (1 + r)) ** g) ** (1 / g)
    assert np.exp(log_speed(chosen, layouts((2, 2, m)))) == pytest.approx(2 * m / step)


def test_a_larger_global_batch_needs_more_samples() -> None:
    where = Layouts(*(np.array(each, dtype=np.float64) for each in ([8, 8], [1, 1], [1, 1], [0.0, 1.0])))
    apart, critical = log_speed(PRIOR_BELIEF.mean, where), PRIOR_BELIEF.mean[5]
    assert apart[0] - apart[1] == pytest.approx(np.log1p(np.exp(-critical)))


def test_measurements_at_some_counts_tell_others() -> None:
    truth = PRIOR_BELIEF.mean + 0.8 * np.sqrt(np.diag(PRIOR_BELIEF.covariance)) * (-1, 1, 1, -1, 1, 0)
    seen = layouts(*((gpus, max(1, gpus // 8), batch) for gpus in (1, 2, 4, 16, 32) for batch in (0.5, 1, 2)))
    unseen = layouts((8, 1, 1), (64, 8, 1))
    known = measured(truth, seen, factor=130.0)
    believed = PRIOR_BELIEF.updated(known)
    told = believed.predicted(known, unseen, 0)
    np.testing.assert_allclose(told, log_speed(truth, unseen) + np.log(130.0), atol=0.1)
    assert np.linalg.det(believed.covariance) < np.linalg.det(PRIOR_BELIEF.covariance)


def test_groups_have_factors_of_their_own() -> None:
    """Runs of different work tell nothing of scaling, however different their times."""
    where = layouts((8, 1, 1), (64, 8, 1))
    apart = Measurements(where, np.array([0.0, 9.0]), np.array([0, 1]), np.full(2, 0.1))
    believed = PRIOR_BELIEF.updated(apart)
    np.testing.assert_allclose(believed.mean, PRIOR_BELIEF.mean, atol=1e-6)
    np.testing.assert_allclose(believed.covariance, PRIOR_BELIEF.covariance, rtol=1e-6)


@given(counts, counts)
def test_a_slowdown_is_between_flat_and_in_proportion(requested: int, given: int) -> None:
    values = slowdowns(size(requested), size(given))
    linear = requested / given
    assert values.min() >= min(1.0, linear) - 1e-9
    assert values.max() <= max(1.0, linear) + 1e-9
    if requested > given:
        assert values.min() > 1.0


def test_nothing_is_flat_beyond_what_was_measured() -> None:
    """BERT's measured curve says 0.95 here, and such jobs were killed at their time limit."""
    assert CURVES["bert"].at_size(size(128)) < CURVES["bert"].at_size(size(32))
    assert 2.0 < slowdown(size(128), size(32)) < 4.0
    assert slowdown(size(1024), size(512)) > 1.5
    assert 3.0 < slowdown_to_allow(size(128), size(32)) <= 4.0
    assert slowdown_to_allow(size(512), size(128)) > 3.0


def test_fewer_cpus_than_a_gpu_may_need_are_allowed_for() -> None:
    assert slowdown_to_allow(size(8, 8), size(8, 4)) == 1.0
    assert slowdown_to_allow(size(8, 8), size(8, 1)) > 1.5


def test_more_cpus_make_a_job_faster_only_where_that_was_measured() -> None:
    """One GPU with four CPUs may be as fast as four GPUs with one, but a job that never lacked CPUs is not."""
    asked, fewer = Allocation(1, 4, 1, 1, 0, 60), Allocation(1, 1, 1, 4, 0, 60)
    np.testing.assert_array_equal(slowdowns(asked, fewer), slowdowns(size(4, 4), size(1, 4)))
    assert slowdown_to_allow(asked, fewer) > 3.0
    measured = dataclasses.replace(PRIOR_BELIEF, cpus=CpusNeeded(1.0, 0.05))
    assert slowdown_to_allow(asked, fewer, measured) < 1.2


def test_what_a_family_showed_narrows_what_is_allowed() -> None:
    """A family whose runs took as long on 8 GPUs as on 32."""
    where = Layouts.at_fixed_global_batch((32, 8, 32, 8), (4, 1, 4, 1), 32)
    runs = Measurements(where, np.zeros(4), np.zeros(4, dtype=np.int64), np.full(4, 0.1))
    family = PRIOR_BELIEF.updated(runs)
    assert slowdown_to_allow(size(32), size(8), family) < 1.6 < slowdown_to_allow(size(32), size(8))


def test_samples_have_the_moments_of_the_belief() -> None:
    belief = SpeedBelief(np.arange(6.0), np.diag(np.arange(1.0, 7.0)))
    drawn = belief.samples(np.random.default_rng(0).standard_normal((20_000, 6)))
    np.testing.assert_allclose(drawn.mean(0), belief.mean, atol=0.1)
    np.testing.assert_allclose(drawn.var(0), np.diag(belief.covariance), rtol=0.05)
