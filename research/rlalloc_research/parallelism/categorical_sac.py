"""Soft actor-critic for discrete actions (Christodoulou 2019), in plain torch.

As rlalloc_trainer.sac.soft_actor_critic, but the actor gives each choice a probability and the critics give each a
value, so that both expectations over the actor, in the target and in its own loss, are sums: no choice has to be
drawn.
"""

import math
from typing import NamedTuple

import msgspec
import torch
from torch import Tensor, nn

from rlalloc_agent.tanh_gaussian import layers
from rlalloc_trainer.sac.critics import EnsemblePerceptron, lower_bound
from rlalloc_trainer.sac.replay_buffer import Transitions


class CategoricalSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The hyperparameters; rates and the target entropy go to their last value on straight lines.

    hidden             widths of the layers of actor and critics
    batch              transitions a step
    rate               Adam's learning rate of actor and critics at first; at the end it is 0
    temperature_rate   Adam's learning rate of the temperature
    temperature        reward for a nat of entropy, at the start
    first_entropy      of the choices, in nats, that the temperature aims at: at first
    last_entropy       and at the end
    tau                part of the critics that the target networks take over at each step
    """

    hidden: tuple[int, ...] = (64, 64)
    batch: int = 512
    rate: float = 3e-3
    temperature_rate: float = 1e-3
    temperature: float = 0.02
    first_entropy: float = 1.0
    last_entropy: float = 0.1
    tau: float = 0.01


class Losses(NamedTuple):
    """The result of one step: the critics' squared error, summed over both, and the actor's entropy in nats."""

    critic: float
    entropy: float


class CategoricalSac:
    """Actor, twin critics, targets and temperature, for ``steps`` updates. Seeded, and the same each time."""

    def __init__(self, features: int, choices: int, settings: CategoricalSettings, steps: int, seed: int) -> None:
        self.settings = settings
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.actor = nn.Sequential(
                *layers(features, settings.hidden), nn.Linear(settings.hidden[-1], choices), nn.LogSoftmax(dim=-1)
            )
            self.critics = EnsemblePerceptron(2, features, settings.hidden, choices)
            self.targets = EnsemblePerceptron(2, features, settings.hidden, choices).requires_grad_(
                requires_grad=False
            )
        self.targets.load_state_dict(self.critics.state_dict())
        self._log_temperature = torch.tensor(math.log(settings.temperature), requires_grad=True)
        self._optimizer = torch.optim.Adam(
            [
                {"params": [*self.actor.parameters(), *self.critics.parameters()], "lr": settings.rate},
                {"params": [self._log_temperature], "lr": settings.temperature_rate},
            ],
            fused=True,
        )
        self._steps, self._taken = steps, 0

    @property
    def temperature(self) -> float:
        """Reward for a nat of entropy."""
        return math.exp(self._log_temperature.item())

    def update(self, batch: Transitions) -> Losses:
        """Take one gradient step on a batch whose ``shares`` (rows, 1) are the numbers of what was chosen."""
        observation, chosen, reward, following, discount = (
            torch.from_numpy(getattr(batch, name)) for name in Transitions.__struct_fields__
        )
        settings, temperature, left = self.settings, self.temperature, 1.0 - self._taken / self._steps
        self._optimizer.param_groups[0]["lr"] = settings.rate * left
        wanted = settings.last_entropy + (settings.first_entropy - settings.last_entropy) * left

        with torch.no_grad():
            log_probability = self.actor(following)
            soft = lower_bound(self.targets(following), 1.0) - temperature * log_probability
            target = reward + discount * (log_probability.exp() * soft).sum(dim=-1)
        values = self.critics(observation)
        taken = values.gather(2, chosen.long().expand(2, -1, -1)).squeeze(-1)
        critic_loss = ((taken - target) ** 2).mean(dim=-1).sum()

        log_probability = self.actor(observation)
        probability = log_probability.exp()
        worth = lower_bound(values.detach(), 1.0)
        actor_loss = (probability * (temperature * log_probability - worth)).sum(dim=-1).mean()
        entropy = -(probability * log_probability).detach().sum(dim=-1).mean()
        temperature_loss = self._log_temperature * (entropy - wanted)

        self._optimizer.zero_grad()
        torch.autograd.backward(critic_loss + actor_loss + temperature_loss)  # the three share no parameter
        self._optimizer.step()
        with torch.no_grad():
            for target_part, learned in zip(self.targets.parameters(), self.critics.parameters(), strict=True):
                target_part.lerp_(learned, settings.tau)
        self._taken += 1
        return Losses(critic_loss.item(), entropy.item())

    def probabilities(self, observations: Tensor) -> Tensor:
        """Return the actor's probabilities (rows, choices)."""
        with torch.inference_mode():
            probabilities: Tensor = self.actor(observations).exp()
        return probabilities
