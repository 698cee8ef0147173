"""What is believed before a family is known: how parameters vary between families, by empirical Bayes."""

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from rlalloc.speed.speed_belief import SpeedBelief
from rlalloc_research.speed_model.measured_tables import Family

_START_MEAN: Final = (-1.0, -1.5, -0.5, -2.0, 0.0, 1.0)
_START_SPREAD: Final = (1.5, 1.5, 1.5, 1.0, 1.0, 1.5)
_ROUNDS: Final = 4
_LEAST_SPREAD: Final = 0.15


def fitted_prior(families: Iterable[Family]) -> SpeedBelief:
    """Fit each family from the prior, then the prior to what was found, a few times (expectation maximisation)."""
    measured = [family.measurements() for family in families if family.tells_scaling]
    prior = SpeedBelief(np.array(_START_MEAN), np.diag(np.square(_START_SPREAD)))
    for _ in range(_ROUNDS):
        fitted = [prior.updated(each) for each in measured]
        means = np.array([each.mean for each in fitted])
        variances = np.array([np.diag(each.covariance) for each in fitted])
        mean = means.mean(axis=0)
        spread = np.maximum(_LEAST_SPREAD**2, (variances + (means - mean) ** 2).mean(axis=0))
        prior = SpeedBelief(mean, np.diag(spread))
    return prior


def priors_without(families: Sequence[Family]) -> dict[str, SpeedBelief]:
    """By model: the prior that knows every other model."""
    models = dict.fromkeys(family.model for family in families)
    return {model: fitted_prior(family for family in families if family.model != model) for model in models}


def described(prior: SpeedBelief) -> str:
    """The prior's means and standard deviations, as text."""
    figures = (prior.mean, np.sqrt(np.diag(prior.covariance)))
    mean, spread = (", ".join(f"{value:.2f}" for value in values) for values in figures)
    return f"mean ({mean}), standard deviation ({spread})"
