"""The weights of a site's objective, and the features by which a policy is conditioned on them."""

from typing import Annotated, Final

import msgspec
import numpy as np

from rlalloc.objective.consequences import FloatArray

NotNegative = Annotated[float, msgspec.Meta(ge=0, le=1e6)]
LEAST_SHOWN: Final = 1e-3
"""Weights below this part of the largest one look like none to the policy."""


class Weights(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Weights of our own terms (``rlalloc.objective.terms``), in their order. Only ratios count."""

    jct: NotNegative = 1.0
    wait: NotNegative = 0.0
    slowdown: NotNegative = 0.0
    gpu_held: NotNegative = 0.0
    cpu_held: NotNegative = 0.0
    mem_held: NotNegative = 0.0
    gpu_waste: NotNegative = 0.0
    cpu_waste: NotNegative = 0.0
    mem_waste: NotNegative = 0.0
    energy: NotNegative = 0.0
    latency: NotNegative = 0.0
    network: NotNegative = 0.0
    fairness: NotNegative = 0.0
    out_of_memory: NotNegative = 1.0
    timeout: NotNegative = 1.0

    @property
    def array(self) -> FloatArray:
        """The weights (terms,) as they are."""
        return np.array(msgspec.structs.astuple(self), dtype=np.float64)


TERM_NAMES: Final = Weights.__struct_fields__
DEFAULT_WEIGHTS: Final = Weights()
"""Completion time, the others' included, and what a killed job loses."""


def relative(weights: FloatArray) -> FloatArray:
    """Weights (…, terms) over the largest of each row: what a reward is made with.

    So rewards stay on one scale whatever the weights. Raises ValueError where all of a row are 0.
    """
    largest = weights.max(axis=-1, keepdims=True)
    if not (largest > 0).all():
        raise ValueError("all weights are 0: give at least one term a weight")
    return np.asarray(weights / largest, dtype=np.float64)


def features_of(weights: FloatArray) -> FloatArray:
    """Weights (…, terms) as inputs of the policy, in [0, 1]: 1 for the largest, a third less by each power of 10."""
    return np.asarray(1.0 + np.log10(np.maximum(relative(weights), LEAST_SHOWN)) / -np.log10(LEAST_SHOWN))
