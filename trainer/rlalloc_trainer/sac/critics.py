"""The critics of SAC: an ensemble of networks that learn what shares are worth for an observation, each on its own.

All networks of an ensemble are computed at once: the weights of a layer are one tensor with the members in front.
"""

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor, nn

BESIDE: Final = 3
"""Inputs for each share: the share itself, how far it is above the heuristic's, and how far below."""


class Critics(nn.Module, ABC):
    """An ensemble of ``members`` critics."""

    def __init__(self, members: int) -> None:
        super().__init__()
        self.members = members

    @abstractmethod
    def forward(self, observations: Tensor, shares: Tensor) -> Tensor:
        """Values (members, rows) of shares (rows, actions) for observations (rows, features)."""

    def squared_errors(self, observations: Tensor, shares: Tensor, target: Tensor) -> Tensor:
        """Squared errors (members, rows) of the values, given a target (rows,)."""
        squares: Tensor = (self(observations, shares) - target) ** 2
        return squares


class PlainCritics(Critics):
    """``Q(s, a)``: one perceptron each, which sees shares rescaled to [-1, 1]."""

    def __init__(self, features: int, actions: int, hidden: Sequence[int], members: int = 2) -> None:
        super().__init__(members)
        self.value = EnsemblePerceptron(members, features + actions, hidden)

    def forward(self, observations: Tensor, shares: Tensor) -> Tensor:
        """Values (members, rows) of shares (rows, actions) for observations (rows, features)."""
        values: Tensor = self.value(torch.cat((observations, 2.0 * shares - 1.0), dim=-1))
        return values


def advantage_over_heuristic(advantage: "EnsemblePerceptron", observations: Tensor, shares: Tensor) -> Tensor:
    """``A(s, a) - A(s, a_heuristic)``, (members, rows) or (members, rows, outputs), 0 at the heuristic's shares.

    Shares above the heuristic's are far worse, shares below a little. A smooth network fits one slope through both,
    and so prefers smaller shares. With an input for each side it can bend at the heuristic.
    """
    heuristic = observations[:, -shares.shape[-1] :]

    def beside(these: Tensor) -> Tensor:
        return torch.cat((observations, these, (these - heuristic).relu(), (heuristic - these).relu()), dim=-1)

    difference: Tensor = advantage(beside(shares)) - advantage(beside(heuristic))
    return difference


class EnsemblePerceptron(nn.Sequential):
    """``members`` perceptrons with ReLUs, each from (rows, inputs) to one or several numbers a row."""

    def __init__(self, members: int, inputs: int, hidden: Sequence[int], outputs: int = 1) -> None:
        modules: list[nn.Module] = []
        for wide, narrow in itertools.pairwise((inputs, *hidden)):
            modules += [EnsembleLinear(members, wide, narrow), nn.ReLU(inplace=True)]
        super().__init__(*modules, EnsembleLinear(members, hidden[-1], outputs))
        self.members = members

    def forward(self, rows: Tensor) -> Tensor:
        """Return (members, rows) or (members, rows, outputs) for ``rows`` (rows, inputs), which all members see."""
        numbers = rows.expand(self.members, -1, -1)
        for module in self:
            numbers = module(numbers)
        return numbers.squeeze(-1)


class EnsembleLinear(nn.Module):
    """``members`` linear layers at once, from (members, rows, inputs) to (members, rows, outputs).

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
    """Return a lower bound of values (members, rows): the mean less so many standard deviations, (rows,).

    With two members, one deviation below the mean is the lower value: the clipped double Q of Fujimoto et al. (2018),
    computed without the root, whose slope is infinite where they agree. For more members: An et al. (2021).
    """
    if len(values) == 2 and deviations == 1.0:
        return torch.minimum(values[0], values[1])
    if len(values) == 1 or deviations == 0.0:
        return values.mean(dim=0)
    spread = (values.var(dim=0, correction=0) + 1e-12).sqrt()
    return values.mean(dim=0) - deviations * spread
