"""The replay buffer: transitions in numpy arrays, sampled uniformly."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]
Rows = NDArray[np.int64]
State = Mapping[str, NDArray[np.generic]]
"""What a buffer holds, as named arrays, for safetensors or npz to keep."""


class Transitions(msgspec.Struct, frozen=True):
    """Some transitions, row by row.

    ``observation`` (rows, features) · ``shares`` (rows, actions), those in effect · ``reward`` (rows,), of one step
    or of several, discounted · ``next_observation`` (rows, features), the one after these steps · ``discount``
    (rows,), the weight of its value: gamma to the power of the steps, 0 where nothing follows.
    """

    observation: FloatArray
    shares: FloatArray
    reward: FloatArray
    next_observation: FloatArray
    discount: FloatArray

    def __len__(self) -> int:
        return len(self.reward)


def single_decisions(observation: FloatArray, shares: FloatArray, reward: FloatArray) -> Transitions:
    """Make transitions of single decisions: each ends its episode (a contextual bandit)."""
    return Transitions(
        observation=observation,
        shares=shares,
        reward=reward,
        next_observation=observation,
        discount=np.zeros(len(reward), dtype=np.float32),
    )


class Buffer(Protocol):
    """A source of batches to learn from."""

    def sample(self, count: int, generator: np.random.Generator) -> Transitions:
        """Draw ``count`` transitions."""
        ...


def joined(parts: Sequence[Transitions]) -> Transitions:
    """Return the rows of all ``parts``, of which there is at least one, in their order."""
    return Transitions(
        *(np.concatenate([getattr(part, name) for part in parts]) for name in Transitions.__struct_fields__)
    )


class Replay:
    """The latest ``capacity`` transitions. Memory is taken once, at the start.

    From row ``capacity`` on lie those ``kept`` for good: ``take`` reads them; they are neither counted nor sampled.
    """

    def __init__(self, capacity: int, features: int, actions: int, kept: Transitions | None = None) -> None:
        rows = capacity + (len(kept) if kept else 0)
        self._arrays = Transitions(
            observation=np.zeros((rows, features), dtype=np.float32),
            shares=np.zeros((rows, actions), dtype=np.float32),
            reward=np.zeros(rows, dtype=np.float32),
            next_observation=np.zeros((rows, features), dtype=np.float32),
            discount=np.zeros(rows, dtype=np.float32),
        )
        if kept:
            for name in Transitions.__struct_fields__:
                getattr(self._arrays, name)[capacity:] = getattr(kept, name)
        self._capacity = capacity
        self._added = 0

    def __len__(self) -> int:
        return min(self._added, self._capacity)

    def add(self, transitions: Transitions) -> Rows:
        """Append transitions, at most ``capacity``; the oldest give way. Returns the rows (count,) that they took."""
        rows = (self._added + np.arange(len(transitions))) % self._capacity
        for name in Transitions.__struct_fields__:
            getattr(self._arrays, name)[rows] = getattr(transitions, name)
        self._added += len(transitions)
        return rows

    def take(self, rows: Rows) -> Transitions:
        """Return the transitions of ``rows`` (count,), in that order; copies."""
        arrays = (getattr(self._arrays, name) for name in Transitions.__struct_fields__)
        return Transitions(*(array.take(rows, axis=0) for array in arrays))

    def sample(self, count: int, generator: np.random.Generator) -> Transitions:
        """Draw ``count`` transitions, each equally likely, with replacement. Raises ValueError from an empty one."""
        if not len(self):
            raise ValueError("the replay buffer is empty: add transitions first")
        return self.take(generator.integers(len(self), size=count))

    @property
    def nbytes(self) -> int:
        """Memory that is held, in bytes."""
        return sum(getattr(self._arrays, name).nbytes for name in Transitions.__struct_fields__)

    def state(self) -> State:
        """Return what ``restore`` needs, by name: the latest rows and how many were ever added, not those kept."""
        rows = {name: getattr(self._arrays, name)[: len(self)] for name in Transitions.__struct_fields__}
        return {**rows, "added": np.array(self._added)}

    def restore(self, state: State) -> None:
        """Restore what ``state`` returned, with the same kept rows. Raises ValueError for another shape."""
        self._added = int(state["added"])
        for name in Transitions.__struct_fields__:
            getattr(self._arrays, name)[: len(self)] = state[name]
