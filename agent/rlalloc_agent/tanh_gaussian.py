"""The distribution of SAC's actions: a Gaussian squashed into the open unit cube, with exact densities.

``u ~ N(mean, std)`` becomes shares ``s = (tanh(u) + 1) / 2``. Probabilities are densities over shares: by the change
of variables ``log p(s) = log N(u) - log |ds/du|``, ``ds/du = (1 - tanh²u) / 2`` (Haarnoja et al., 2018, appendix C).
An action space other than [0, 1] is scaled to it outside (gymnasium's RescaleAction), so that an entropy means the
same everywhere: over [-1, 1] it would be larger by log 2 for each action.
"""

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

_EDGE: Final = 1e-6


class TanhGaussian(nn.Module, ABC):
    """A policy: ``forward`` says mean and standard deviation before the tanh.

    ``features`` and ``actions`` are the widths of an observation and of an answer, ``hidden`` those of the layers
    between.
    """

    def __init__(self, features: int, actions: int, hidden: Sequence[int]) -> None:
        super().__init__()
        self.features = features
        self.actions = actions
        self.hidden = tuple(hidden)

    @abstractmethod
    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation before the tanh, each of shape (rows, actions)."""

    def departure(self, observations: Tensor, mean: Tensor) -> Tensor:
        """How far ``mean`` leaves a heuristic, (rows,): nothing where there is none."""
        return observations.new_zeros(len(mean))

    def sample(self, observations: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Draw shares (rows, actions), differentiable in the parameters, and their log-densities (rows,)."""
        mean, std = self(observations)
        return draw(mean, std, generator)

    def mean(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """The squashed mean (rows, actions) and its log-density (rows,)."""
        mean, std = self(observations)
        return squash(mean), _log_density(mean, mean, std)

    def log_probability(self, observations: Tensor, shares: Tensor) -> Tensor:
        """Log-density (rows,) of given shares; those at the very edge of [0, 1] count as 1e-6 inside it."""
        mean, std = self(observations)
        unsquashed = torch.atanh(2.0 * shares.clamp(_EDGE, 1.0 - _EDGE) - 1.0)
        return _log_density(unsquashed, mean, std)

    def decide(
        self, observations: NDArray[np.float32], *, sample: bool, generator: torch.Generator | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Shares (rows, actions) and log-densities (rows,) for rows of observations, outside of any training."""
        with torch.inference_mode():
            rows = torch.from_numpy(observations)
            shares, log_probability = self.sample(rows, generator) if sample else self.mean(rows)
        return shares.numpy().astype(np.float64), log_probability.numpy().astype(np.float64)


def draw(mean: Tensor, std: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
    """Draw shares (rows, actions), differentiable in ``mean`` and ``std``, and their log-densities (rows,)."""
    noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype)
    unsquashed = mean + std * noise
    return squash(unsquashed), _log_density(unsquashed, mean, std)


def layers(features: int, hidden: Sequence[int]) -> nn.Sequential:
    """Linear layers of widths ``hidden``, each with a ReLU."""
    modules: list[nn.Module] = []
    for wide, narrow in itertools.pairwise((features, *hidden)):
        modules += [nn.Linear(wide, narrow), nn.ReLU()]
    return nn.Sequential(*modules)


def squash(unsquashed: Tensor) -> Tensor:
    """Shares in (0, 1) for any numbers."""
    return (torch.tanh(unsquashed) + 1.0) / 2.0


def _log_density(unsquashed: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Log-density of the squashed shares; ``log(1 - tanh²u)`` in its stable form 2·(log 2 - u - softplus(-2u))."""
    normal = -0.5 * ((unsquashed - mean) / std) ** 2 - std.log() - 0.5 * math.log(2.0 * math.pi)
    log_slope = math.log(0.5) + 2.0 * (math.log(2.0) - unsquashed - nn.functional.softplus(-2.0 * unsquashed))
    return (normal - log_slope).sum(dim=-1)
