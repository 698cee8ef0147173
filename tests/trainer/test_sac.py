"""SAC learns what it should on problems with a known answer, the same way each time, and goes on where it stopped."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlalloc.job import SHARES
from rlalloc.policy.policy_inputs import DEFAULT_INPUTS
from rlalloc_agent.actor import Actor
from rlalloc_trainer.sac.critics import BESIDE, EnsemblePerceptron, PlainCritics, advantage_over_heuristic
from rlalloc_trainer.sac.replay_buffer import Replay, Transitions, single_decisions
from rlalloc_trainer.sac.soft_actor_critic import Losses, Sac, SacSettings, learn, new_critics

PLAIN = SacSettings(
    anchor=0.0,
    critics=2,
    critic_rate=3e-3,
    actor_rate=3e-3,
    weight_decay=0.0,
    actor_after=100,
    batch=128,
    tau=0.05,
    temperature=0.003,
)
WIDTHS = (32, 32)


def new_sac(settings: SacSettings = PLAIN, seed: int = 0, features: int = 8) -> Sac[Actor]:
    torch.manual_seed(seed)
    return Sac(Actor(DEFAULT_INPUTS[-features:], WIDTHS), settings, seed)


def bandit(rows: int, seed: int, features: int = 8) -> Transitions:
    """Random shares; the reward falls with the distance to a target that the first feature tells."""
    generator = np.random.default_rng(seed)
    observation = generator.uniform(-1, 1, (rows, features)).astype(np.float32)
    observation[:, -SHARES:] = 0.5
    shares = generator.uniform(0, 1, (rows, SHARES)).astype(np.float32)
    reward = -((shares - bandit_target(observation)) ** 2).sum(axis=1)
    return single_decisions(observation, shares, reward)


def bandit_target(observation: np.ndarray) -> np.ndarray:
    target = np.where(observation[:, :1] > 0, [0.8, 0.3, 0.5, 0.4], [0.2, 0.7, 0.5, 0.4])
    return np.asarray(target, dtype=np.float32)


def trained_on_bandit(settings: SacSettings = PLAIN, steps: int = 700) -> tuple[Sac[Actor], list[Losses]]:
    sac = new_sac(settings)
    losses: list[Losses] = []
    replay = Replay(4000, 8, SHARES)
    replay.add(bandit(4000, 1))
    learn(sac, replay, steps, np.random.default_rng(0), losses.append)
    return sac, losses


@pytest.mark.slow
def test_learns_a_continuous_bandit() -> None:
    sac, losses = trained_on_bandit(steps=1500)
    held_out = bandit(500, 2)
    shares, _ = sac.actor.decide(held_out.observation, sample=False)
    clear = np.abs(held_out.observation[:, 0]) > 0.2
    assert np.abs(shares - bandit_target(held_out.observation))[clear].mean() < 0.08
    assert losses[-1].critic < losses[0].critic


def test_temperature_brings_entropy_to_its_target() -> None:
    """Given that there is nothing to win, only the target says how random to be."""
    settings = msgspec.structs.replace(
        PLAIN, actor_after=0, actor_every=1, critic_rate=3e-4, temperature_rate=0.05, target_entropy=-2.5
    )
    sac, replay = new_sac(settings), Replay(1000, 8, SHARES)
    nothing_to_win = bandit(1000, 1)
    replay.add(single_decisions(nothing_to_win.observation, nothing_to_win.shares, np.zeros(1000, np.float32)))
    losses: list[Losses] = []
    learn(sac, replay, 400, np.random.default_rng(0), losses.append)
    recent = [loss.entropy for loss in losses[-200:] if loss.entropy is not None]
    assert np.mean(recent) == pytest.approx(-2.5, abs=0.4)


def test_an_anchored_actor_stays_at_the_heuristic_where_there_is_nothing_to_win() -> None:
    sac, replay = new_sac(SacSettings(anchor=0.5, actor_after=0)), Replay(1000, 8, SHARES)
    rows = bandit(1000, 1)
    replay.add(single_decisions(rows.observation, rows.shares, np.zeros(1000, np.float32)))
    learn(sac, replay, 200, np.random.default_rng(0))
    shares, _ = sac.actor.decide(rows.observation, sample=False)
    assert np.abs(shares - 0.5).max() < 0.03


def test_critics_that_disagree_on_shares_keep_the_actor_at_the_heuristic() -> None:
    sac = new_sac(SacSettings(anchor=0.0, actor_after=0, actor_every=1, actor_rate=3e-3, temperature=1e-6, critics=2))
    rows = torch.full((64, 8), 0.5)
    sac.critics = TornCritics(8, SHARES, WIDTHS)
    replay = Replay(64, 8, SHARES)
    replay.add(single_decisions(rows.numpy(), np.full((64, SHARES), 0.5, np.float32), np.zeros(64, np.float32)))
    learn(sac, replay, 100, np.random.default_rng(0))
    shares, _ = sac.actor.decide(rows.numpy(), sample=False)
    assert np.abs(shares - 0.5).max() < 0.03


class TornCritics(PlainCritics):
    """One values larger shares, the other smaller ones."""

    def forward(self, observations: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
        beside = (shares - observations[:, -SHARES:]).sum(dim=-1)
        return torch.as_tensor(0.0 * super().forward(observations, shares) + torch.stack((beside, -beside)))


@pytest.mark.slow
def test_what_follows_counts_by_its_discount() -> None:
    """Two states: whatever is done in the first leads to the second, whose reward is 1 and which ends."""
    settings = SacSettings(
        anchor=0.0, critic_rate=3e-3, weight_decay=0.0, temperature=1e-6, tau=0.05, actor_after=10_000
    )
    sac, replay = new_sac(settings, features=5), Replay(200, 5, SHARES)
    first, second = np.zeros((100, 5), np.float32), np.zeros((100, 5), np.float32)
    first[:, 0], second[:, 1] = 1, 1
    shares = np.random.default_rng(0).uniform(0, 1, (200, SHARES)).astype(np.float32)
    replay.add(
        Transitions(
            observation=np.concatenate((first, second)),
            shares=shares,
            reward=np.repeat(np.array([0, 1], np.float32), 100),
            next_observation=np.concatenate((second, second)),
            discount=np.repeat(np.array([0.5, 0], np.float32), 100),
        )
    )
    learn(sac, replay, 600, np.random.default_rng(0))
    with torch.no_grad():
        values = sac.critics(torch.from_numpy(np.stack((first[0], second[0]))), torch.full((2, SHARES), 0.5))
    assert values.mean(dim=0).tolist() == pytest.approx([0.5, 1.0], abs=0.1)


def test_a_row_of_weight_nothing_teaches_nothing() -> None:
    """And errors say which rows the critics were wrong about."""
    rows, surprise = bandit(64, 1), np.zeros(64, np.float32)
    surprise[0] = 50.0
    wrong = single_decisions(rows.observation, rows.shares, rows.reward + surprise)
    weights = np.ones(64, np.float32)
    weights[0] = 0.0
    one, other = new_sac(), new_sac()
    losses = one.update(rows, weights), other.update(wrong, weights)
    assert losses[0].critic == losses[1].critic
    assert losses[1].errors[0] == pytest.approx(50.0, abs=2.0)
    for one_part, other_part in zip(one.critics.parameters(), other.critics.parameters(), strict=True):
        assert torch.equal(one_part, other_part)


@pytest.mark.parametrize("members", [1, 2, 5])
def test_an_ensemble_computes_what_its_members_would_alone(members: int) -> None:
    critics = PlainCritics(4, 2, WIDTHS, members)
    observations, shares = torch.rand(7, 4), torch.rand(7, 2)
    together = critics(observations, shares)
    for member in range(members):
        alone = PlainCritics(4, 2, WIDTHS, 1)
        alone.load_state_dict({name: value[member : member + 1] for name, value in critics.state_dict().items()})
        torch.testing.assert_close(alone(observations, shares)[0], together[member])


def test_the_same_seed_gives_the_same_parameters() -> None:
    one, other = (trained_on_bandit(steps=150)[0] for _ in range(2))
    for name, parameter in one.actor.state_dict().items():
        assert torch.equal(parameter, other.actor.state_dict()[name])
    assert one.temperature == other.temperature


def test_saved_and_loaded_it_goes_on_exactly(tmp_path: Path) -> None:
    sac, _ = trained_on_bandit(steps=150)
    sac.save(tmp_path / "sac.safetensors")
    resumed = new_sac(seed=9)
    resumed.load(tmp_path / "sac.safetensors")
    replay = Replay(4000, 8, SHARES)
    replay.add(bandit(4000, 1))
    runs: list[list[Losses]] = [[], []]
    for learner, losses in zip((sac, resumed), runs, strict=True):
        learn(learner, replay, 20, np.random.default_rng(5), losses.append)
    assert [loss.critic for loss in runs[0]] == [loss.critic for loss in runs[1]]
    for name, parameter in sac.actor.state_dict().items():
        assert torch.equal(parameter, resumed.actor.state_dict()[name])


def test_making_critics_leaves_the_global_generator_alone() -> None:
    actor = Actor(DEFAULT_INPUTS[-8:], WIDTHS)
    before = torch.get_rng_state()
    new_critics(actor, members=2, seed=4)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.slow
def test_critics_find_the_heuristic_best_where_larger_is_far_worse_and_smaller_a_little() -> None:
    """Without an input for each side they answer 0.13 to 0.22 less: one slope leads through both."""
    assert np.mean([best_beside_a_cliff(seed) for seed in range(3)]) == pytest.approx(0.0, abs=0.1)


def best_beside_a_cliff(seed: int) -> float:
    """How far from the heuristic's the first share is that critics find best after learning from noisy advantages."""
    generator = torch.Generator().manual_seed(seed + 100)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = EnsemblePerceptron(2, 8 + BESIDE * SHARES, (64, 64))
    observations = torch.rand(4000, 8, generator=generator)
    shares = observations[:, -SHARES:].clone()
    shares[:, 0] = torch.rand(4000, generator=generator)
    left = shares[:, 0] - observations[:, -SHARES]
    advantage = -2.0 * left.relu() - 0.2 * (-left).relu() + 0.5 * torch.randn(4000, generator=generator)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=0.1)
    for _ in range(600):
        rows = torch.randint(4000, (256,), generator=generator)
        optimizer.zero_grad()
        errors = advantage_over_heuristic(network, observations[rows], shares[rows]) - advantage[rows]
        torch.autograd.backward((errors**2).mean())
        optimizer.step()
    asked = torch.rand(200, 8, generator=generator)
    asked[:, -SHARES] = 0.2 + 0.6 * asked[:, -SHARES]
    grid = torch.linspace(0.0, 1.0, 41)
    with torch.no_grad():
        values = [
            advantage_over_heuristic(network, asked, with_first(asked[:, -SHARES:], share)).mean(dim=0)
            for share in grid
        ]
    return float((grid[torch.stack(values).argmax(dim=0)] - asked[:, -SHARES]).mean())


