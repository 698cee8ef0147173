"""The critics of SAC: what shares are worth for an observation, by several networks that were learned apart.

All of an ensemble's networks are computed at once: a layer's weights are one tensor with the members in front.
"""

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor, nn

BESIDE: Final = 3
"""Inputs for each share: itself, by how much it is above the heuristic's, and below."""


class Critics(nn.Module, ABC):
    """An ensemble of ``members`` critics."""

    def __init__(self, members: int) -> None:
        super().__init__()
        self.members = members

    @abstractmethod
    def forward(self, observations: Tensor, shares: Tensor) -> Tensor:
        """Values (members, rows) of shares (rows, actions) for observations (rows, features)."""

    def worth(self, observations: Tensor, shares: Tensor) -> Tensor:
        """What an actor compares shares by, (members, rows): values, but for what no shares change."""
        values: Tensor = self(observations, shares)
        return values

    def squared_errors(self, observations: Tensor, shares: Tensor, target: Tensor) -> Tensor:
        """How far values are from what they should be, (rows,): squares (members, rows)."""
        squares: Tensor = (self(observations, shares) - target) ** 2
        return squares


class PlainCritics(Critics):
    """``Q(s, a)`` as it is: one perceptron each. It sees shares between -1 and 1."""

    def __init__(self, features: int, actions: int, hidden: Sequence[int], members: int = 2) -> None:
        super().__init__(members)
        self.value = EnsemblePerceptron(members, features + actions, hidden)

    def forward(self, observations: Tensor, shares: Tensor) -> Tensor:
        """Values (members, rows) of shares (rows, actions) for observations (rows, features)."""
        values: Tensor = self.value(torch.cat((observations, 2.0 * shares - 1.0), dim=-1))
        return values


class ResidualCritics(Critics):
    """``Q(s, a) = V(s) + A(s, a) - A(s, a_heuristic)``.

    V takes up how dear a job is whatever it gets, which is most of the reward's spread; A has only to tell what
    leaving the heuristic's shares changes, and is nothing where one does not leave them (LEARNING.md: the critic on
    the difference to the heuristic). The heuristic's shares are the observation's last features.
    """

    def __init__(self, features: int, actions: int, hidden: Sequence[int], members: int = 2) -> None:
        super().__init__(members)
        self.value = EnsemblePerceptron(members, features, hidden)
        self.advantage = EnsemblePerceptron(members, features + BESIDE * actions, hidden)

    def forward(self, observations: Tensor, shares: Tensor) -> Tensor:
        """Values (members, rows) of shares (rows, actions) for observations (rows, features)."""
        values: Tensor = self.value(observations) + self.worth(observations, shares)
        return values

    def worth(self, observations: Tensor, shares: Tensor) -> Tensor:
        """What ``shares`` are worth more than the heuristic's, (members, rows)."""
        return gain(self.advantage, observations, shares)


def gain(advantage: "EnsemblePerceptron", observations: Tensor, shares: Tensor) -> Tensor:
    """``A(s, a) - A(s, a_heuristic)``, (members, rows) or (members, rows, outputs), 0 at the heuristic's shares.

    Larger shares than the heuristic's are far worse, smaller ones a little. A smooth network lays one slope through
    both, and so finds smaller ones to be better; told of both sides it bends at the heuristic
    (docs/results/shipped-policy.md).
    """
    heuristic = observations[:, -shares.shape[-1] :]

    def beside(these: Tensor) -> Tensor:
        return torch.cat((observations, these, (these - heuristic).relu(), (heuristic - these).relu()), dim=-1)

    difference: Tensor = advantage(beside(shares)) - advantage(beside(heuristic))
    return difference


class EnsemblePerceptron(nn.Sequential):
    """``members`` perceptrons with ReLUs side by side, each from (rows, inputs) to a number a row, or several."""

    def __init__(self, members: int, inputs: int, hidden: Sequence[int], outputs: int = 1) -> None:
        modules: list[nn.Module] = []
        for wide, narrow in itertools.pairwise((inputs, *hidden)):
            modules += [EnsembleLinear(members, wide, narrow), nn.ReLU(inplace=True)]
        super().__init__(*modules, EnsembleLinear(members, hidden[-1], outputs))
        self.members = members

    def forward(self, rows: Tensor) -> Tensor:
        """Return numbers (members, rows), or (members, rows, outputs), for rows (rows, inputs) the same for all."""
        numbers = rows.expand(self.members, -1, -1)
        for module in self:
            numbers = module(numbers)
        return numbers.squeeze(-1)


class EnsembleLinear(nn.Module):
    """``members`` linear layers side by side, from (members, rows, inputs) to (members, rows, outputs).

    Initial weights and biases are nn.Linear's: uniform within ±1/√inputs.
    """

    def __init__(self, members: int, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(members, inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(members, 1, outputs).uniform_(-bound, bound))

    def forward(self, rows: Tensor) -> Tensor:
        """Return each member's outputs for its rows."""
        return torch.baddbmm(self.bias, rows, self.weight)


def lower_bound(values: Tensor, deviations: float) -> Tensor:
    """Return what values (members, rows) are trusted to reach, (rows,): the mean less so many deviations.

    Of two, one deviation below the mean is the lower one: the clipped double Q of Fujimoto et al. (2018), computed
    without the root, whose slope has no end where they agree. More members and deviations: An et al. (2021).
    """
    if len(values) == 2 and deviations == 1.0:
        return torch.minimum(values[0], values[1])
    if len(values) == 1 or deviations == 0.0:
        return values.mean(dim=0)
    spread = (values.var(dim=0, correction=0) + 1e-12).sqrt()
    return values.mean(dim=0) - deviations * spread
