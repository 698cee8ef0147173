"""A SAC actor without a heuristic: for any environment, and to see what learning achieves alone."""

from collections.abc import Sequence
from typing import Final

from torch import Tensor, nn

from rlalloc_agent.tanh_gaussian import TanhGaussian, layers

LOG_STD_RANGE: Final = (-20.0, 2.0)
"""As in Haarnoja et al.'s code and stable-baselines3."""


class PlainActor(TanhGaussian):
    """Mean and log-deviation are two linear layers on one body, all with torch's usual initial weights."""

    def __init__(self, features: int, actions: int, hidden: Sequence[int]) -> None:
        super().__init__(features, actions, hidden)
        self.body = layers(features, hidden)
        self.location = nn.Linear(hidden[-1], actions)
        self.log_std = nn.Linear(hidden[-1], actions)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation before the tanh, each of shape (rows, actions)."""
        hidden = self.body(observations)
        return self.location(hidden), self.log_std(hidden).clamp(*LOG_STD_RANGE).exp()
