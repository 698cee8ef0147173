"""Step by step the numbers of stable-baselines3's SAC: the same weights, batch and noise give the same losses."""

import math
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor

from rlalloc_trainer.sac.critics import EnsembleLinear, PlainCritics, lower_bound
from rlalloc_trainer.sac.n_step import NStepReturns
from rlalloc_trainer.sac.plain_actor import PlainActor
from rlalloc_trainer.sac.replay_buffer import Transitions, joined
from rlalloc_trainer.sac.soft_actor_critic import Sac, plain_settings

ROWS, FEATURES, ACTIONS, WIDTHS, GAMMA = 64, 3, 2, (16, 16), 0.9

HALVED = ACTIONS * math.log(2)
"""A density over [0, 1] is larger than over [-1, 1]: by this much, as a logarithm."""


class Nowhere(gymnasium.Env[np.ndarray, np.ndarray]):
    """Tells stable-baselines3 the shapes; it is never stepped."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (FEATURES,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (ACTIONS,), np.float32)


class Batch:
    """One batch for both, over and over, with a termination here and there."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.observation, self.following = torch.rand((2, ROWS, FEATURES), generator=generator) * 2 - 1
        self.shares = torch.rand((ROWS, ACTIONS), generator=generator)
        self.reward = torch.randn(ROWS, generator=generator)
        self.done = (torch.rand(ROWS, generator=generator) < 0.2).float()

    def ours(self) -> Transitions:
        discount = GAMMA * (1 - self.done)
        return Transitions(
            *(each.numpy() for each in (self.observation, self.shares, self.reward, self.following, discount))
        )

    def sample(self, *_: Any, **__: Any) -> Any:
        """Stand in for stable-baselines3's buffer, which holds actions in [-1, 1] and columns."""
        from stable_baselines3.common.type_aliases import ReplayBufferSamples

        actions, done, reward = 2 * self.shares - 1, self.done[:, None], self.reward[:, None]
        return ReplayBufferSamples(self.observation, actions, self.following, done, reward)


def theirs(batch: Batch) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what others' packages warn of on their import is not ours to mend
        from stable_baselines3 import SAC
        from stable_baselines3.common.logger import configure
    architecture = {"net_arch": list(WIDTHS)}
    model = SAC("MlpPolicy", Nowhere(), gamma=GAMMA, policy_kwargs=architecture, seed=1, device="cpu", buffer_size=10)
    model.set_logger(configure(None, []))
    model.replay_buffer = batch  # type: ignore[assignment]
    return model


def copied(model: Any) -> Sac[PlainActor]:
    """Our SAC with the weights of ``model``."""
    actor, critics = PlainActor(FEATURES, ACTIONS, WIDTHS), PlainCritics(FEATURES, ACTIONS, WIDTHS)
    actor.body.load_state_dict(model.actor.latent_pi.state_dict())
    actor.location.load_state_dict(model.actor.mu.state_dict())
    actor.log_std.load_state_dict(model.actor.log_std.state_dict())
    linear = [layer for layer in critics.value if isinstance(layer, EnsembleLinear)]
    for member, network in enumerate(model.critic.q_networks):
        wanted = [layer for layer in network if isinstance(layer, torch.nn.Linear)]
        for mine, other in zip(linear, wanted, strict=True):
            with torch.no_grad():
                mine.weight[member].copy_(other.weight.T)
                mine.bias[member].copy_(other.bias)
    return Sac(actor, plain_settings(ACTIONS), seed=0, critics=critics)


def test_losses_are_those_of_stable_baselines3(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over thirty steps, in which actor, critics, targets and temperature all move."""
    batch = Batch()
    model = theirs(batch)
    sac = copied(model)
    noise = torch.Generator().set_state(sac.generator.get_state())
    drawn: list[Tensor] = []

    def next_noise(shape: torch.Size, **_: Any) -> Tensor:
        """What we draw, in their order: they draw for the actor first, we for the target."""
        if not drawn:
            following, present = (torch.randn(shape, generator=noise) for _ in range(2))
            drawn.extend((present, following))
        return drawn.pop(0)

    monkeypatch.setattr("torch.distributions.normal._standard_normal", next_noise)
    for _ in range(30):
        model.train(gradient_steps=1, batch_size=ROWS)
        expected = model.logger.name_to_value
        temperature = sac.temperature
        losses = sac.update(batch.ours())
        assert losses.critic / 2 == pytest.approx(expected["train/critic_loss"], rel=1e-3)
        assert losses.actor is not None
        assert losses.actor - temperature * HALVED == pytest.approx(expected["train/actor_loss"], abs=1e-3)
    assert sac.temperature == pytest.approx(model.log_ent_coef.exp().item(), rel=1e-5)
    assert sac.temperature < 0.995
    unseen = np.random.default_rng(0).uniform(-1, 1, (50, FEATURES)).astype(np.float32)
    shares, _ = sac.actor.decide(unseen, sample=False)
    assert 2 * shares - 1 == pytest.approx(model.predict(unseen, deterministic=True)[0], abs=1e-3)


def test_n_step_returns_are_those_of_stable_baselines3() -> None:
    """Of episodes that terminate, that are truncated, and that are shorter than n."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from stable_baselines3.common.buffers import NStepReplayBuffer
    generator, count = np.random.default_rng(0), 40
    buffer = NStepReplayBuffer(
        count, Nowhere.observation_space, Nowhere.action_space, device="cpu", n_steps=4, gamma=GAMMA
    )
    returns, completed = NStepReturns(4, GAMMA), []
    ends = {2: "terminated", 11: "truncated", 13: "truncated", 30: "terminated", count - 1: "terminated"}
    for step in range(count):
        here, there = generator.random((2, FEATURES), dtype=np.float32)
        shares, reward = generator.random(ACTIONS, dtype=np.float32), float(generator.normal())
        terminated, truncated = (ends.get(step) == how for how in ("terminated", "truncated"))
        completed.append(
            returns.add(here, shares, reward, there, terminated=terminated, truncated=truncated),
        )
        done, infos = np.array([terminated or truncated]), [{"TimeLimit.truncated": truncated}]
        buffer.add(here, there, shares, np.array([reward]), done, infos)
    mine, other = joined(completed), buffer._get_samples(np.arange(count))
    assert mine.observation == pytest.approx(other.observations.numpy())
    assert mine.reward == pytest.approx(other.rewards.numpy()[:, 0], abs=1e-5)
    assert mine.next_observation == pytest.approx(other.next_observations.numpy())
    assert other.discounts is not None
    assert mine.discount == pytest.approx((other.discounts * (1 - other.dones)).numpy()[:, 0], abs=1e-6)


def test_the_lower_bound_of_two_is_the_lower_of_both() -> None:
    values = torch.randn(2, 50)
    by_deviation = values.mean(dim=0) - values.std(dim=0, correction=0)
    assert torch.equal(lower_bound(values, 1.0), values.min(dim=0).values)
    torch.testing.assert_close(lower_bound(values, 1.0), by_deviation)
    torch.testing.assert_close(lower_bound(values, 1.000001), by_deviation, rtol=1e-4, atol=1e-4)


def test_the_lower_bound_of_many_has_a_slope_where_they_agree() -> None:
    values = torch.ones(5, 3, requires_grad=True)
    lower = lower_bound(values, 1.5)
    torch.testing.assert_close(lower, torch.ones(3), rtol=0, atol=1e-5)
    lower.sum().backward()
    assert values.grad is not None
    torch.testing.assert_close(values.grad, torch.full((5, 3), 0.2))
