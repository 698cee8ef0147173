"""Critics for any objective: linear in its weights, as the reward is.

``Q(s, a, w) = V(s, w) + Σ importance(w)_k · [A_k(s, a) - A_k(s, a_heuristic)]``: what shares change by each term does
not depend on what a site wants, so A sees no weights, and what is learned under some of them holds for all others
(the conditioned network of Abels et al., ICML 2019, with its bandit's exact form). A network that is only told the
weights beside all else had to learn that product from noise, and took them for noise in turn (docs/objective.md).
"""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from rlalloc.objective import TERM_NAMES
from rlalloc.objective.weights import LEAST_SHOWN
from rlalloc.observation import WEIGHT_FEATURES
from rlalloc_agent.actor import Actor
from rlalloc_trainer.critic import Critics, EnsemblePerceptron
from rlalloc_trainer.gain_scale import TYPICAL_GAINS
from rlalloc_trainer.sac import Sac, SacSettings, new_critics

TERMS: Final = len(TERM_NAMES)


class WeighedCritics(Critics):
    """An ensemble of them, for observations with weights (``rlalloc.observation``)."""

    def __init__(self, features: int, actions: int, hidden: Sequence[int], members: int = 2) -> None:
        super().__init__(members)
        self.value = EnsemblePerceptron(members, features, hidden)
        self.advantage = EnsemblePerceptron(members, features - TERMS + actions, hidden, outputs=TERMS)

    def forward(self, observations: Tensor, shares: Tensor) -> Tensor:
        """Values (members, rows) of shares (rows, actions) for observations (rows, features)."""
        values: Tensor = self.value(observations) + self.gain(observations, shares)
        return values

    def gain(self, observations: Tensor, shares: Tensor) -> Tensor:
        """What ``shares`` are worth more than the heuristic's, (members, rows)."""
        seen = torch.cat((observations[:, : WEIGHT_FEATURES.start], observations[:, WEIGHT_FEATURES.stop :]), dim=-1)
        chosen = torch.cat((seen, shares), dim=-1)
        heuristic = torch.cat((seen, observations[:, -shares.shape[-1] :]), dim=-1)
        by_term: Tensor = self.advantage(chosen) - self.advantage(heuristic)
        return (by_term * importance_told(observations)).sum(dim=-1)


def importance_told(observations: Tensor) -> Tensor:
    """``gain_scale.importance`` of the weights that observations (rows, features) tell: (rows, terms)."""
    told = observations[:, WEIGHT_FEATURES]
    weights = torch.where(told > 0, LEAST_SHOWN ** (1.0 - told), 0.0)
    typical = weights * told.new_tensor([TYPICAL_GAINS[name] for name in TERM_NAMES])
    importance: Tensor = typical / typical.norm(dim=-1, keepdim=True)
    return importance


def sac_for_any_weights(
    actor: Actor, settings: SacSettings, seed: int, critics: WeighedCritics | None = None
) -> Sac[Actor]:
    """Return SAC with such critics, new ones if there are none."""
    return Sac(actor, settings, seed, critics or new_critics(actor, settings.critics, seed, WeighedCritics))
