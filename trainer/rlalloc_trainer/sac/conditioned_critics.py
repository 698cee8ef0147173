"""Critics for any objective: they learn what shares gain by each term, and weigh it as a site does.

``Q(s, a, w) = Σ importance_told(w)_k · G_k(s, a)``, ``G_k = A_k(s, a) - A_k(s, a_heuristic)``. What shares change by
a term does not depend on what a site wants: G_k sees no weights, is learned from what every label says of that term,
and holds for all weights. So in the conditioned network of Abels et al. (ICML 2019); that a decision ends its episode
makes it exact. Critics of one value, told the weights as any other input, had to find that product in the noise, and
took the weights for noise themselves (docs/objective.md).

There is no V(s): labels are gains over the heuristic's shares, so that nothing is what these are worth. With a V it
learned what random shares gain on average, and leaving the heuristic looked free (docs/learning.md).
"""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from rlalloc.objective import TERM_NAMES
from rlalloc.objective.weights import LEAST_SHOWN
from rlalloc.observation import WEIGHT_FEATURES
from rlalloc_agent.actor import Actor
from rlalloc_trainer.advantages.advantage_scale import TYPICAL_GAINS
from rlalloc_trainer.sac.critics import BESIDE, Critics, EnsemblePerceptron, gain
from rlalloc_trainer.sac.soft_actor_critic import Sac, SacSettings, new_critics

WEIGHED: Final = len(TERM_NAMES)
COLUMNS: Final = WEIGHED + 1
"""Of a reward by term: our own, and what further terms of a site come to."""


class WeighedCritics(Critics):
    """An ensemble of them, for observations with weights (``rlalloc.observation``) and rewards by term (Hindsight).

    They are for decisions that end their episode: what follows has no value by term.
    """

    def __init__(self, features: int, actions: int, hidden: Sequence[int], members: int = 2) -> None:
        super().__init__(members)
        self.advantage = EnsemblePerceptron(members, features - WEIGHED + BESIDE * actions, hidden, COLUMNS)

    def forward(self, observations: Tensor, shares: Tensor) -> Tensor:
        """What shares (rows, actions) are worth more than the heuristic's, (members, rows)."""
        worth: Tensor = (self.gain_by_term(observations, shares) * importance_told(observations)).sum(dim=-1)
        return worth

    def gain_by_term(self, observations: Tensor, shares: Tensor) -> Tensor:
        """What ``shares`` are worth more than the heuristic's by each term, (members, rows, COLUMNS)."""
        return gain(self.advantage, _without_weights(observations), shares)

    def squared_errors(self, observations: Tensor, shares: Tensor, target: Tensor) -> Tensor:
        """Squares (members, rows), summed over the terms of ``target`` (rows, COLUMNS) that are known.

        A term counts as much as the row's site cares for it: what few ask for is to leave room for what most do.
        """
        errors = (self.gain_by_term(observations, shares) - target.nan_to_num()) * importance_told(observations)
        squares: Tensor = (~target.isnan() * errors**2).sum(dim=-1)
        return squares


def importance_told(observations: Tensor) -> Tensor:
    """How much each column of a reward counts for sites that observations (rows, features) tell of, (rows, COLUMNS).

    Of our terms a unit vector on the scale of ``gain_scale.scaled``, so that only ratios of weights matter; a weight
    below a thousandth of the largest one is not told.
    """
    told = observations[:, WEIGHT_FEATURES]
    weights = torch.where(told > 0, LEAST_SHOWN ** (1.0 - told), 0.0)
    typical = weights * told.new_tensor([TYPICAL_GAINS[name] for name in TERM_NAMES])
    ours = typical / typical.norm(dim=-1, keepdim=True)
    return torch.cat((ours, torch.ones_like(ours[:, :1])), dim=-1)


def _without_weights(observations: Tensor) -> Tensor:
    return torch.cat((observations[:, : WEIGHT_FEATURES.start], observations[:, WEIGHT_FEATURES.stop :]), dim=-1)


def sac_for_any_weights(
    actor: Actor, settings: SacSettings, seed: int, critics: WeighedCritics | None = None
) -> Sac[Actor]:
    """Return SAC with such critics, new ones if there are none."""
    return Sac(actor, settings, seed, critics or new_critics(actor, settings.critics, seed, WeighedCritics))
