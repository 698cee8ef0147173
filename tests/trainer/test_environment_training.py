"""The loop of acting and learning: what it remembers is right, it learns, and it goes on where it stopped."""

from pathlib import Path
from typing import Any

import gymnasium
import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlalloc_simulator.gym_environment import ENVIRONMENT
from rlalloc_trainer.sac.environment_training import OnlineSettings, OnlineTraining, plain_training
from rlalloc_trainer.sac.n_step import NStepReturns
from rlalloc_trainer.sac.plain_actor import PlainActor
from rlalloc_trainer.sac.replay_buffer import Transitions
from rlalloc_trainer.sac.resumable_environments import Episodes
from rlalloc_trainer.sac.soft_actor_critic import plain_settings

SMALL = msgspec.structs.replace(plain_settings(1), batch=32, critic_rate=3e-3, actor_rate=3e-3, temperature=0.1)


class Walk(gymnasium.Env[np.ndarray, np.ndarray]):
    """A point on a line, pushed by the action and by chance; it pays to stay at 0, and beyond ±2 all is over."""

    observation_space = gymnasium.spaces.Box(-10.0, 10.0, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 3.0, (1,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = self.np_random.uniform(-1, 1)
        return self._seen(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.place += 0.5 * (float(action[0]) - 1.0) + 0.1 * self.np_random.normal()
        return self._seen(), -abs(self.place), abs(self.place) > 2.0, False, {}

    def _seen(self) -> np.ndarray:
        return row(self.place)


def row(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def walk(steps: int = 15) -> gymnasium.Env[Any, Any]:
    return gymnasium.wrappers.TimeLimit(Walk(), steps)


def training(
    environments: int = 1, seed: int = 0, settings: OnlineSettings | None = None
) -> OnlineTraining[PlainActor]:
    settings = settings or OnlineSettings(learning_starts=40, capacity=500)
    return plain_training([walk() for _ in range(environments)], SMALL, settings, (16,), seed)


def transitions(rewards: list[float], n: int, *, terminated: bool, gamma: float = 0.5) -> list[Transitions]:
    """Of an episode whose observations are 0, 1, 2, …, and whose shares are 10, 11, …, step by step."""
    returns = NStepReturns(n, gamma)
    found = []
    for number, reward in enumerate(rewards):
        here, there = row(number), row(number + 1)
        last = number == len(rewards) - 1
        found.append(
            returns.add(
                here, here + 10, reward, there, terminated=last and terminated, truncated=last and not terminated
            )
        )
    return found


def test_two_steps_ahead_by_hand() -> None:
    first, second, end = transitions([1.0, 2.0, 4.0], 2, terminated=True)
    assert len(first) == 0
    assert second.observation.tolist() == [[0.0]]
    assert second.shares.tolist() == [[10.0]]
    assert second.reward.tolist() == [2.0]
    assert second.next_observation.tolist() == [[2.0]]
    assert second.discount.tolist() == [0.25]
    assert end.observation.tolist() == [[1.0], [2.0]]
    assert end.reward.tolist() == [4.0, 4.0]
    assert end.discount.tolist() == [0.0, 0.0]


def test_a_truncated_episode_goes_on_in_the_value_of_where_it_stopped() -> None:
    end = transitions([1.0, 2.0, 4.0], 2, terminated=False)[-1]
    assert end.next_observation.tolist() == [[3.0], [3.0]]
    assert end.discount.tolist() == [0.25, 0.5]


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=12), st.integers(1, 15), st.booleans())
def test_each_step_gives_one_transition_with_the_rewards_ahead(
    rewards: list[float], n: int, terminated: bool
) -> None:
    found = transitions(rewards, n, terminated=terminated)
    start = np.concatenate([each.observation[:, 0] for each in found])
    assert start.tolist() == list(range(len(rewards)))
    for name in ("reward", "discount", "next_observation"):
        values = np.concatenate([getattr(each, name).reshape(-1) for each in found])
        for step, value in enumerate(values):
            ahead = rewards[step : step + n]
            reaches_end = step + len(ahead) == len(rewards)
            expected = {
                "reward": sum(0.5**k * reward for k, reward in enumerate(ahead)),
                "discount": 0.0 if reaches_end and terminated and step + n >= len(rewards) else 0.5 ** len(ahead),
                "next_observation": step + len(ahead),
            }[name]
            assert value == pytest.approx(expected, abs=1e-5)


def test_no_step_ahead_is_refused() -> None:
    with pytest.raises(ValueError, match="take 1 or more"):
        NStepReturns(0, 0.9)


def test_open_steps_are_saved() -> None:
    one, other = NStepReturns(3, 0.5), NStepReturns(3, 0.5)
    for returns in (one, one):
        returns.add(
            row(1),
            row(0.5),
            1.0,
            row(2),
            terminated=False,
            truncated=False,
        )
    other.restore(one.state())
    ends = [
        each.add(
            row(2),
            row(0.1),
            4.0,
            row(3),
            terminated=True,
            truncated=False,
        )
        for each in (one, other)
    ]
    assert ends[0].reward.tolist() == ends[1].reward.tolist() == [2.5, 3.0, 4.0]


def test_an_action_space_is_scaled_to_shares() -> None:
    episodes = Episodes(Walk(), 0)
    before = episodes.observation[0]
    after = episodes.step(row(0.5))[0][0]
    assert after == pytest.approx(before, abs=0.5)  # the middle of the space pushes nowhere
    assert episodes.step(row(1.0))[0][0] == pytest.approx(after + 1.0, abs=0.5)


def test_actions_that_are_no_box_are_refused() -> None:
    with pytest.raises(TypeError, match="bounded Box"):
        Episodes(gymnasium.make("CartPole-v1"), 0)


@pytest.mark.parametrize("name", ["walk", "Pendulum-v1", ENVIRONMENT])
def test_an_episode_is_brought_back_in_its_middle(name: str) -> None:
    def made(seed: int) -> Episodes:
        return Episodes(walk() if name == "walk" else gymnasium.make(name, **options), seed)

    options: dict[str, Any] = {"jobs": 6} if name == ENVIRONMENT else {}
    one, other = made(1), made(2)
    chance = np.random.default_rng(0)
    for _ in range(4):
        one.step(chance.random(one.actions, dtype=np.float32))
    other.restore(one.state())
    for _ in range(8):  # into the next episode
        assert one.observation.tolist() == other.observation.tolist()
        shares = chance.random(one.actions, dtype=np.float32)
        first, second = one.step(shares), other.step(shares)
        assert first[1:] == second[1:]
        if first[2] or first[3]:
            one.begin()
            other.begin()


def test_it_learns() -> None:
    learner = training(settings=OnlineSettings(learning_starts=100, look_ahead=2, gamma=0.9))
    learner.run(100)
    by_chance = [episode.total_reward for episode in learner.episodes]
    learner.run(900)
    learned = [episode.total_reward for episode in learner.episodes[-10:]]
    shares, _ = learner.sac.actor.decide(np.array([[-1.0], [1.0]], np.float32), sample=False)
    assert shares[0, 0] > 0.6 > 0.4 > shares[1, 0]  # back to the middle from either side
    assert np.mean(learned) / 15 > -0.5  # a reward a step; by chance an episode ends before
    assert len(by_chance) > 100 / 15


@pytest.mark.parametrize("settings", [OnlineSettings(learning_starts=40, capacity=60, look_ahead=3)])
@pytest.mark.parametrize("environments", [1, 2])
def test_interrupted_it_ends_the_same(tmp_path: Path, settings: OnlineSettings, environments: int) -> None:
    """Bit by bit: networks, optimisers, replay, environments, open returns and all generators."""
    whole, part, resumed = (training(environments, seed, settings) for seed in (3, 3, 4))
    whole.run(130)
    part.run(64)  # in the middle of an episode
    part.save(tmp_path / "part")
    resumed.load(tmp_path / "part")
    resumed.run(66)
    assert resumed.steps == whole.steps == 130
    assert resumed.episodes == whole.episodes
    for each, folder in ((whole, tmp_path / "whole"), (resumed, tmp_path / "resumed")):
        each.save(folder)
    for file in (tmp_path / "whole").iterdir():
        assert file.read_bytes() == (tmp_path / "resumed" / file.name).read_bytes()


def test_the_same_seed_learns_the_same() -> None:
    ends = []
    for seed in (5, 5, 6):
        learner = training(seed=seed)
        torch.rand(3)  # nothing depends on torch's own generator
        learner.run(80)
        ends.append(learner.sac.actor.location.weight.detach().clone())
    assert torch.equal(ends[0], ends[1])
    assert not torch.equal(ends[0], ends[2])


def test_training_keeps_its_pace() -> None:
    learner = training(2, settings=OnlineSettings(learning_starts=20, train_every=4, gradient_steps=3))
    updates: list[float] = []
    learner.run(60, lambda losses: updates.append(losses.critic))
    assert len(updates) == (60 - 20) // 4 * 3
    assert len(learner.replay) == 60
