"""A learned policy that answers only where it was found to win; a heuristic answers elsewhere."""

import numpy as np
import torch
from numpy.typing import NDArray

from rlalloc.job import SHARES
from rlalloc.objective import DEFAULT_WEIGHTS
from rlalloc.objective.weights import features_of
from rlalloc.observation import WEIGHT_FEATURES, EncodedBatch, answer_columns
from rlalloc.policy.policies import Routing
from rlalloc.policy.policy_inputs import columns_of, rows_of
from rlalloc_agent.actor import Actor, AroundHeuristic

_DEFAULT_OBJECTIVE = features_of(DEFAULT_WEIGHTS.array)
_QUEUED = ("queued_gpus",)
_URGENCY_COUNTS = ("urgency_counts",)


class RoutedPolicy:
    """``actor`` where ``routing`` says so. Elsewhere what an untrained actor answers: its mean is the heuristic's.

    So the heuristic's decisions have probabilities too, and learning can use what is tried around them. The routing
    was found for the default objective. Heuristics know of no other one: there the actor answers everywhere.
    """

    def __init__(self, actor: Actor, routing: Routing) -> None:
        self.actor = actor
        self.routing = routing
        self._heuristic = AroundHeuristic()
        self._answers = answer_columns(routing.heuristic)

    def decide(
        self, batch: EncodedBatch, *, sample: bool, generator: torch.Generator | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return shares (jobs, SHARES) and log-densities (jobs,).

        Raises MissingInputsError if the batch lacks what the routing depends on, or what an answering policy
        reads.
        """
        if self.routing.everywhere:
            return self.actor.decide(self.actor.inputs.rows(batch), sample=sample, generator=generator)
        learned = self.routing.at(pressure_of(batch), _features(batch, _URGENCY_COUNTS)[:, 0] > 0.5)
        learned |= other_objective(batch)
        shares = np.empty((len(learned), SHARES))
        log_probabilities = np.empty(len(learned))
        if learned.any():
            shares[learned], log_probabilities[learned] = self.actor.decide(
                self.actor.inputs.rows(batch)[learned], sample=sample, generator=generator
            )
        left = ~learned
        if left.any():
            answers = rows_of(self._answers, batch)[left]
            shares[left], log_probabilities[left] = self._heuristic.decide(
                answers, sample=sample, generator=generator
            )
            if not sample:
                # To the last digit: an actor keeps shares of 0 and 1 off the flat ends of tanh.
                shares[left] = answers
        return shares, log_probabilities


def pressure_of(batch: EncodedBatch) -> NDArray[np.float64]:
    """Return the GPUs that the jobs waiting ahead ask for, over all of the partition's, (jobs,)."""
    return np.asarray(np.expm1(_features(batch, _QUEUED)[:, 0].astype(np.float64)))


def other_objective(batch: EncodedBatch) -> NDArray[np.bool_]:
    """Return whether each question comes from a site with other weights than the default ones, (jobs,)."""
    return np.asarray((np.abs(_features(batch, WEIGHT_FEATURES) - _DEFAULT_OBJECTIVE) > 1e-6).any(axis=1))


def _features(batch: EncodedBatch, names: tuple[str, ...]) -> NDArray[np.float32]:
    return batch.features[:, columns_of(names, batch.feature_names)]
