"""The SAC actor: from what it reads of a job to shares (urgency among them), as a residual around a heuristic.

The mean of its squashed Gaussian (rlalloc_agent.tanh_gaussian) is the heuristic's shares, brought back through the
same map, plus what a network adds::

    u ~ N(b + network(inputs) / √(1 - tanh²b), std(inputs)),  b = atanh(clip(2·s_heuristic - 1))

The network's last layer starts at zero, so an untrained actor's mean is the heuristic. The root of tanh's slope at
the heuristic makes it as easy for learning to leave a share of 0 or 1, where tanh is flat, as one of 0.5.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import safetensors.torch
import torch
from torch import Tensor, nn

from rlalloc.errors import PolicyError
from rlalloc.job import SHARES
from rlalloc.observation import POOL_FEATURES
from rlalloc.policy.policies import ACTOR_FILE, Manifest, verify
from rlalloc.policy.policy_inputs import DEFAULT_INPUTS, PolicyInputs
from rlalloc.system.shared_files import read_regular_file
from rlalloc_agent.tanh_gaussian import TanhGaussian, layers

HIDDEN: Final = (128, 128)
MEAN_CLIP: Final = 0.98
"""A heuristic share of 1 becomes 0.99: near enough that the GPU count stays the same for ranges up to 1-64 on nodes
of 8 (56 and 64 are 0.19 octaves apart), far enough from the flat end of tanh that learning can move it."""
LOG_STD_RANGE: Final = (-5.0, 0.0)
"""A deviation of at most 1 before the tanh: a share of 0.5 is then drawn between 0.12 and 0.88 two times in three."""
INITIAL_LOG_STD: Final = -1.5
"""A deviation of 0.22: a share of 0.5 is drawn within ±0.11, one of 1 within ±0.01. Real jobs are at stake."""


class Actor(TanhGaussian):
    """The policy network: ``inputs`` name what it reads (``PolicyInputs``), ``hidden`` are the widths of its layers.

    Raises PolicyError for inputs that do not end with a heuristic's shares.
    """

    def __init__(self, inputs: Sequence[str] = DEFAULT_INPUTS, hidden: Sequence[int] = HIDDEN) -> None:
        super().__init__(len(inputs), SHARES, hidden)
        self.inputs = PolicyInputs(inputs)
        self.body = layers(len(inputs), hidden)
        self.residual = nn.Linear(hidden[-1], SHARES)
        self.log_std = nn.Linear(hidden[-1], SHARES)
        with torch.no_grad():
            for parameter in (*self.residual.parameters(), *self.log_std.parameters()):
                parameter.zero_()
            # Training may never show some of these: what it does not show must not count where it is served.
            first = next(self.body.parameters())
            first[:, [place for place, name in enumerate(inputs) if name in POOL_FEATURES]] = 0.0

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation before the tanh, each of shape (jobs, SHARES)."""
        hidden = self.body(observations)
        base, root = _heuristic(observations)
        log_std = (INITIAL_LOG_STD + self.log_std(hidden)).clamp(*LOG_STD_RANGE)
        return base + self.residual(hidden) / root, log_std.exp()

    def departure(self, observations: Tensor, mean: Tensor) -> Tensor:
        """How far ``mean`` leaves the heuristic, (jobs,): the square of what the network adds, summed over shares."""
        base, root = _heuristic(observations)
        added: Tensor = (mean - base) * root
        return (added**2).sum(dim=-1)


class AroundHeuristic(TanhGaussian):
    """An untrained actor's answers, without its network. An observation is the heuristic's shares, (jobs, SHARES)."""

    def __init__(self) -> None:
        super().__init__(SHARES, SHARES, ())

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation before the tanh, each of shape (jobs, SHARES)."""
        mean = torch.atanh(_squashed(observations))
        return mean, torch.full_like(mean, math.exp(INITIAL_LOG_STD))


def actor_bytes(actor: Actor) -> bytes:
    """Return the actor's parameters as safetensors."""
    content: bytes = safetensors.torch.save(actor.state_dict())
    return content


def actor_from_bytes(content: bytes, hidden: Sequence[int], inputs: Sequence[str] = DEFAULT_INPUTS) -> Actor:
    """Return the actor whose parameters ``actor_bytes`` gave. Raises PolicyError if they do not fit its shape."""
    actor = Actor(inputs, hidden)
    try:
        actor.load_state_dict(safetensors.torch.load(content))
    except (safetensors.SafetensorError, RuntimeError, KeyError, ValueError) as err:
        reason = str(err).splitlines()[0]
        raise PolicyError(
            f"{ACTOR_FILE} is no actor with {len(inputs)} inputs and hidden layers {tuple(hidden)}: {reason}"
        ) from err
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
    return actor_from_bytes(read_regular_file(folder / ACTOR_FILE), manifest.hidden, manifest.inputs), manifest


def _heuristic(observations: Tensor) -> tuple[Tensor, Tensor]:
    """The heuristic's shares before the tanh, and the root of tanh's slope there, each of shape (jobs, SHARES)."""
    squashed = _squashed(observations[:, -SHARES:])
    return torch.atanh(squashed), (1.0 - squashed**2).sqrt()


def _squashed(shares: Tensor) -> Tensor:
    """Shares as values of tanh, clipped short of its flat ends."""
    return (2.0 * shares - 1.0).clamp(-MEAN_CLIP, MEAN_CLIP)
