"""Rewards have about the same size under any weights."""

import numpy as np
import pytest

from rlalloc.objective import DEFAULT_WEIGHTS, TERM_NAMES, Weights
from rlalloc_trainer.advantages.advantage_scale import TYPICAL_ADVANTAGES, scaled, size_of
from tests.trainer.importance import importance

JCT, GPU_HELD, ENERGY = (TERM_NAMES.index(name) for name in ("jct", "gpu_held", "energy"))


def advantages(rows: int = 5000) -> np.ndarray:
    typical = [TYPICAL_ADVANTAGES[name] for name in TERM_NAMES]
    return np.random.default_rng(0).normal(size=(rows, len(TERM_NAMES))) * typical


def rewards(advantage: np.ndarray, site: Weights) -> np.ndarray:
    return np.asarray(scaled(advantage) @ importance(site.array))


def test_every_term_has_a_typical_advantage() -> None:
    assert tuple(TYPICAL_ADVANTAGES) == TERM_NAMES
    assert all(advantage > 0 for advantage in TYPICAL_ADVANTAGES.values())


@pytest.mark.parametrize(
    "site",
    [DEFAULT_WEIGHTS, Weights(gpu_held=1), Weights(gpu_held=30), Weights(energy=1000), Weights(jct=0, wait=0.01)],
)
def test_rewards_are_of_one_size_whatever_the_weights(site: Weights) -> None:
    size = np.sqrt((rewards(advantages(), site) ** 2).mean())
    assert size == pytest.approx(1.87, rel=0.05)  # a few are cut


def test_under_the_default_weights_an_advantage_is_what_it_is() -> None:
    advantage = advantages()
    advantage[:, 1:] = 0.0
    np.testing.assert_allclose(rewards(advantage, DEFAULT_WEIGHTS), np.clip(advantage[:, JCT], -5, 5))


def test_only_ratios_of_weights_count() -> None:
    advantage = advantages()
    once, tenfold = Weights(gpu_held=3), Weights(jct=10, gpu_held=30, out_of_memory=10, timeout=10)
    np.testing.assert_allclose(rewards(advantage, once), rewards(advantage, tenfold))
    np.testing.assert_allclose(importance(once.array), importance(tenfold.array))
    assert np.linalg.norm(importance(once.array)) == pytest.approx(1)


def test_what_decisions_change_less_is_less_important() -> None:
    """At equal weights completion time is all that counts; at a hundredfold one energy is more important."""
    equal, energy = (importance(Weights(energy=weight).array) for weight in (1.0, 100.0))
    assert equal[ENERGY] < 0.05 < 0.95 < equal[JCT]
    assert energy[ENERGY] > 0.9


def test_a_disaster_by_one_term_does_not_count_beyond_its_own_cut() -> None:
    """However large the other weight: completion times gained by the hour would drown what is asked for."""
    advantage = np.zeros((2, len(TERM_NAMES)))
    advantage[:, JCT], advantage[:, GPU_HELD] = (80.0, 5.0), -0.2
    once, again = rewards(advantage, Weights(gpu_held=100))
    assert once == pytest.approx(again)
    assert once < 0


def test_what_is_not_known_stays_so() -> None:
    advantage = advantages(10)
    advantage[:, ENERGY] = np.nan
    assert (np.isnan(scaled(advantage)) == np.isnan(advantage)).all()


def test_the_size_of_weights_is_that_of_what_they_weigh() -> None:
    """Over that of the default ones, so that what counts beside our terms can be told in rewards."""
    advantage = advantages()
    for site in (DEFAULT_WEIGHTS, Weights(gpu_held=30), Weights(jct=0.1, energy=0.2)):
        raw = (np.clip(advantage, -5, 5) @ site.array).std()
        assert raw / size_of(site.array) == pytest.approx(rewards(advantage, site).std())
    assert size_of(DEFAULT_WEIGHTS.array) == pytest.approx(1)
