"""The SAC actor: from an observation to shares (urgency among them), as a residual around the base heuristic.

A Gaussian over ``u`` in R⁴ is squashed to shares ``s = (tanh(u) + 1) / 2`` in (0, 1)⁴. Its mean is the heuristic's
shares, brought back through the same map, plus what a network adds::

    u ~ N(b + network(observation) / √(1 - tanh²b), std(observation)),  b = atanh(clip(2·s_heuristic - 1))

The network's last layer starts at zero, so an untrained actor's mean is the heuristic. Probabilities are densities
over shares: by the change of variables ``log p(s) = log N(u) - log |ds/du|``, ``ds/du = (1 - tanh²u) / 2`` (Haarnoja
et al., 2018, appendix C; cleanrl's sac_continuous_action). The root of tanh's slope at the heuristic makes it as
easy for learning to leave a share of 0 or 1, where tanh is flat, as one of 0.5.
"""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rlalloc.errors import PolicyError
from rlalloc.job import SHARES
from rlalloc.observation import FEATURES
from rlalloc.policies import ACTOR_FILE, Manifest, verify

HIDDEN: Final = (128, 128)
MEAN_CLIP: Final = 0.98
"""A heuristic share of 1 becomes 0.99: near enough that the GPU count stays the same for ranges up to 1-64 on nodes
of 8 (56 and 64 are 0.19 octaves apart), far enough from the flat end of tanh that learning can move it."""
LOG_STD_RANGE: Final = (-5.0, 0.0)
"""A deviation of at most 1 before the tanh: a share of 0.5 is then drawn between 0.12 and 0.88 two times in three."""
INITIAL_LOG_STD: Final = -1.5
"""A deviation of 0.22: a share of 0.5 is drawn within ±0.11, one of 1 within ±0.01. Real jobs are at stake."""
_EDGE: Final = 1e-6


class Actor(nn.Module):
    """The policy network; ``hidden`` are the widths of its layers."""

    def __init__(self, features: int = len(FEATURES), hidden: Sequence[int] = HIDDEN) -> None:
        super().__init__()
        self.features = features
        self.hidden = tuple(hidden)
        widths = (features, *hidden)
        layers: list[nn.Module] = []
        for wide, narrow in itertools.pairwise(widths):
            layers += [nn.Linear(wide, narrow), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.residual = nn.Linear(widths[-1], SHARES)
        self.log_std = nn.Linear(widths[-1], SHARES)
        with torch.no_grad():
            for parameter in (*self.residual.parameters(), *self.log_std.parameters()):
                parameter.zero_()

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation before the tanh, each of shape (jobs, SHARES)."""
        hidden = self.body(observations)
        squashed = (2.0 * observations[:, -SHARES:] - 1.0).clamp(-MEAN_CLIP, MEAN_CLIP)
        mean = torch.atanh(squashed) + self.residual(hidden) / (1.0 - squashed**2).sqrt()
        log_std = (INITIAL_LOG_STD + self.log_std(hidden)).clamp(*LOG_STD_RANGE)
        return mean, log_std.exp()

    def departure(self, observations: Tensor) -> Tensor:
        """How far the network leaves the heuristic, (jobs,): the square of what it adds, summed over the shares."""
        added: Tensor = self.residual(self.body(observations))
        return (added**2).sum(dim=-1)

    def sample(self, observations: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Draw shares (jobs, SHARES), differentiable in the parameters, and their log-densities (jobs,)."""
        mean, std = self(observations)
        noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype)
        unsquashed = mean + std * noise
        return _squash(unsquashed), _log_density(unsquashed, mean, std)

    def mean(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """The squashed mean (jobs, SHARES) and its log-density (jobs,)."""
        mean, std = self(observations)
        return _squash(mean), _log_density(mean, mean, std)

    def log_probability(self, observations: Tensor, shares: Tensor) -> Tensor:
        """Log-density (jobs,) of given shares; those at the very edge of [0, 1] count as 1e-6 inside it."""
        mean, std = self(observations)
        unsquashed = torch.atanh(2.0 * shares.clamp(_EDGE, 1.0 - _EDGE) - 1.0)
        return _log_density(unsquashed, mean, std)

    def decide(
        self, observations: NDArray[np.float32], *, sample: bool, generator: torch.Generator | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Shares (jobs, SHARES) and log-densities (jobs,) for rows of observations, outside of any training."""
        with torch.inference_mode():
            rows = torch.from_numpy(observations)
            shares, log_probability = self.sample(rows, generator) if sample else self.mean(rows)
        return shares.numpy().astype(np.float64), log_probability.numpy().astype(np.float64)


def actor_bytes(actor: Actor) -> bytes:
    """Return the actor's parameters as safetensors."""
    content: bytes = safetensors.torch.save(actor.state_dict())
    return content


def actor_from_bytes(content: bytes, hidden: Sequence[int], features: int = len(FEATURES)) -> Actor:
    """Return the actor whose parameters ``actor_bytes`` gave. Raises PolicyError if they do not fit its shape."""
    actor = Actor(features, hidden)
    try:
        actor.load_state_dict(safetensors.torch.load(content))
    except (safetensors.SafetensorError, RuntimeError, KeyError, ValueError) as err:
        reason = str(err).splitlines()[0]
        raise PolicyError(f"{ACTOR_FILE} is no actor with hidden layers {tuple(hidden)}: {reason}") from err
    if not all(bool(parameter.isfinite().all()) for parameter in actor.parameters()):
        raise PolicyError(f"{ACTOR_FILE} holds numbers that are not finite: promote another version")
    return actor.eval()


def load_actor(folder: Path) -> tuple[Actor, Manifest]:
    """Return the actor of a policy version and its manifest, after its files were verified.

    Raises PolicyError, saying what to do, if it is missing, damaged or unfit.
    """
    manifest = verify(folder)
    if ACTOR_FILE not in manifest.files:
        raise PolicyError(f"{folder} names no {ACTOR_FILE}: promote another version")
    return actor_from_bytes((folder / ACTOR_FILE).read_bytes(), manifest.hidden), manifest


def _squash(unsquashed: Tensor) -> Tensor:
    return (torch.tanh(unsquashed) + 1.0) / 2.0


def _log_density(unsquashed: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Log-density of the squashed shares; ``log(1 - tanh²u)`` in its stable form 2·(log 2 - u - softplus(-2u))."""
    normal = -0.5 * ((unsquashed - mean) / std) ** 2 - std.log() - 0.5 * math.log(2.0 * math.pi)
    log_slope = math.log(0.5) + 2.0 * (math.log(2.0) - unsquashed - nn.functional.softplus(-2.0 * unsquashed))
    return (normal - log_slope).sum(dim=-1)
