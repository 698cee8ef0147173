"""Weight relabelling: a decision that was simulated once is learned from under any weights of the objective.

A row keeps the advantage of a decision in each term, so its reward under any weights is a dot product, and the
weights are part of the observation. A row gets new weights each time that it is drawn, so one policy learns for all
of them (Abels et al., ICML 2019, "Dynamic Weights in Multi-Objective Deep Reinforcement Learning"; relabelling as in
Andrychowicz et al., NeurIPS 2017, "Hindsight Experience Replay").
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from rlalloc.job import SHARES
from rlalloc.objective import DEFAULT_WEIGHTS, TERM_NAMES, Weights
from rlalloc.objective.consequences import FloatArray
from rlalloc.objective.weights import features_of
from rlalloc.policy.policy_inputs import PolicyInputs
from rlalloc_trainer.advantages.advantage_scale import cut, scaled
from rlalloc_trainer.advantages.counterfactual import Advantages
from rlalloc_trainer.sac.replay_buffer import FloatArray as SingleArray
from rlalloc_trainer.sac.replay_buffer import Transitions, single_decisions

Draw = Callable[[int, np.random.Generator], FloatArray]
"""Weights (count, terms) to learn for."""

DEFAULT_PART: Final = 0.5
"""Of the draws have the default weights: most sites leave them as they are, so they have to be learned well."""
TIMES: Final = ("jct", "wait", "slowdown")
TIME_ODDS: Final = (0.7, 0.15, 0.15)
KILLS: Final = ("out_of_memory", "timeout")
KILLS_KEPT: Final = 0.5
"""Of the draws have the default weight of killed jobs; in the rest it equals the largest of the other weights."""
OTHERS: Final = tuple(name for name in TERM_NAMES if name not in (*TIMES, *KILLS))
FURTHER_TERMS: Final = 3
"""A draw has one term of time and up to so many others: sites care about few things at once."""
WEIGHT_RANGE: Final = (0.03, 100.0)
"""Weights of the others, drawn on a log scale, beside 1 for time. Beyond this range one of the two hardly counts: a
decision changes the completion times of all jobs by many times what it changes of its own job's GPU time."""


def draw_weights(count: int, generator: np.random.Generator) -> FloatArray:
    """Draw weights (count, terms) as sites may have them: the default, or a term of time and up to three others."""
    weights = np.zeros((count, len(TERM_NAMES)))
    rows = np.arange(count)
    times = np.array([TERM_NAMES.index(name) for name in TIMES])
    weights[rows, generator.choice(times, size=count, p=TIME_ODDS)] = 1.0
    others = np.array([TERM_NAMES.index(name) for name in OTHERS])
    order = generator.random((count, len(others))).argsort(axis=1)
    chosen = order < generator.integers(FURTHER_TERMS + 1, size=(count, 1))
    low, high = np.log(WEIGHT_RANGE)
    weights[:, others] = np.where(chosen, np.exp(generator.uniform(low, high, size=chosen.shape)), 0.0)
    kills = [TERM_NAMES.index(name) for name in KILLS]
    # Some sites change the weights that they care about, and leave the rest of the file as it was.
    kept = generator.random((count, 1)) < KILLS_KEPT
    weights[:, kills] = np.where(kept, DEFAULT_WEIGHTS.array[kills], weights.max(axis=1, keepdims=True))
    weights[generator.random(count) < DEFAULT_PART] = DEFAULT_WEIGHTS.array
    return weights


def always(weights: Weights) -> Draw:
    """Learn for one site's weights alone."""
    return lambda count, _: np.tile(weights.array, (count, 1))


def mostly(weights: Weights) -> Draw:
    """Learn for one site's weights half of the time, and for whatever it may want later in the other half."""

    def draw(count: int, generator: np.random.Generator) -> FloatArray:
        mine = generator.random(count) < 0.5
        return np.where(mine[:, None], weights.array, draw_weights(count, generator))

    return draw


def conditioned_on(observation: SingleArray, weights: FloatArray, inputs: PolicyInputs) -> SingleArray:
    """Return observations (rows, inputs) with other weights in them, (terms,) or (rows, terms)."""
    other = observation.copy()
    other[:, inputs.weights] = features_of(weights)[..., inputs.terms]
    return other


class RelabelledReplay:
    """A replay buffer of the latest ``capacity`` decisions, each drawn with weights of its own.

    Rewards are by term (rows, terms and one more), scaled by ``advantage_scale.scaled`` for ``conditioned_critics``;
    NaN where an advantage is not known. ``further`` are the weights of plug-ins' terms, whose weighted sum is the
    last column. The policy is not conditioned on them, and they count the same under all other weights
    (``advantage_scale.size_of``).
    """

    def __init__(
        self, capacity: int, inputs: PolicyInputs, draw: Draw = draw_weights, further: Sequence[float] = ()
    ) -> None:
        self._inputs = inputs
        self._observation = np.zeros((capacity, len(inputs)), dtype=np.float32)
        self._shares = np.zeros((capacity, SHARES), dtype=np.float32)
        self._by_term = np.zeros((capacity, len(TERM_NAMES) + len(further)), dtype=np.float32)
        self._draw = draw
        self._further = np.array(further, dtype=np.float64)
        self._added = 0

    def __len__(self) -> int:
        return min(self._added, len(self._by_term))

    def add(self, observation: SingleArray, shares: SingleArray, advantage: SingleArray) -> None:
        """Append observations (rows, inputs), shares (rows, SHARES) and advantages by term (rows, terms)."""
        rows = (self._added + np.arange(len(advantage))) % len(self._by_term)
        self._observation[rows], self._shares[rows], self._by_term[rows] = observation, shares, advantage
        self._added += len(advantage)

    def sample(self, count: int, generator: np.random.Generator) -> Transitions:
        """Draw ``count`` rows, each equally likely, with new weights. Raises ValueError if there are none."""
        if not len(self):
            raise ValueError("the replay holds no advantages: add some first")
        rows = generator.integers(len(self), size=count)
        advantage = self._by_term[rows].astype(np.float64)
        ours, others = scaled(advantage[:, : len(TERM_NAMES)]), cut(advantage[:, len(TERM_NAMES) :]) @ self._further
        observation = conditioned_on(self._observation[rows], self._draw(count, generator), self._inputs)
        reward = np.column_stack((ours, others)).astype(np.float32)
        return single_decisions(observation, self._shares[rows], reward)


def relabelled_replay(
    advantages: Sequence[Advantages], inputs: PolicyInputs, draw: Draw = draw_weights
) -> RelabelledReplay:
    """Return a replay buffer of all rows of ``advantages``."""
    replay = RelabelledReplay(sum(len(each.by_term) for each in advantages), inputs, draw)
    for each in advantages:
        replay.add(each.observation, each.shares, each.by_term)
    return replay
