"""Demonstrations: experts' decisions in the environment and their outcomes, written to a file and read from it.

A file is safetensors (nothing in it can run code): the arrays of ``Transitions`` under their names, and who
demonstrated what as metadata. What was recorded with other features or heuristics is refused.
"""

from pathlib import Path
from typing import Any, Final

import gymnasium
import msgspec
import numpy as np
import safetensors
import safetensors.numpy

from rlalloc.errors import PolicyError
from rlalloc.heuristics.named import policy_named
from rlalloc.policy.policy_inputs import DEFAULT_INPUTS
from rlalloc.progress import ProgressCallback, silent
from rlalloc_trainer.imitation.expert_actor import cluster_of, expert_shares
from rlalloc_trainer.sac.n_step import NStepReturns
from rlalloc_trainer.sac.replay_buffer import Transitions, joined

FIRST_WORKLOAD: Final = 2_000_000
"""The first number of demonstrated workloads, apart from those of training, validation and test."""


class Recorded(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where demonstrations come from.

    experts     by name; they take turns, a workload each
    workloads     how many, numbered from ``first``
    inputs      what the observations are made of
    gamma       discount of a step
    look_ahead  n of the n-step returns
    """

    experts: tuple[str, ...]
    workloads: int
    first: int = FIRST_WORKLOAD
    inputs: tuple[str, ...] = DEFAULT_INPUTS
    gamma: float = 0.99
    look_ahead: int = 1


class Demonstrations(msgspec.Struct, frozen=True):
    """Transitions, the experts' shares in ``shares``, and where they come from."""

    recorded: Recorded
    transitions: Transitions


def record(
    environment: gymnasium.Env[Any, Any], recorded: Recorded, report: ProgressCallback = silent
) -> Demonstrations:
    """Let experts decide workloads of a ClusterEnvironment, also a wrapped one. Deterministic.

    Raises PolicyError for an unknown expert, ValueError without experts or workloads.
    """
    if recorded.workloads < 1 or not recorded.experts:
        raise ValueError(f"{recorded}: name at least one expert and one workload")
    experts = [policy_named(name) for name in recorded.experts]
    cluster = cluster_of(environment)
    returns = NStepReturns(recorded.look_ahead, recorded.gamma)
    parts = []
    for index in range(recorded.workloads):
        observation, _ = environment.reset(options={"workload": recorded.first + index})
        ended = False
        while not ended:
            shares = expert_shares(cluster, experts[index % len(experts)])
            following, reward, terminated, truncated, _ = environment.step(shares)
            parts.append(
                returns.add(observation, shares, float(reward), following, terminated=terminated, truncated=truncated)
            )
            observation, ended = following, terminated or truncated
        report("recording demonstrations", (index + 1) / recorded.workloads)
    return Demonstrations(recorded, joined(parts))


def write_demonstrations(demonstrations: Demonstrations, path: Path) -> None:
    """Write demonstrations to ``path``."""
    arrays = {
        name: np.ascontiguousarray(getattr(demonstrations.transitions, name))
        for name in Transitions.__struct_fields__
    }
    metadata = {"recorded": msgspec.json.encode(demonstrations.recorded).decode()}
    safetensors.numpy.save_file(arrays, path, metadata=metadata)


def read_demonstrations(path: Path) -> Demonstrations:
    """Return what ``write_demonstrations`` wrote. Raises PolicyError if it is damaged or of other inputs."""
    try:
        with safetensors.safe_open(path, framework="np") as file:
            recorded = msgspec.json.decode(file.metadata()["recorded"], type=Recorded)
            transitions = Transitions(*(file.get_tensor(name) for name in Transitions.__struct_fields__))
    except (OSError, safetensors.SafetensorError, msgspec.MsgspecError, KeyError, TypeError) as err:
        raise PolicyError(
            f"{path} holds no demonstrations ({err}): record it with rlalloc train demonstrate"
        ) from err
    if recorded.inputs != DEFAULT_INPUTS:
        raise PolicyError(
            f"{path} holds observations of other features or heuristics than this rlalloc has: record it again with "
            "rlalloc train demonstrate"
        )
    return Demonstrations(recorded, transitions)
