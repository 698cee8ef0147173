"""Soft actor-critic (Haarnoja et al., 2018) with twin critics and automatic temperature, in plain torch.

It reads like cleanrl's ``sac_continuous_action``: the critics learn the soft value of what was done, the actor learns
to do what the lower critic values, less what its certainty costs, and the temperature keeps the entropy at a target.
A decision of rlalloc ends its episode (``done = 1``), but nothing here depends on that.
"""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from rlalloc_agent.actor import Actor
from rlalloc_trainer.critic import TwinCritic
from rlalloc_trainer.replay import Replay, Transitions

_NETWORKS: Final = ("actor", "critics", "targets")
_OPTIMIZERS: Final = ("critic_optimizer", "actor_optimizer", "temperature_optimizer")


class SacSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The hyperparameters.

    gamma             discount of what follows a decision
    tau               part of the critics that the target networks take over at each step (polyak averaging)
    batch             transitions a step
    critic_rate       Adam's learning rate of the critics
    actor_rate        Adam's learning rate of the actor: lower, for it should follow critics that have settled
    temperature_rate  Adam's learning rate of the temperature
    weight_decay      of the critics (AdamW): small data sets are learned by heart otherwise
    actor_every       critic steps for one of actor and temperature (delayed updates, Fujimoto et al., 2018)
    actor_after       critic steps before the first of the actor, while the critics know nothing yet
    target_entropy    of the shares' density, in nats: that of four Gaussians of deviation 0.03 in [0, 1]
    temperature       what a nat of entropy is worth in reward, at the start
    anchor            what the actor pays, in reward, for leaving the heuristic (Actor.departure): it is to do so only
                      for a gain that the critics are sure of; 0 is plain SAC
    """

    gamma: float = 0.99
    tau: float = 0.01
    batch: int = 256
    critic_rate: float = 3e-4
    actor_rate: float = 3e-4
    temperature_rate: float = 1e-3
    weight_decay: float = 0.1
    actor_every: int = 2
    actor_after: int = 200
    target_entropy: float = -8.4
    temperature: float = 0.003
    anchor: float = 0.5


class Losses(msgspec.Struct, frozen=True):
    """What one step came to. The actor's figures are None where it was not its turn."""

    critic: float
    actor: float | None
    entropy: float | None
    temperature: float


