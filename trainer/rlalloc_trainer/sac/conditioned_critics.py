"""Weight-conditioned critics: they learn the advantage of shares in each term, and weight the terms as a site does.

``Q(s, a, w) = Σ term_importance(w)_k · G_k(s, a)``, ``G_k = A_k(s, a) - A_k(s, a_heuristic)``. What shares change in
a term does not depend on a site's weights: G_k does not see them, learns from what every row says of that term, and
holds for all weights. So in the conditioned network of Abels et al. (ICML 2019); it is exact here because a decision
ends its episode. Critics with a single output and the weights as further inputs had to find this product in the
noise, and took the weights for noise themselves (docs/admin/objective.md).

There is no V(s): advantages are relative to the heuristic's shares, which are worth nothing by definition. A critic
with V(s) learned the mean advantage of random shares, and leaving the heuristic looked free.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor

from rlalloc.objective import TERM_NAMES
from rlalloc.objective.weights import LEAST_SHOWN
from rlalloc.policy.policy_inputs import PolicyInputs
from rlalloc_agent.actor import Actor
from rlalloc_trainer.advantages.advantage_scale import TYPICAL_ADVANTAGES
from rlalloc_trainer.sac.critics import BESIDE, Critics, EnsemblePerceptron, advantage_over_heuristic
from rlalloc_trainer.sac.soft_actor_critic import Sac, SacSettings, new_critics

TERMS: Final = len(TERM_NAMES)
COLUMNS: Final = TERMS + 1
"""Of a reward by term: the terms, and the weighted sum of the plug-ins' terms."""
LEAST_NORM: Final = 1e-12
"""Prevents a division by zero where no weight that a site has is among a network's inputs."""


class WeightConditionedCritics(Critics):
    """An ensemble for a network's ``inputs``, which include weights, and rewards by term (``RelabelledReplay``).

    Only for decisions that end their episode: there is no value of what follows.
    """

    def __init__(self, inputs: PolicyInputs, actions: int, hidden: Sequence[int], members: int = 2) -> None:
        super().__init__(members)
        self.inputs = inputs
        self._situation = np.setdiff1d(np.arange(len(inputs)), inputs.weights)
        self.advantage = EnsemblePerceptron(members, len(self._situation) + BESIDE * actions, hidden, COLUMNS)

    def forward(self, observations: Tensor, shares: Tensor) -> Tensor:
        """Weighted advantage of shares (rows, actions) over the heuristic's, (members, rows)."""
        weighted = self.advantage_by_term(observations, shares) * term_importance(observations, self.inputs)
        advantages: Tensor = weighted.sum(dim=-1)
        return advantages

    def advantage_by_term(self, observations: Tensor, shares: Tensor) -> Tensor:
        """Advantage of ``shares`` over the heuristic's in each term, (members, rows, COLUMNS)."""
        return advantage_over_heuristic(self.advantage, observations[:, self._situation], shares)

    def squared_errors(self, observations: Tensor, shares: Tensor, target: Tensor) -> Tensor:
        """Squares (members, rows), summed over the terms of ``target`` (rows, COLUMNS) that are known.

        A term counts as much as for the row's site: a term that few sites ask for leaves room for the others.
        """
        errors = self.advantage_by_term(observations, shares) - target.nan_to_num()
        errors = errors * term_importance(observations, self.inputs)
        squares: Tensor = (~target.isnan() * errors**2).sum(dim=-1)
        return squares


def term_importance(observations: Tensor, inputs: PolicyInputs) -> Tensor:
    """How much each column of a reward counts under the weights in observations (rows, inputs): (rows, COLUMNS).

    For the terms a unit vector on the scale of ``advantage_scale.scaled``, so that only ratios of weights matter. An
    observation does not show a weight below a thousandth of the largest one. A term whose weight is no input counts
    nothing.
    """
    shown = observations.new_zeros((len(observations), TERMS))
    shown[:, inputs.terms] = observations[:, inputs.weights]
    weights = torch.where(shown > 0, LEAST_SHOWN ** (1.0 - shown), 0.0)
    typical = weights * shown.new_tensor([TYPICAL_ADVANTAGES[name] for name in TERM_NAMES])
    ours = typical / typical.norm(dim=-1, keepdim=True).clamp(min=LEAST_NORM)
    return torch.cat((ours, torch.ones_like(ours[:, :1])), dim=-1)


def weight_conditioned_sac(
    actor: Actor, settings: SacSettings, seed: int, critics: WeightConditionedCritics | None = None
) -> Sac[Actor]:
    """Return SAC with weight-conditioned critics: ``critics``, or new ones."""

    def fresh(_features: int, actions: int, hidden: Sequence[int], members: int) -> WeightConditionedCritics:
        return WeightConditionedCritics(actor.inputs, actions, hidden, members)

    return Sac(actor, settings, seed, critics or new_critics(actor, settings.critics, seed, fresh))
