"""What experts would answer in the environment."""

from typing import Any

import gymnasium
import msgspec
import numpy as np

from rlalloc.heuristics import Heuristic
from rlalloc_simulator.gym_environment import ClusterEnvironment
from rlalloc_trainer.sac.replay_buffer import FloatArray


def expert_shares(environment: ClusterEnvironment, expert: Heuristic) -> FloatArray:
    """What ``expert`` answers to the environment's present question, (actions,)."""
    return np.array(msgspec.structs.astuple(expert(*environment.asked)), dtype=np.float32)


def cluster_of(environment: gymnasium.Env[Any, Any]) -> ClusterEnvironment:
    """Return the cluster inside its wrappers. Raises TypeError if it is something else."""
    cluster = environment.unwrapped
    if not isinstance(cluster, ClusterEnvironment):
        raise TypeError(f"{cluster} has no jobs that an expert could answer for: take rlalloc/Cluster-v0")
    return cluster