class Sac:
    """Actor, critics, targets, temperature and their optimisers. The same seed and data give the same parameters."""

    def __init__(self, actor: Actor, settings: SacSettings, seed: int, critics: TwinCritic | None = None) -> None:
        self.settings = settings
        self.actor = actor.train()
        self.generator = torch.Generator().manual_seed(seed)
        self.critics = critics or new_critics(actor, seed)
        self.targets = deepcopy(self.critics).requires_grad_(requires_grad=False)
        self.log_temperature = torch.tensor(float(np.log(settings.temperature)), requires_grad=True)
        self.critic_optimizer = torch.optim.AdamW(
            self.critics.parameters(), lr=settings.critic_rate, weight_decay=settings.weight_decay
        )
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=settings.actor_rate)
        self.temperature_optimizer = torch.optim.Adam([self.log_temperature], lr=settings.temperature_rate)
        self.steps = 0

    @property
    def temperature(self) -> float:
        """What a nat of entropy is worth in reward."""
        return float(self.log_temperature.detach().exp())

    def update(self, batch: Transitions) -> Losses:
        """Take one gradient step on a batch."""
        observation, shares, reward, following, done = (
            torch.from_numpy(getattr(batch, name)) for name in Transitions.__struct_fields__
        )
        critic_loss = self._update_critics(observation, shares, reward, following, done)
        self.steps += 1
        actor_loss = entropy = None
        if self.steps > self.settings.actor_after and self.steps % self.settings.actor_every == 0:
            actor_loss, entropy = self._update_actor(observation)
        with torch.no_grad():
            for target, learned in zip(self.targets.parameters(), self.critics.parameters(), strict=True):
                target.lerp_(learned, self.settings.tau)
        return Losses(critic_loss, actor_loss, entropy, self.temperature)

    def _update_critics(
        self, observation: Tensor, shares: Tensor, reward: Tensor, following: Tensor, done: Tensor
    ) -> float:
        """Move both critics towards ``r + gamma·(1 - done)·(min Q'(s', a') - temperature·log π(a'|s'))``."""
        with torch.no_grad():
            target = reward
            if not bool(done.all()):
                next_shares, next_log_probability = self.actor.sample(following, self.generator)
                soft = self.targets.lower(following, next_shares) - self.temperature * next_log_probability
                target = reward + self.settings.gamma * (1.0 - done) * soft
        first, second = self.critics(observation, shares)
        loss = torch.nn.functional.mse_loss(first, target) + torch.nn.functional.mse_loss(second, target)
        self.critic_optimizer.zero_grad()
        torch.autograd.backward(loss)
        self.critic_optimizer.step()
        return float(loss.detach())

    def _update_actor(self, observation: Tensor) -> tuple[float, float]:
        """Move the actor up ``min Q(s, a) - temperature·log π(a|s)`` less the anchor, the entropy to its target."""
        shares, log_probability = self.actor.sample(observation, self.generator)
        self.critics.requires_grad_(requires_grad=False)  # their gradients would cost half the step
        soft = self.critics.lower(observation, shares) - self.temperature * log_probability
        loss = (self.settings.anchor * self.actor.departure(observation) - soft).mean()
        self.actor_optimizer.zero_grad()
        torch.autograd.backward(loss)
        self.actor_optimizer.step()
        self.critics.requires_grad_(requires_grad=True)
        excess = -log_probability.detach() - self.settings.target_entropy
        temperature_loss = (self.log_temperature.exp() * excess).mean()
        self.temperature_optimizer.zero_grad()
        torch.autograd.backward(temperature_loss)
        self.temperature_optimizer.step()
        return float(loss.detach()), float(-log_probability.detach().mean())

    def copy_of_critics(self) -> TwinCritic:
        """Return the critics as they are now, independent of further steps."""
        return deepcopy(self.critics)

    def save(self, path: Path) -> None:
        """Write all that a later ``load`` needs to go on exactly as if nothing had happened, as safetensors."""
        tensors = {"generator": self.generator.get_state(), "log_temperature": self.log_temperature.detach()}
        for name in _NETWORKS:
            tensors |= {f"{name}/{key}": value for key, value in getattr(self, name).state_dict().items()}
        for name in _OPTIMIZERS:
            for index, state in getattr(self, name).state_dict()["state"].items():
                tensors |= {f"{name}/{index}/{key}": value for key, value in state.items()}
        safetensors.torch.save_file(tensors, path, metadata={"steps": str(self.steps)})

    def load(self, path: Path) -> None:
        """Take up what ``save`` wrote, for the same settings and shapes."""
        with safetensors.safe_open(path, framework="pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a mapping
            self.steps = int(file.metadata()["steps"])
        self.generator.set_state(tensors["generator"])
        with torch.no_grad():
            self.log_temperature.copy_(tensors["log_temperature"])
        for name in _NETWORKS:
            getattr(self, name).load_state_dict(_under(tensors, name))
        for name in _OPTIMIZERS:
            optimizer = getattr(self, name)
            states: dict[int, dict[str, Tensor]] = {}
            for key, value in _under(tensors, name).items():
                index, _, field = key.partition("/")
                states.setdefault(int(index), {})[field] = value
            optimizer.load_state_dict(optimizer.state_dict() | {"state": states})


def new_critics(actor: Actor, seed: int) -> TwinCritic:
    """Return critics with fresh weights for ``actor``'s observations; the global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return TwinCritic(actor.features, actor.hidden)


def learn(
    sac: Sac,
    replay: Replay,
    steps: int,
    generator: np.random.Generator,
    each_step: Callable[[Losses], None] = lambda _: None,
) -> None:
    """Take ``steps`` gradient steps on batches drawn from ``replay``."""
    for _ in range(steps):
        each_step(sac.update(replay.sample(sac.settings.batch, generator)))


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {key.removeprefix(f"{prefix}/"): value for key, value in tensors.items() if key.startswith(f"{prefix}/")}
