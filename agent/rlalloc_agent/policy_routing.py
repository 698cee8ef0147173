"""A learned policy that answers only where it was found to win; elsewhere a heuristic answers."""

import numpy as np
import torch
from numpy.typing import NDArray

from rlalloc.job import SHARES
from rlalloc.objective import DEFAULT_WEIGHTS
from rlalloc.objective.weights import features_of
from rlalloc.observation import FEATURES, WEIGHT_FEATURES, as_if_based_on
from rlalloc.policies import Routing
from rlalloc_agent.actor import Actor

_DEFAULT_OBJECTIVE = features_of(DEFAULT_WEIGHTS.array)
_QUEUED = FEATURES.index("queued_gpus")
_URGENCY_COUNTS = FEATURES.index("urgency_counts")


class RoutedPolicy:
    """``actor`` where ``routing`` says so. Elsewhere an untrained actor, whose mean is the heuristic's answer.

    So the heuristic's decisions have probabilities too, and what is tried around it can be learned from. Where it
    wins was found for the default objective; of any other one the heuristic knows nothing, and the actor answers.
    """

    def __init__(self, actor: Actor, routing: Routing) -> None:
        self.actor = actor
        self.routing = routing
        self._heuristic = Actor(actor.features, actor.hidden).eval()

    def decide(
        self, observations: NDArray[np.float32], *, sample: bool, generator: torch.Generator | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Shares (jobs, SHARES) and log-densities (jobs,), as Actor.decide."""
        if self.routing.everywhere:
            return self.actor.decide(observations, sample=sample, generator=generator)
        learned = self.routing.at(pressure_of(observations), observations[:, _URGENCY_COUNTS] > 0.5)
        learned |= other_objective(observations)
        shares = np.empty((len(observations), SHARES))
        log_probabilities = np.empty(len(observations))
        if learned.any():
            shares[learned], log_probabilities[learned] = self.actor.decide(
                observations[learned], sample=sample, generator=generator
            )
        left = ~learned
        if left.any():
            around = as_if_based_on(self.routing.heuristic, observations[left])
            shares[left], log_probabilities[left] = self._heuristic.decide(around, sample=sample, generator=generator)
            if not sample:
                # To the last digit: an actor keeps shares of 0 and 1 off the flat ends of tanh.
                shares[left] = around[:, -SHARES:]
        return shares, log_probabilities


def pressure_of(observations: NDArray[np.float32]) -> NDArray[np.float64]:
    """GPUs that the jobs waiting ahead ask for, over all of the partition's, (jobs,)."""
    return np.expm1(observations[:, _QUEUED].astype(np.float64))


def other_objective(observations: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Whether an observation is of a site with other weights than the default ones, (jobs,)."""
    told = observations[:, WEIGHT_FEATURES]
    return np.asarray((np.abs(told - _DEFAULT_OBJECTIVE) > 1e-6).any(axis=1))
