"""Experts in the environment: what they would answer, and an actor that is a residual around any of them."""

from typing import Any

import gymnasium
import msgspec
import numpy as np

from rlalloc.heuristics import Heuristic
from rlalloc.heuristics.named import policy_named
from rlalloc_simulator.gym_environment import ClusterEnvironment
from rlalloc_trainer.sac.replay_buffer import FloatArray


class AroundExpert(gymnasium.ObservationWrapper[FloatArray, FloatArray, FloatArray]):
    """The cluster with another expert's shares where observations have the baseline heuristic's: at their end.

    The agent's actor is a residual around these, so an untrained one answers as this expert (up to MEAN_CLIP). Only
    for training and comparison: the daemon's observations are around the baseline heuristic.
    """

    def __init__(self, environment: gymnasium.Env[Any, Any], expert: str) -> None:
        """``environment`` is a ClusterEnvironment, or wraps one. Raises PolicyError if there is no such expert."""
        super().__init__(environment)
        self._cluster = cluster_of(environment)
        self._expert = policy_named(expert)

    def observation(self, observation: FloatArray) -> FloatArray:
        """Return the observation around the expert's shares, the same shape (features,)."""
        shares = expert_shares(self._cluster, self._expert)
        return np.concatenate((observation[: -len(shares)], shares))


def expert_shares(environment: ClusterEnvironment, expert: Heuristic) -> FloatArray:
    """What ``expert`` answers to the environment's present question, (actions,)."""
    return np.array(msgspec.structs.astuple(expert(*environment.asked)), dtype=np.float32)


def cluster_of(environment: gymnasium.Env[Any, Any]) -> ClusterEnvironment:
    """Return the cluster inside its wrappers. Raises TypeError if it is something else."""
    cluster = environment.unwrapped
    if not isinstance(cluster, ClusterEnvironment):
        raise TypeError(f"{cluster} has no jobs that an expert could answer for: take rlalloc/Cluster-v0")
    return cluster
