"""SAC over a few choices learns what it should on problems with a known answer."""

import msgspec
import numpy as np
import pytest
import torch

from rlalloc_research.parallelism.categorical_sac import CategoricalSac, CategoricalSettings, Losses
from rlalloc_trainer.sac.replay_buffer import Replay, Transitions

CHOICES, FEATURES = 4, 2
SETTINGS = CategoricalSettings(hidden=(32, 32), batch=128, rate=3e-3, tau=0.05)


def decisions(rows: int, *, worth: float, discount: float = 0.0) -> Transitions:
    """Choices at random; the one of the quadrant in which the observation lies is worth more by so much."""
    generator = np.random.default_rng(1)
    observation = generator.uniform(-1, 1, (rows, FEATURES)).astype(np.float32)
    chosen = generator.integers(CHOICES, size=rows)
    return Transitions(
        observation=observation,
        shares=chosen[:, None].astype(np.float32),
        reward=(worth * (chosen == quadrant(observation))).astype(np.float32),
        next_observation=observation[::-1].copy(),
        discount=np.full(rows, discount, np.float32),
    )


def quadrant(observation: np.ndarray) -> np.ndarray:
    return 2 * (observation[:, 0] > 0) + (observation[:, 1] > 0)


def learned(
    transitions: Transitions, settings: CategoricalSettings, steps: int
) -> tuple[CategoricalSac, list[Losses]]:
    sac, replay = CategoricalSac(FEATURES, CHOICES, settings, steps, seed=0), Replay(len(transitions), FEATURES, 1)
    replay.add(transitions)
    generator = np.random.default_rng(0)
    return sac, [sac.update(replay.sample(settings.batch, generator)) for _ in range(steps)]


def test_learns_which_choice_is_best() -> None:
    transitions = decisions(4000, worth=0.1)
    sac, losses = learned(transitions, SETTINGS, 500)
    clear = np.abs(transitions.observation).min(axis=1) > 0.1
    probabilities = sac.probabilities(torch.from_numpy(transitions.observation[clear])).numpy()
    assert (probabilities.argmax(axis=1) == quadrant(transitions.observation[clear])).mean() > 0.97
    assert losses[-1].critic < losses[0].critic


@pytest.mark.parametrize("wanted", [0.4, 1.2])
def test_temperature_brings_entropy_to_its_target(wanted: float) -> None:
    """What is best is known: only the target says how random to be."""
    settings = msgspec.structs.replace(
        SETTINGS, first_entropy=wanted, last_entropy=wanted, temperature_rate=0.03, temperature=0.05
    )
    _, losses = learned(decisions(4000, worth=0.1), settings, 800)
    assert np.mean([loss.entropy for loss in losses[-100:]]) == pytest.approx(wanted, abs=0.15)


def test_the_target_goes_from_first_to_last() -> None:
    settings = msgspec.structs.replace(SETTINGS, first_entropy=1.3, last_entropy=0.3, temperature_rate=0.03)
    _, losses = learned(decisions(4000, worth=0.1), settings, 1200)
    entropies = [loss.entropy for loss in losses]
    assert np.mean(entropies[550:650]) == pytest.approx(0.8, abs=0.2)
    assert np.mean(entropies[-50:]) == pytest.approx(0.3, abs=0.2)


def test_what_follows_counts_by_its_discount_and_its_entropy() -> None:
    """A reward of 1 in each of endless steps, whatever is chosen: 1 / (1 - discount), and entropy's worth beside.

    Choices alike are drawn alike, each step ahead adding log 4 nats: with a temperature that stays at 0.1 the value
    is (1 + discount * 0.1 * log 4) / (1 - discount).
    """
    transitions = msgspec.structs.replace(decisions(1000, worth=0.0, discount=0.5), reward=np.ones(1000, np.float32))
    sac, _ = learned(transitions, msgspec.structs.replace(SETTINGS, temperature=0.1, temperature_rate=0.0), 500)
    with torch.no_grad():
        values = sac.critics(torch.from_numpy(transitions.observation[:200]))
    assert sac.temperature == pytest.approx(0.1)
    assert values.mean().item() == pytest.approx((1 + 0.5 * 0.1 * np.log(4)) / 0.5, abs=0.03)


def test_making_networks_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    CategoricalSac(FEATURES, CHOICES, SETTINGS, 1, seed=4)
    assert torch.equal(torch.get_rng_state(), before)
