"""How much terms of the objective count, reckoned anew: what critics are held to."""

import numpy as np

from rlalloc.objective import TERM_NAMES
from rlalloc_trainer.advantages.advantage_scale import TYPICAL_ADVANTAGES


def importance(weights: np.ndarray) -> np.ndarray:
    """Unit vectors of weights (…, terms) in multiples of what is typical of each term."""
    typical = weights * [TYPICAL_ADVANTAGES[name] for name in TERM_NAMES]
    return np.asarray(typical / np.linalg.norm(typical, axis=-1, keepdims=True))
