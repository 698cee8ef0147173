"""The replay buffer: transitions in numpy arrays, sampled uniformly."""

from collections.abc import Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]


class Transitions(msgspec.Struct, frozen=True):
    """Some transitions, row by row.

    ``observation`` (rows, features) · ``shares`` (rows, actions), those in effect · ``reward`` (rows,), of one step
    or of several, discounted · ``next_observation`` (rows, features), the one after these steps · ``discount``
    (rows,), what its value counts: gamma to the power of the steps, 0 where nothing follows.
    """

    observation: FloatArray
    shares: FloatArray
    reward: FloatArray
    next_observation: FloatArray
    discount: FloatArray

    def __len__(self) -> int:
        return len(self.reward)


def single_decisions(observation: FloatArray, shares: FloatArray, reward: FloatArray) -> Transitions:
    """Make transitions of decisions that stand alone: each ends its episode (a contextual bandit)."""
    return Transitions(
        observation=observation,
        shares=shares,
        reward=reward,
        next_observation=observation,
        discount=np.zeros(len(reward), dtype=np.float32),
    )


class Replay:
    """The latest ``capacity`` transitions. Memory is taken once, at the start."""

    def __init__(self, capacity: int, features: int, actions: int) -> None:
        self._arrays = Transitions(
            observation=np.zeros((capacity, features), dtype=np.float32),
            shares=np.zeros((capacity, actions), dtype=np.float32),
            reward=np.zeros(capacity, dtype=np.float32),
            next_observation=np.zeros((capacity, features), dtype=np.float32),
            discount=np.zeros(capacity, dtype=np.float32),
        )
        self._capacity = capacity
        self._added = 0

    def __len__(self) -> int:
        return min(self._added, self._capacity)

    def add(self, transitions: Transitions) -> None:
        """Append transitions; the oldest give way."""
        rows = (self._added + np.arange(len(transitions))) % self._capacity
        for name in Transitions.__struct_fields__:
            getattr(self._arrays, name)[rows] = getattr(transitions, name)
        self._added += len(transitions)

    def sample(self, count: int, generator: np.random.Generator) -> Transitions:
        """Draw ``count`` transitions, each equally likely, with replacement. Raises ValueError from an empty one."""
        if not len(self):
            raise ValueError("the replay buffer is empty: add transitions first")
        rows = generator.integers(len(self), size=count)
        return Transitions(*(getattr(self._arrays, name)[rows] for name in Transitions.__struct_fields__))

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return what ``restore`` needs, by name: the rows in use and how many were ever added."""
        rows = {name: getattr(self._arrays, name)[: len(self)] for name in Transitions.__struct_fields__}
        return {**rows, "added": np.array(self._added)}

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Take up what ``state`` gave. Raises ValueError if it does not fit this buffer's shape."""
        self._added = int(state["added"])
        for name in Transitions.__struct_fields__:
            getattr(self._arrays, name)[: len(self)] = state[name]
