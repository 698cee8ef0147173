"""What a site wants: terms, each a cost of a job in seconds, and their weights.

``terms`` are pure functions of what became of jobs (``consequences``). The reward of a decision is the weighted sum
of its terms' costs, or of their differences where a simulator takes the decision again; since it is a dot product,
what was seen once has a reward for any weights (``reward``). The weights are inputs of the policy (``weights``).
"""

from rlalloc.objective.consequences import DEFAULT_POWER, Consequences, PowerModel, Resources
from rlalloc.objective.terms import REWARDS, TERMS, Setting, Term, costs_of
from rlalloc.objective.weights import DEFAULT_WEIGHTS, TERM_NAMES, Weights

__all__ = [
    "DEFAULT_POWER",
    "DEFAULT_WEIGHTS",
    "REWARDS",
    "TERMS",
    "TERM_NAMES",
    "Consequences",
    "PowerModel",
    "Resources",
    "Setting",
    "Term",
    "Weights",
    "costs_of",
]
