"""Behaviour cloning: before training, as a warm start, and during it, as a term that fades.

The term (Nair et al. 2018) is in ``Sac._update_actor``: on demonstrated rows of a batch the actor pays for the
distance of its mean shares to the expert's, but only where the critics value the expert's higher (the Q-filter). So a
poor expert is followed only where it is right, and no longer than it is.
"""

from collections.abc import Callable

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
    """What the actor pays, in reward for a squared share, at the first step; nothing from ``fades_after`` steps on.

    In between it falls on a straight line, as critics learn and experts have less to say.
    """

    weight: float = 1.0
    fades_after: int = 4000

    def payments(self, demonstrated: NDArray[np.bool_], step: int) -> FloatArray | None:
        """What each row of a batch pays at a step of the training, (rows,); None where nothing is to pay."""
        weight = self.weight * max(0.0, 1.0 - step / self.fades_after)
        return (weight * demonstrated).astype(np.float32) if weight > 0.0 and demonstrated.any() else None


def clone(
    actor: TanhGaussian,
    demonstrations: Transitions,
    settings: WarmStart,
    generator: np.random.Generator,
    each_step: Callable[[float], None] = lambda _: None,
) -> None:
    """Move ``actor``'s mean shares to the demonstrated ones, by their squared distance; ``each_step`` is told it.

    Its deviations are left to training: an expert that does not vary would have them vanish, and with them all
    exploration.
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
        each_step(loss.item())
