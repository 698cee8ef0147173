"""Labels are drawn under weights of their own, which stand in the observation."""

import numpy as np
import pytest

from rlalloc.job import SHARES
from rlalloc.objective import DEFAULT_WEIGHTS, TERM_NAMES, Weights
from rlalloc.objective.weights import features_of
from rlalloc.observation import FEATURES, WEIGHT_FEATURES
from rlalloc_trainer.hindsight import DEFAULT_PART, KILLS, TIMES, Hindsight, always, draw_weights, mostly, told

ROWS = 50


def labels(terms: int = len(TERM_NAMES)) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    return (
        generator.random((ROWS, len(FEATURES)), dtype=np.float32),
        generator.random((ROWS, SHARES), dtype=np.float32),
        generator.normal(size=(ROWS, terms)).astype(np.float32),
    )


def test_drawn_weights_are_as_sites_may_have_them() -> None:
    weights = draw_weights(20_000, np.random.default_rng(0))
    by_name = dict(zip(TERM_NAMES, weights.T, strict=True))
    assert (sum((by_name[name] > 0).astype(int) for name in TIMES) == 1).all()
    largest = weights.max(axis=1)
    for name in KILLS:
        assert ((by_name[name] == largest) | (by_name[name] == 1)).all()
        large = by_name[name][largest > 1]
        assert 0.4 < (large == 1).mean() < 0.6
    assert (weights > 0).sum(axis=1).max() <= 1 + 3 + 2
    assert (weights == DEFAULT_WEIGHTS.array).all(axis=1).mean() > DEFAULT_PART
    assert all((column > 0).mean() > 0.05 for column in by_name.values())


def test_the_reward_is_that_of_the_weights_in_the_observation() -> None:
    """Whatever is drawn: an observation's weight features and its reward belong together."""
    observation, shares, gain = labels()
    replay = Hindsight(ROWS, len(FEATURES), SHARES)
    replay.add(observation, shares, gain)
    batch = replay.sample(400, np.random.default_rng(3))
    sites = draw_weights(2000, np.random.default_rng(1))
    sites = np.concatenate((sites, [DEFAULT_WEIGHTS.array]))
    default = (batch.observation[:, WEIGHT_FEATURES] == features_of(DEFAULT_WEIGHTS.array).astype(np.float32)).all(
        axis=1
    )
    assert default.mean() > DEFAULT_PART / 2
    assert not default.all()
    kept = np.delete(observation, np.r_[WEIGHT_FEATURES], axis=1)
    for row in np.flatnonzero(default)[:20]:
        mine = np.flatnonzero((kept == np.delete(batch.observation[row], np.r_[WEIGHT_FEATURES])).all(axis=1))
        assert batch.reward[row] == pytest.approx(gain[mine[0]] @ DEFAULT_WEIGHTS.array, rel=1e-5)
        assert (batch.shares[row] == shares[mine[0]]).all()


def test_one_site_draws_its_own() -> None:
    site = Weights(jct=1, energy=0.25)
    observation, shares, gain = labels()
    replay = Hindsight(ROWS, len(FEATURES), SHARES, always(site))
    replay.add(observation, shares, gain)
    batch = replay.sample(10, np.random.default_rng(0))
    np.testing.assert_allclose(batch.observation, told(batch.observation, site.array))
    mixed = mostly(site)(1000, np.random.default_rng(0))
    assert 0.4 < (mixed == site.array).all(axis=1).mean() < 0.6


def test_what_is_not_known_is_not_asked_for() -> None:
    """The label is drawn without that term, and the policy told so; if nothing else is left, as by default."""
    observation, shares, gain = labels()
    gain[:, TERM_NAMES.index("energy")] = np.nan
    for site, shown in ((Weights(energy=0.5), DEFAULT_WEIGHTS), (only("energy"), DEFAULT_WEIGHTS)):
        replay = Hindsight(ROWS, len(FEATURES), SHARES, always(site))
        replay.add(observation, shares, gain)
        batch = replay.sample(10, np.random.default_rng(0))
        assert np.isfinite(batch.reward).all()
        np.testing.assert_allclose(batch.observation, told(batch.observation, shown.array))


def test_terms_of_plug_ins_count_and_are_not_shown() -> None:
    observation, shares, gain = labels(len(TERM_NAMES) + 1)
    gain[:, 1:-1] = 0.0
    replay = Hindsight(ROWS, len(FEATURES), SHARES, always(DEFAULT_WEIGHTS), further=(2.0,))
    replay.add(observation, shares, gain)
    batch = replay.sample(10, np.random.default_rng(0))
    worth = gain[:, 0] + 2.0 * gain[:, -1]
    drawn = [worth[(shares == row).all(axis=1)][0] for row in batch.shares]
    assert np.ptp(batch.reward / drawn) < 1e-5
    np.testing.assert_allclose(batch.observation, told(batch.observation, DEFAULT_WEIGHTS.array))


def test_the_oldest_give_way_and_none_are_none() -> None:
    observation, shares, gain = labels()
    replay = Hindsight(10, len(FEATURES), SHARES)
    with pytest.raises(ValueError, match="add some first"):
        replay.sample(1, np.random.default_rng(0))
    for row in range(ROWS):
        replay.add(observation[row : row + 1], shares[row : row + 1], gain[row : row + 1])
    assert len(replay) == 10
    drawn = {tuple(row) for row in replay.sample(300, np.random.default_rng(0)).shares.tolist()}
    assert drawn == {tuple(row) for row in shares[-10:].tolist()}


def only(name: str) -> Weights:
    return Weights(**(dict.fromkeys(TERM_NAMES, 0.0) | {name: 1.0}))
