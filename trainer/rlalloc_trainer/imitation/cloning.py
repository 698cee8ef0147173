"""Behaviour cloning: a warm start before training, and a fading term during it.

The term (Nair et al. 2018) is in ``Sac._update_actor``: on demonstrated rows of a batch the actor pays for the
distance of its mean shares to the expert's where the critics value the expert's higher (the Q-filter). So the actor
follows a poor expert only where it is right.
"""

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from rlalloc_agent.tanh_gaussian import TanhGaussian
from rlalloc_trainer.sac.replay_buffer import FloatArray, Transitions


class WarmStart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``steps`` of Adam on batches of ``batch`` demonstrations."""

    steps: int = 2000
    batch: int = 256
    rate: float = 1e-3


class CloningTerm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the actor pays, in reward for a squared share: ``weight`` at first, nothing from ``fades_after`` steps on.

    It decays linearly in between, as the critics learn.
    """

    weight: float = 1.0
    fades_after: int = 4000

    def payments(self, demonstrated: NDArray[np.bool_], step: int) -> FloatArray | None:
        """Return what each row of a batch pays at a step of the training, (rows,); None if no row pays."""
        weight = self.weight * max(0.0, 1.0 - step / self.fades_after)
        return (weight * demonstrated).astype(np.float32) if weight > 0.0 and demonstrated.any() else None


def clone(
    actor: TanhGaussian, demonstrations: Transitions, settings: WarmStart, generator: np.random.Generator
) -> None:
    """Move ``actor``'s mean shares to the demonstrated ones, by their squared distance.

    Its deviations are left to training: a deterministic expert would shrink them to 0, and end all exploration.
    """
    observations = torch.from_numpy(demonstrations.observation)
    demonstrated = torch.from_numpy(demonstrations.shares)
    optimizer = torch.optim.Adam(actor.parameters(), lr=settings.rate, fused=True)
    for _ in range(settings.steps):
        rows = torch.from_numpy(generator.integers(len(observations), size=settings.batch))
        shares, _ = actor.mean(observations[rows])
        loss = ((shares - demonstrated[rows]) ** 2).sum(dim=-1).mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
