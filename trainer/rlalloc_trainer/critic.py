"""The critics of SAC: what shares are worth for an observation."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rlalloc.job import SHARES
from rlalloc.observation import FEATURES


class Critic(nn.Module):
    """``Q(s, a) = V(s) + A(s, a) - A(s, a_heuristic)``.

    V takes up how dear a job is whatever it gets, which is most of the reward's spread; A has only to tell what
    leaving the heuristic's shares changes, and is nothing where one does not leave them (LEARNING.md: the critic on
    the difference to the heuristic). The heuristic's shares are the observation's last features.
    """

    def __init__(self, features: int = len(FEATURES), hidden: Sequence[int] = (128, 128)) -> None:
        super().__init__()
        self.value = _perceptron(features, hidden)
        self.advantage = _perceptron(features + SHARES, hidden)

    def forward(self, observations: Tensor, shares: Tensor) -> Tensor:
        """Values (rows,) of shares (rows, SHARES) for observations (rows, features)."""
        value: Tensor = self.value(observations).squeeze(-1) + self.gain(observations, shares)
        return value

    def gain(self, observations: Tensor, shares: Tensor) -> Tensor:
        """What ``shares`` are worth more than the heuristic's, (rows,)."""
        chosen = self.advantage(torch.cat((observations, shares), dim=-1))
        heuristic = self.advantage(torch.cat((observations, observations[:, -SHARES:]), dim=-1))
        difference: Tensor = (chosen - heuristic).squeeze(-1)
        return difference


class TwinCritic(nn.Module):
    """Two critics, learned apart; the lower of both is believed (Fujimoto et al., 2018)."""

    def __init__(self, features: int = len(FEATURES), hidden: Sequence[int] = (128, 128)) -> None:
        super().__init__()
        self.first = Critic(features, hidden)
        self.second = Critic(features, hidden)

    def forward(self, observations: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
        """Both values, (rows,) each."""
        return self.first(observations, shares), self.second(observations, shares)

    def lower(self, observations: Tensor, shares: Tensor) -> Tensor:
        """The lower of both values (rows,)."""
        return torch.minimum(*self(observations, shares))


def _perceptron(inputs: int, hidden: Sequence[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(inputs, width), nn.ReLU()]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, 1))
