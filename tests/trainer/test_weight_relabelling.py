"""Rows are drawn with weights of their own, which are part of the observation."""

import numpy as np
import pytest

from rlalloc.job import SHARES
from rlalloc.objective import DEFAULT_WEIGHTS, TERM_NAMES, Weights
from rlalloc.objective.weights import features_of
from rlalloc.policy.policy_inputs import PolicyInputs
from rlalloc_trainer.advantages.weight_relabelling import (
    DEFAULT_PART,
    KILLS,
    TIMES,
    RelabelledReplay,
    always,
    conditioned_on,
    draw_weights,
    mostly,
)
from tests.trainer.importance import importance

ROWS = 50
INPUTS = PolicyInputs()


def advantages(terms: int = len(TERM_NAMES)) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    return (
        generator.random((ROWS, len(INPUTS)), dtype=np.float32),
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


def test_rewards_by_term_belong_to_what_was_seen() -> None:
    """Whatever weights a row is drawn with, at the default importance its reward is its advantage."""
    observation, shares, advantage = advantages()
    replay = RelabelledReplay(ROWS, INPUTS)
    replay.add(observation, shares, advantage)
    batch = replay.sample(400, np.random.default_rng(3))
    default = features_of(DEFAULT_WEIGHTS.array).astype(np.float32)
    told_default = (batch.observation[:, INPUTS.weights] == default).all(axis=1)
    assert DEFAULT_PART / 2 < told_default.mean() < 1
    kept = np.delete(observation, INPUTS.weights, axis=1)
    for row in range(20):
        mine = (kept == np.delete(batch.observation[row], INPUTS.weights)).all(axis=1)
        reward = batch.reward[row, :-1] @ importance(DEFAULT_WEIGHTS.array)
        assert reward == pytest.approx((advantage[mine] @ DEFAULT_WEIGHTS.array)[0], rel=1e-4)
        assert (batch.shares[row] == shares[mine]).all()
    assert (batch.reward[:, -1] == 0).all()


def test_one_site_draws_its_own() -> None:
    site = Weights(jct=1, energy=0.25)
    observation, shares, advantage = advantages()
    replay = RelabelledReplay(ROWS, INPUTS, always(site))
    replay.add(observation, shares, advantage)
    batch = replay.sample(10, np.random.default_rng(0))
    np.testing.assert_allclose(batch.observation, conditioned_on(batch.observation, site.array, INPUTS))
    mixed = mostly(site)(1000, np.random.default_rng(0))
    assert 0.4 < (mixed == site.array).all(axis=1).mean() < 0.6


def test_what_is_not_known_stays_so() -> None:
    observation, shares, advantage = advantages()
    advantage[:, TERM_NAMES.index("energy")] = np.nan
    replay = RelabelledReplay(ROWS, INPUTS)
    replay.add(observation, shares, advantage)
    unknown = np.isnan(replay.sample(10, np.random.default_rng(0)).reward)
    assert unknown[:, TERM_NAMES.index("energy")].all()
    assert unknown.sum() == 10


def test_terms_of_plug_ins_count_and_are_not_shown() -> None:
    observation, shares, advantage = advantages(len(TERM_NAMES) + 2)
    replay = RelabelledReplay(ROWS, INPUTS, always(DEFAULT_WEIGHTS), further=(2.0, 0.5))
    replay.add(observation, shares, advantage)
    batch = replay.sample(10, np.random.default_rng(0))
    drawn = [advantage[(shares == row).all(axis=1)][0] for row in batch.shares]
    assert batch.reward[:, -1] == pytest.approx([2.0 * row[-2] + 0.5 * row[-1] for row in drawn], rel=1e-5)
    np.testing.assert_allclose(batch.observation, conditioned_on(batch.observation, DEFAULT_WEIGHTS.array, INPUTS))


def test_the_oldest_give_way_and_none_are_none() -> None:
    observation, shares, advantage = advantages()
    replay = RelabelledReplay(10, INPUTS)
    with pytest.raises(ValueError, match="add some first"):
        replay.sample(1, np.random.default_rng(0))
    for row in range(ROWS):
        replay.add(observation[row : row + 1], shares[row : row + 1], advantage[row : row + 1])
    assert len(replay) == 10
    drawn = {tuple(row) for row in replay.sample(300, np.random.default_rng(0)).shares.tolist()}
    assert drawn == {tuple(row) for row in shares[-10:].tolist()}
