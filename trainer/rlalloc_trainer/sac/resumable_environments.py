"""Environments that can be stopped in the middle of an episode and resumed exactly."""

import json
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rlalloc_trainer.sac.replay_buffer import FloatArray


class Episodes:
    """One gymnasium environment, episode after episode, its actions being shares in [0, 1].

    A running episode is saved as the state of the environment's generator at its start and the actions since, and is
    restored by replaying them. So the environment needs no way to be saved, but all its randomness has to come from
    gymnasium's ``np_random``.
    """

    def __init__(self, environment: gymnasium.Env[Any, Any], seed: int) -> None:
        """Raise TypeError if the environment's actions are no bounded Box of one dimension."""
        space = environment.action_space
        if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1 or not space.is_bounded():
            raise TypeError(f"the actions are {space}: SAC needs a bounded Box of one dimension")
        if not isinstance(environment.observation_space, gymnasium.spaces.Box):
            raise TypeError(f"the observations are {environment.observation_space}: SAC needs a Box")
        self.features = int(np.prod(environment.observation_space.shape))
        self.actions = int(space.shape[0])
        self._environment = gymnasium.wrappers.RescaleAction(environment, np.float32(0.0), np.float32(1.0))
        self._environment.unwrapped.np_random = np.random.default_rng(seed)
        self._generator_before: Mapping[str, Any] = {}
        self._taken: list[FloatArray] = []
        self.begin()

    def begin(self) -> None:
        """Begin the next episode; ``observation`` is its first."""
        self._generator_before = self._generator().state
        self._taken = []
        self.observation = self._seen(self._environment.reset()[0])

    def step(self, shares: FloatArray) -> tuple[FloatArray, float, bool, bool]:
        """Take shares (actions,) and return the next observation, the reward, and whether it terminated or truncated.

        At an episode's end ``begin`` has to come next.
        """
        seen, reward, terminated, truncated, _ = self._environment.step(shares)
        self._taken.append(shares)
        self.observation = self._seen(seen)
        return self.observation, float(reward), bool(terminated), bool(truncated)

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return what ``restore`` needs."""
        return {
            "generator": as_bytes(self._generator_before),
            "taken": np.array(self._taken, dtype=np.float32).reshape(-1, self.actions),
        }

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Restore the running episode that ``state`` returned."""
        self._generator().state = from_bytes(state["generator"])
        self.begin()
        for shares in state["taken"].astype(np.float32):
            self.step(shares)

    def _generator(self) -> np.random.BitGenerator:
        return self._environment.unwrapped.np_random.bit_generator

    def _seen(self, observation: Any) -> FloatArray:
        return np.asarray(observation, dtype=np.float32).reshape(-1)


def as_bytes(generator_state: Mapping[str, Any]) -> NDArray[np.uint8]:
    """Return the state of a PCG64 of numpy, with its integers of 128 bits, as an array that files can hold."""
    return np.frombuffer(json.dumps(generator_state).encode(), dtype=np.uint8)


def from_bytes(content: NDArray[np.generic]) -> dict[str, Any]:
    """Return the generator's state that ``as_bytes`` gave."""
    state: dict[str, Any] = json.loads(content.tobytes())
    return state
