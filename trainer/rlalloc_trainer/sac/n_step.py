"""n-step returns: from the steps of an episode to transitions that look n steps ahead (Sutton, 1988).

A transition's reward is the n rewards from its step on, each later one discounted by gamma once more; its
``discount`` is gamma to the power of n. Steps near the end of an episode have fewer ahead: they look to it. Where
the episode *terminated*, nothing follows (discount 0); where it was only *truncated*, the value of the observation
that was reached still counts.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from rlalloc_trainer.sac.replay_buffer import FloatArray, Transitions


class NStepReturns:
    """Collects the steps of one environment until their return is known. ``steps`` is n, at least 1."""

    def __init__(self, steps: int, gamma: float) -> None:
        if steps < 1:
            raise ValueError(f"{steps} steps ahead: take 1 or more")
        self._steps = steps
        self._gamma = gamma
        self._observations: list[FloatArray] = []
        self._shares: list[FloatArray] = []
        self._rewards: list[float] = []

    def add(
        self,
        observation: FloatArray,
        shares: FloatArray,
        reward: float,
        next_observation: FloatArray,
        *,
        terminated: bool,
        truncated: bool,
    ) -> Transitions:
        """Take one step; return the transitions that it completes: none at first, several where an episode ends.

        ``observation`` and ``next_observation`` (features,), the last one of an episode too; ``shares`` (actions,).
        """
        self._observations.append(observation)
        self._shares.append(shares)
        self._rewards.append(reward)
        ended = terminated or truncated
        ready = len(self._rewards) if ended else max(0, len(self._rewards) - self._steps + 1)
        returns = self._returns(ready)
        ahead = np.minimum(self._steps, len(self._rewards) - np.arange(ready))
        completed = Transitions(
            observation=_rows(self._observations[:ready], len(observation)),
            shares=_rows(self._shares[:ready], len(shares)),
            reward=returns,
            next_observation=_rows([next_observation] * ready, len(observation)),
            discount=np.where(terminated, 0.0, self._gamma**ahead).astype(np.float32),
        )
        del self._observations[:ready], self._shares[:ready], self._rewards[:ready]
        return completed

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return the steps whose return is not known yet, for ``restore``."""
        return {
            "observation": np.array(self._observations, dtype=np.float32),
            "shares": np.array(self._shares, dtype=np.float32),
            "reward": np.array(self._rewards, dtype=np.float64),
        }

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Restore what ``state`` returned."""
        self._observations = list(state["observation"].astype(np.float32))
        self._shares = list(state["shares"].astype(np.float32))
        self._rewards = state["reward"].astype(np.float64).tolist()

    def _returns(self, ready: int) -> FloatArray:
        """The discounted rewards ahead of the first ``ready`` steps, at most n of them each."""
        return np.array(
            [
                sum(reward * self._gamma**later for later, reward in enumerate(self._rewards[start:][: self._steps]))
                for start in range(ready)
            ],
            dtype=np.float32,
        )


def _rows(rows: list[FloatArray], width: int) -> FloatArray:
    return np.array(rows, dtype=np.float32).reshape(-1, width)
