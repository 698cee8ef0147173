"""Hindsight for objectives: a decision that was seen once is learned from under any weights.

A label keeps what a decision changed by each term of the objective, so that its reward for any weights is a dot
product, and the weights stand in the observation. Each time that a label is drawn, it gets weights of its own, and so
one policy learns for all of them (Abels et al., ICML 2019, "Dynamic Weights in Multi-Objective Deep Reinforcement
Learning"; relabelling as in Andrychowicz et al., NeurIPS 2017, "Hindsight Experience Replay").
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from rlalloc.job import SHARES
from rlalloc.objective import DEFAULT_WEIGHTS, TERM_NAMES, Weights
from rlalloc.objective.consequences import FloatArray
from rlalloc.objective.weights import features_of
from rlalloc.policy_inputs import PolicyInputs
from rlalloc_trainer.advantages.advantage_scale import cut, scaled
from rlalloc_trainer.advantages.counterfactual import Labels
from rlalloc_trainer.sac.replay_buffer import FloatArray as SingleArray
from rlalloc_trainer.sac.replay_buffer import Transitions, single_decisions

Draw = Callable[[int, np.random.Generator], FloatArray]
"""Weights (count, terms) to learn for."""

DEFAULT_PART: Final = 0.5
"""Of the draws: what most sites will leave as it is has to be learned well."""
TIMES: Final = ("jct", "wait", "slowdown")
TIME_ODDS: Final = (0.7, 0.15, 0.15)
KILLS: Final = ("out_of_memory", "timeout")
KILLS_KEPT: Final = 0.5
"""Of the draws: killed jobs weigh as by default, and in the rest as much as the largest of the other weights."""
OTHERS: Final = tuple(name for name in TERM_NAMES if name not in (*TIMES, *KILLS))
FURTHER_TERMS: Final = 3
"""Beside one of time, a draw has none to so many others: sites care about few things at once."""
WEIGHT_RANGE: Final = (0.03, 100.0)
"""Of the others, on a log scale; a time's is 1. Beyond, the one or the other hardly counts any more: a decision
changes the completion times of all jobs by many times what it changes of the GPU time that its own job holds."""


def draw_weights(count: int, generator: np.random.Generator) -> FloatArray:
    """Draw weights (count, terms) as sites may have them: the default ones, or a time and up to three others."""
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
    # Some sites write what they want more of, and leave the rest of the file as it was.
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


def told(observation: SingleArray, weights: FloatArray, inputs: PolicyInputs) -> SingleArray:
    """Return observations (rows, inputs) with the weights (terms,) or (rows, terms) of other sites in them."""
    other = observation.copy()
    other[:, inputs.weights] = features_of(weights)[..., inputs.terms]
    return other


class Hindsight:
    """A replay buffer of the latest ``capacity`` labels, each drawn with weights of its own.

    A reward is by term (rows, terms and one more), as ``gain_scale.scaled`` has it and weighed_critic learns it; NaN
    where it is not known. ``further`` are weights of terms beside our own (plug-ins'), whose sum is the last column:
    the policy is not told of them, and they count as much as they say whatever it is told (``gain_scale.size_of``).
    """

    def __init__(
        self, capacity: int, inputs: PolicyInputs, draw: Draw = draw_weights, further: Sequence[float] = ()
    ) -> None:
        self._inputs = inputs
        self._observation = np.zeros((capacity, len(inputs)), dtype=np.float32)
        self._shares = np.zeros((capacity, SHARES), dtype=np.float32)
        self._gain = np.zeros((capacity, len(TERM_NAMES) + len(further)), dtype=np.float32)
        self._draw = draw
        self._further = np.array(further, dtype=np.float64)
        self._added = 0

    def __len__(self) -> int:
        return min(self._added, len(self._gain))

    def add(self, observation: SingleArray, shares: SingleArray, gain: SingleArray) -> None:
        """Append labels: (rows, inputs), (rows, SHARES) and gains by term (rows, terms); the oldest give way."""
        rows = (self._added + np.arange(len(gain))) % len(self._gain)
        self._observation[rows], self._shares[rows], self._gain[rows] = observation, shares, gain
        self._added += len(gain)

    def sample(self, count: int, generator: np.random.Generator) -> Transitions:
        """Draw ``count`` labels, each equally likely, under weights of their own. Raises ValueError from none."""
        if not len(self):
            raise ValueError("there are no labels to draw from: add some first")
        rows = generator.integers(len(self), size=count)
        gain = self._gain[rows].astype(np.float64)
        ours, others = scaled(gain[:, : len(TERM_NAMES)]), cut(gain[:, len(TERM_NAMES) :]) @ self._further
        observation = told(self._observation[rows], self._draw(count, generator), self._inputs)
        reward = np.column_stack((ours, others)).astype(np.float32)
        return single_decisions(observation, self._shares[rows], reward)


def remembered(labels: Sequence[Labels], inputs: PolicyInputs, draw: Draw = draw_weights) -> Hindsight:
    """Return a buffer of all of ``labels``."""
    replay = Hindsight(sum(len(each.gain) for each in labels), inputs, draw)
    for each in labels:
        replay.add(each.observation, each.shares, each.gain)
    return replay
