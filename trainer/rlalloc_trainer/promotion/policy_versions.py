"""What a policy version consists of: the actor that the agent serves, and the critics from which training goes on."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from rlalloc.errors import PolicyError
from rlalloc.observation import FEATURES
from rlalloc.policy.policies import ACTOR_FILE, EVERYWHERE, Manifest, Routing
from rlalloc.system.shared_files import read_regular_file
from rlalloc_agent.actor import Actor, actor_bytes, load_actor
from rlalloc_agent.served_policy import shipped_folder
from rlalloc_trainer.evaluation.learned_policy import LearnedPolicy
from rlalloc_trainer.sac.conditioned_critics import COLUMNS, WeightConditionedCritics
from rlalloc_trainer.sac.critics import Critics

CRITICS_FILE: Final = "critics.safetensors"


class Learned(msgspec.Struct, frozen=True):
    """An actor, its weight-conditioned critics if there are any, the version's name, and the routing."""

    actor: Actor
    critics: WeightConditionedCritics | None
    version: str
    routing: Routing = EVERYWHERE

    @property
    def policy(self) -> LearnedPolicy:
        """The policy as it is served, to be compared."""
        return LearnedPolicy.of(self.actor, self.routing)

    def with_all_features(self) -> "Learned":
        """Return the same policy, whose networks read today's features, too: those that are new count nothing yet."""
        missing = tuple(name for name in FEATURES if name not in self.actor.inputs.names)
        if not missing:
            return self
        actor, critics = Actor((*missing, *self.actor.inputs.names), self.actor.hidden), None
        actor.load_state_dict(_widened(self.actor.state_dict(), actor.state_dict()))
        if self.critics is not None:
            critics = WeightConditionedCritics(actor.inputs, actor.actions, actor.hidden, self.critics.members)
            critics.load_state_dict(_widened(self.critics.state_dict(), critics.state_dict()))
        return msgspec.structs.replace(self, actor=actor.eval(), critics=critics)


def version_files(actor: Actor, critics: Critics) -> dict[str, bytes]:
    """Return the files of a version by name."""
    return {ACTOR_FILE: actor_bytes(actor), CRITICS_FILE: safetensors.torch.save(critics.state_dict())}


def new_manifest(
    actor: Actor,
    parent: str | None,
    training: Mapping[str, object],
    evaluation: Mapping[str, object],
    routing: Routing = EVERYWHERE,
) -> Manifest:
    """Return the manifest of a version that has no name and no files yet."""
    return Manifest(
        version="",
        parent=parent,
        created_s=time.time(),
        inputs=actor.inputs.names,
        hidden=actor.hidden,
        files={},
        training=dict(training),
        evaluation=dict(evaluation),
        routing=routing,
    )


def load_version(folder: Path) -> Learned:
    """Return what a version's folder holds, after its files were verified. Raises PolicyError."""
    actor, manifest = load_actor(folder)
    if CRITICS_FILE not in manifest.files:
        return Learned(actor, None, manifest.version, manifest.routing)
    try:
        tensors = safetensors.torch.load(read_regular_file(folder / CRITICS_FILE))
        if _of_an_earlier_form(tensors):
            return Learned(actor, None, manifest.version, manifest.routing)
        members = max(len(tensor) for tensor in tensors.values())  # each has the members in front
        critics = WeightConditionedCritics(actor.inputs, actor.actions, actor.hidden, members)
        critics.load_state_dict(tensors)
    except (safetensors.SafetensorError, RuntimeError, ValueError, TypeError) as err:
        reason = str(err).splitlines()[0]
        raise PolicyError(f"{folder / CRITICS_FILE} does not fit its actor: {reason}") from err
    return Learned(actor, critics, manifest.version, manifest.routing)


def _widened(small: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the parameters of a network in the shapes of one that reads more: zeros for inputs in front."""
    found = {}
    for name, tensor in small.items():
        wide = torch.zeros_like(like[name])
        wide[tuple(slice(one - other, None) for one, other in zip(wide.shape, tensor.shape, strict=True))] = tensor
        found[name] = wide
    return found


def _of_an_earlier_form(tensors: Mapping[str, Tensor]) -> bool:
    """Whether critics are those of an earlier rlalloc: they had a value of the situation too, or had other terms."""
    return any(name.startswith("value.") for name in tensors) or all(
        tensor.shape[-1] != COLUMNS for tensor in tensors.values()
    )


def load_shipped_version() -> Learned:
    """Return the version that ships with the agent. Raises PolicyError if the installation is damaged."""
    with shipped_folder() as folder:
        return load_version(folder)
