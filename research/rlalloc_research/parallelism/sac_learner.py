"""SAC on the same jobs: it sees the situation as it is, not its bin."""

from typing import Final

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from rlalloc_research.parallelism.categorical_sac import CategoricalSac, CategoricalSettings
from rlalloc_research.parallelism.oracle import DISCOUNT
from rlalloc_research.parallelism.parallelism_environment import DECISIONS, MOST_IN_USE, begin, first_situations
from rlalloc_research.parallelism.performance_model import SITUATION, FloatArray
from rlalloc_research.parallelism.plans import PLANS
from rlalloc_trainer.sac.replay_buffer import FloatArray as Observations
from rlalloc_trainer.sac.replay_buffer import Replay, Transitions

FEATURES: Final = 2 * len(SITUATION) - 1
_MIDDLING: Final = 0.6
"""Subtracted from all rewards, which changes no choice, so that values start near 0 as networks do."""


class SacPlansSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How SAC learns here.

    episodes   in all
    walkers    episodes that run at once
    updates    gradient steps after each decision of all walkers
    at_random  decisions of all walkers before anything is learned, each plan as likely
    """

    episodes: int = 30_000
    walkers: int = 300
    updates: int = 2
    at_random: int = 20
    sac: CategoricalSettings = CategoricalSettings()


class SacPlans:
    """The plans that a SAC actor finds likeliest."""

    def __init__(self, sac: CategoricalSac) -> None:
        self._sac = sac

    def choose(self, situations: FloatArray) -> NDArray[np.int64]:
        """Return the number of the plan for each of ``situations`` (n, 4)."""
        best: NDArray[np.int64] = self._sac.probabilities(torch.from_numpy(observed(situations))).argmax(-1).numpy()
        return best


def observed(situations: FloatArray) -> Observations:
    """Return what the networks see of ``situations`` (n, 4): all of it from -1 to 1, and logs of what is left.

    A job's share of what is left is proportional to its reciprocal: between 1 and 20 times. FEATURES columns.
    """
    left = np.maximum(1.0 - situations[:, :-1], 1.0 - MOST_IN_USE)
    return np.concatenate((2.0 * situations - 1.0, -np.log2(left) - 1.0), axis=-1, dtype=np.float32)


def learn_sac(settings: SacPlansSettings, seed: int) -> SacPlans:
    """Learn from the decisions of ``settings.episodes``. The same seed gives the same actor.

    The end of an episode is not part of the process, as for the tables.
    """
    generator, walkers = np.random.default_rng(seed), settings.walkers
    decisions = settings.episodes // walkers * DECISIONS
    steps = max(0, decisions - settings.at_random) * settings.updates
    sac = CategoricalSac(FEATURES, len(PLANS), settings.sac, steps, seed)
    replay = Replay(decisions * walkers, FEATURES, 1)
    discount = np.full(walkers, DISCOUNT, dtype=np.float32)
    for decision in range(decisions):
        if decision % DECISIONS == 0:
            situations = first_situations(walkers, generator)
        seen = observed(situations)
        if decision < settings.at_random:
            plans = generator.integers(len(PLANS), size=walkers)
        else:
            plans = _drawn(sac.probabilities(torch.from_numpy(seen)).numpy(), generator)
        step = begin(situations, plans, generator)
        reward = (step.reward - _MIDDLING).astype(np.float32)
        chosen = plans[:, None].astype(np.float32)
        replay.add(Transitions(seen, chosen, reward, observed(step.following), discount))
        situations = step.following
        if decision >= settings.at_random:
            for _ in range(settings.updates):
                sac.update(replay.sample(settings.sac.batch, generator))
    return SacPlans(sac)


def _drawn(probabilities: Observations, generator: np.random.Generator) -> NDArray[np.int64]:
    """Draw a plan (n,) by each row of ``probabilities`` (n, plans)."""
    cumulative = probabilities.cumsum(axis=-1)
    beyond = generator.random((len(cumulative), 1)) * cumulative[:, -1:] >= cumulative[:, :-1]
    drawn: NDArray[np.int64] = beyond.sum(axis=-1)
    return drawn