def with_first(shares: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
    return torch.cat((first.expand(len(shares), 1), shares[:, 1:]), dim=-1)


@settings(deadline=None)
@given(st.integers(1, 50), st.lists(st.integers(1, 20), min_size=1, max_size=10))
def test_the_buffer_keeps_the_latest(capacity: int, additions: list[int]) -> None:
    replay, number = Replay(capacity, 1, SHARES), 0
    for count in additions:
        rows = np.arange(number, number + count, dtype=np.float32)
        replay.add(single_decisions(rows[:, None], np.zeros((count, SHARES), np.float32), rows))
        number += count
    kept = min(number, capacity)
    assert len(replay) == kept
    sampled = replay.sample(200, np.random.default_rng(0))
    assert sampled.reward.min() >= number - kept
    assert (sampled.observation[:, 0] == sampled.reward).all()


def test_the_buffer_draws_evenly() -> None:
    replay = Replay(10, 1, SHARES)
    rows = np.arange(10, dtype=np.float32)
    replay.add(single_decisions(rows[:, None], np.zeros((10, SHARES), np.float32), rows))
    counts = np.bincount(replay.sample(20_000, np.random.default_rng(0)).reward.astype(int))
    assert counts == pytest.approx(np.full(10, 2000), rel=0.1)


def test_an_empty_buffer_says_so() -> None:
    with pytest.raises(ValueError, match="empty"):
        Replay(10, 1, SHARES).sample(1, np.random.default_rng(0))
