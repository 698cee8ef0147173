"""Critics for any objective: they learn what shares gain by each term, and weigh it as a site does.

``Q(s, a, w) = Σ importance_told(w)_k · G_k(s, a)``, ``G_k = A_k(s, a) - A_k(s, a_heuristic)``. What shares change by
a term does not depend on what a site wants: G_k sees no weights, is learned from what every label says of that term,
and holds for all weights. So in the conditioned network of Abels et al. (ICML 2019); that a decision ends its episode
makes it exact. Critics of one value, told the weights as any other input, had to find that product in the noise, and
took the weights for noise themselves (docs/admin/objective.md).

There is no V(s): labels are gains over the heuristic's shares, so that nothing is what these are worth. With a V it
learned what random shares gain on average, and leaving the heuristic looked free (docs/explanation/learning.md).
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor

from rlalloc.objective import TERM_NAMES
from rlalloc.objective.weights import LEAST_SHOWN
from rlalloc.policy_inputs import PolicyInputs
from rlalloc_agent.actor import Actor
from rlalloc_trainer.advantages.advantage_scale import TYPICAL_GAINS
from rlalloc_trainer.sac.critics import BESIDE, Critics, EnsemblePerceptron, gain
from rlalloc_trainer.sac.soft_actor_critic import Sac, SacSettings, new_critics

WEIGHED: Final = len(TERM_NAMES)
COLUMNS: Final = WEIGHED + 1
"""Of a reward by term: our own, and what further terms of a site come to."""
LEAST_NORM: Final = 1e-12
"""Against a division by zero where a network is told of no weight that a site has."""


class WeighedCritics(Critics):
    """An ensemble of them, for a network's ``inputs``, weights among them, and rewards by term (Hindsight).

    They are for decisions that end their episode: what follows has no value by term.
    """

    def __init__(self, inputs: PolicyInputs, actions: int, hidden: Sequence[int], members: int = 2) -> None:
        super().__init__(members)
        self.inputs = inputs
        self._situation = np.setdiff1d(np.arange(len(inputs)), inputs.weights)
        self.advantage = EnsemblePerceptron(members, len(self._situation) + BESIDE * actions, hidden, COLUMNS)

    def forward(self, observations: Tensor, shares: Tensor) -> Tensor:
        """What shares (rows, actions) are worth more than the heuristic's, (members, rows)."""
        worth: Tensor = (self.gain_by_term(observations, shares) * self._importance(observations)).sum(dim=-1)
        return worth

    def gain_by_term(self, observations: Tensor, shares: Tensor) -> Tensor:
        """What ``shares`` are worth more than the heuristic's by each term, (members, rows, COLUMNS)."""
        return gain(self.advantage, observations[:, self._situation], shares)

    def squared_errors(self, observations: Tensor, shares: Tensor, target: Tensor) -> Tensor:
        """Squares (members, rows), summed over the terms of ``target`` (rows, COLUMNS) that are known.

        A term counts as much as the row's site cares for it: what few ask for is to leave room for what most do.
        """
        errors = (self.gain_by_term(observations, shares) - target.nan_to_num()) * self._importance(observations)
        squares: Tensor = (~target.isnan() * errors**2).sum(dim=-1)
        return squares

    def _importance(self, observations: Tensor) -> Tensor:
        return importance_told(observations, self.inputs)


def importance_told(observations: Tensor, inputs: PolicyInputs) -> Tensor:
    """How much each column of a reward counts for sites that observations (rows, inputs) tell of, (rows, COLUMNS).

    Of our terms a unit vector on the scale of ``gain_scale.scaled``, so that only ratios of weights matter; a weight
    below a thousandth of the largest one is not told. A term whose weight is no input counts nothing.
    """
    told = observations.new_zeros((len(observations), WEIGHED))
    told[:, inputs.terms] = observations[:, inputs.weights]
    weights = torch.where(told > 0, LEAST_SHOWN ** (1.0 - told), 0.0)
    typical = weights * told.new_tensor([TYPICAL_GAINS[name] for name in TERM_NAMES])
    ours = typical / typical.norm(dim=-1, keepdim=True).clamp(min=LEAST_NORM)
    return torch.cat((ours, torch.ones_like(ours[:, :1])), dim=-1)


def sac_for_any_weights(
    actor: Actor, settings: SacSettings, seed: int, critics: WeighedCritics | None = None
) -> Sac[Actor]:
    """Return SAC with such critics, new ones if there are none."""

    def fresh(_features: int, actions: int, hidden: Sequence[int], members: int) -> WeighedCritics:
        return WeighedCritics(actor.inputs, actions, hidden, members)

    return Sac(actor, settings, seed, critics or new_critics(actor, settings.critics, seed, fresh))
