"""Soft actor-critic (Haarnoja et al., 2018) with an ensemble of critics and automatic temperature, in plain torch.

It reads like cleanrl's ``sac_continuous_action``: the critics learn the soft value of actions, the actor learns to
maximise the lower bound of the critics' values plus its entropy, and the temperature keeps the entropy at a target.
The transitions say how much the future counts (rlalloc_trainer.sac.n_step); a decision of rlalloc ends its episode,
but nothing here depends on that. docs/explanation/learning.md says where each part
comes from, docs/results/sac.md how it was checked.
"""

import math
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec
import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from rlalloc_agent.tanh_gaussian import TanhGaussian, draw, squash
from rlalloc_trainer.sac.critics import Critics, PlainCritics, lower_bound
from rlalloc_trainer.sac.replay_buffer import Buffer, FloatArray, Transitions

ActorKind = TypeVar("ActorKind", bound=TanhGaussian)
_NETWORKS: Final = ("actor", "critics", "targets")
_OPTIMIZERS: Final = ("critic_optimizer", "actor_optimizer")


class SacSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The hyperparameters, as rlalloc uses them; ``plain_settings`` has those of the paper.

    tau               part of the critics that the target networks take over at each step (Polyak averaging)
    batch             transitions a step
    critic_rate       Adam's learning rate of the critics
    actor_rate        Adam's learning rate of the actor: lower, so that it follows critics that have settled
    temperature_rate  Adam's learning rate of the temperature
    weight_decay      of the critics (AdamW), against overfitting on small data sets
    critics           networks in the ensemble (2: twin critics, Fujimoto et al., 2018)
    deviations        standard deviations below the ensemble's mean, for critics.lower_bound (An et al., 2021); with
                      two critics, 1 is the lower of both
    actor_every       critic steps for each step of actor and temperature (delayed updates, Fujimoto et al., 2018)
    actor_after       critic steps, those of pretraining included, before the actor's first: an actor that knows
                      something would forget it by following critics that know nothing yet
    target_entropy    of the shares' density, in nats: that of four Gaussians of deviation 0.004 in [0, 1]. With more
                      variance the actor keeps its mean away from cliffs, and workloads are judged by the mean
    temperature       reward for a nat of entropy, at the start
    anchor            reward that the actor pays for leaving the heuristic (Actor.departure), so that it leaves only
                      for an advantage that the critics are sure of; 0 is plain SAC
    """

    tau: float = 0.01
    batch: int = 256
    critic_rate: float = 1e-3
    actor_rate: float = 3e-4
    temperature_rate: float = 1e-3
    weight_decay: float = 0.1
    critics: int = 5
    deviations: float = 1.0
    actor_every: int = 2
    actor_after: int = 200
    target_entropy: float = -16.0
    temperature: float = 0.0005
    anchor: float = 0.02


def plain_settings(actions: int) -> SacSettings:
    """Return SAC's settings of Haarnoja et al. (2018b, table 1) for that many actions; stable-baselines3's too.

    Their target of minus one nat for each action holds for actions in [-1, 1], whose density is half of ours.
    """
    return SacSettings(
        tau=0.005,
        critic_rate=3e-4,
        temperature_rate=3e-4,
        weight_decay=0.0,
        critics=2,
        actor_every=1,
        actor_after=0,
        target_entropy=-actions * (1.0 + math.log(2.0)),
        temperature=1.0,
        anchor=0.0,
    )


class Losses(msgspec.Struct, frozen=True):
    """The result of one step. The actor's figures are None in steps without an update of the actor.

    ``critic`` is the squared error, summed over the critics. ``errors`` (rows,) are the absolute temporal
    difference errors, averaged over the critics: priorities for a prioritised replay.
    """

    critic: float
    actor: float | None
    entropy: float | None
    temperature: float
    errors: FloatArray


class Sac(Generic[ActorKind]):
    """Actor, critics, targets, temperature and their optimisers. The same seed and data give the same parameters."""

    def __init__(self, actor: ActorKind, settings: SacSettings, seed: int, critics: Critics | None = None) -> None:
        self.settings = settings
        self.actor = actor.train()
        self.generator = torch.Generator().manual_seed(seed)
        self.critics = critics or new_critics(actor, settings.critics, seed)
        self.targets = deepcopy(self.critics).requires_grad_(requires_grad=False)
        self.log_temperature = torch.tensor(math.log(settings.temperature), requires_grad=True)
        self.critic_optimizer = torch.optim.AdamW(
            self.critics.parameters(), lr=settings.critic_rate, weight_decay=settings.weight_decay, fused=True
        )
        self.actor_optimizer = torch.optim.Adam(
            [
                {"params": list(self.actor.parameters()), "lr": settings.actor_rate},
                {"params": [self.log_temperature], "lr": settings.temperature_rate},
            ],
            fused=True,
        )
        self.steps = 0

    @property
    def temperature(self) -> float:
        """Reward for a nat of entropy."""
        return math.exp(self.log_temperature.item())

    def update(
        self, batch: Transitions, weights: FloatArray | None = None, cloning: FloatArray | None = None
    ) -> Losses:
        """Take one gradient step on a batch, its rows weighted by ``weights`` (rows,), if given.

        ``cloning`` (rows,) is what the actor pays for leaving a row's shares: 0 where they were not demonstrated.
        """
        observation, shares, reward, following, discount = (
            torch.from_numpy(getattr(batch, name)) for name in Transitions.__struct_fields__
        )
        row_weights = None if weights is None else torch.from_numpy(weights)
        temperature = self.temperature
        target = self._target(reward, following, discount, temperature)
        critic_loss, errors = self._update_critics(observation, shares, target, row_weights)
        self.steps += 1
        actor_loss = entropy = None
        if self.steps > self.settings.actor_after and self.steps % self.settings.actor_every == 0:
            pays = None if cloning is None else torch.from_numpy(cloning)
            actor_loss, entropy = self._update_actor(observation, temperature, shares, pays)
        with torch.no_grad():
            for target_part, learned in zip(self.targets.parameters(), self.critics.parameters(), strict=True):
                target_part.lerp_(learned, self.settings.tau)
        return Losses(critic_loss, actor_loss, entropy, self.temperature, errors)

    @torch.no_grad()
    def _target(self, reward: Tensor, following: Tensor, discount: Tensor, temperature: float) -> Tensor:
        """``r + discount·(lower Q'(s', a') - temperature·log π(a'|s'))``, a' drawn from the actor, (rows,).

        π is the density over actions in [-1, 1], as in the paper: over shares in [0, 1] entropy would always be
        negative, and values would drop by ``temperature·log 2`` for each action and each step ahead.
        """
        if not bool(discount.any()):
            return reward
        shares, log_probability = self.actor.sample(following, self.generator)
        lower = lower_bound(self.targets(following, shares), self.settings.deviations)
        entropy = self.actor.actions * math.log(2.0) - log_probability
        return reward + discount * (lower + temperature * entropy)

    def _update_critics(
        self, observation: Tensor, shares: Tensor, target: Tensor, weights: Tensor | None
    ) -> tuple[float, FloatArray]:
        """Move each critic towards the target; return the loss and each row's error."""
        squares = self.critics.squared_errors(observation, shares, target)
        loss = (squares if weights is None else weights * squares).mean(dim=-1).sum()
        self.critic_optimizer.zero_grad()
        torch.autograd.backward(loss)
        self.critic_optimizer.step()
        return loss.item(), squares.detach().sqrt().mean(dim=0).numpy()

    def _update_actor(
        self, observation: Tensor, temperature: float, demonstrated: Tensor, cloning: Tensor | None
    ) -> tuple[float, float]:
        """Move the actor up ``lower Q(s, a) - temperature·log π(a|s)`` less the anchor, the entropy to its target."""
        mean, std = self.actor(observation)
        shares, log_probability = draw(mean, std, self.generator)
        lower = lower_bound(self.critics(observation, shares), self.settings.deviations)
        loss = (temperature * log_probability - lower).mean()
        if self.settings.anchor:
            loss = loss + self.settings.anchor * self.actor.departure(observation, mean).mean()
        if cloning is not None:
            loss = loss + self._left_demonstrations(observation, squash(mean), demonstrated, cloning)
        entropy = -log_probability.detach().mean()
        temperature_loss = self.log_temperature * (entropy - self.settings.target_entropy)
        self.actor_optimizer.zero_grad()
        learned = [*self.actor.parameters(), self.log_temperature]
        torch.autograd.backward(loss + temperature_loss, inputs=learned)  # the critics' gradients would cost as much
        self.actor_optimizer.step()
        return loss.item(), entropy.item()

    def _left_demonstrations(
        self, observation: Tensor, shares: Tensor, demonstrated: Tensor, cloning: Tensor
    ) -> Tensor:
        """Return what the actor pays for mean ``shares`` (rows, actions) other than the demonstrated ones.

        The squared distance, where the critics value the demonstrated ones higher: the Q-filter of Nair et al.
        (2018). The mean is over all demonstrated rows, so the filter lowers it.
        """
        with torch.no_grad():
            values = lower_bound(self.critics(observation, shares), self.settings.deviations)
            demonstrated_values = lower_bound(self.critics(observation, demonstrated), self.settings.deviations)
            pays = cloning * (demonstrated_values > values) / (cloning > 0.0).sum()
        return (pays * ((shares - demonstrated) ** 2).sum(dim=-1)).sum()

    def save(self, path: Path) -> None:
        """Write all that ``load`` needs to go on bit by bit, as safetensors."""
        tensors = {"generator": self.generator.get_state(), "log_temperature": self.log_temperature.detach()}
        for name in _NETWORKS:
            tensors |= {f"{name}/{key}": value for key, value in getattr(self, name).state_dict().items()}
        for name in _OPTIMIZERS:
            for index, state in getattr(self, name).state_dict()["state"].items():
                tensors |= {f"{name}/{index}/{key}": value for key, value in state.items()}
        safetensors.torch.save_file(tensors, path, metadata={"steps": str(self.steps)})

    def load(self, path: Path) -> None:
        """Load what ``save`` wrote, for the same settings and shapes."""
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


def new_critics(actor: TanhGaussian, members: int, seed: int, kind: Callable[..., Critics] = PlainCritics) -> Critics:
    """Return critics with new weights that fit ``actor``. The global random generator stays as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return kind(actor.features, actor.actions, actor.hidden, members)


def learn(
    sac: Sac[ActorKind],
    replay: Buffer,
    steps: int,
    generator: np.random.Generator,
    each_step: Callable[[Losses], None] = lambda _: None,
) -> None:
    """Take ``steps`` gradient steps on batches drawn from ``replay``."""
    for _ in range(steps):
        each_step(sac.update(replay.sample(sac.settings.batch, generator)))


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {key.removeprefix(f"{prefix}/"): value for key, value in tensors.items() if key.startswith(f"{prefix}/")}
