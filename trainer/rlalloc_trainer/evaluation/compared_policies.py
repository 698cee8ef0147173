"""Who is compared: heuristics by name, learned policies by version, folder, or as shipped."""

import hashlib
from pathlib import Path
from typing import Final

import msgspec

from rlalloc.errors import PolicyError
from rlalloc.heuristics import Heuristic, Ordered
from rlalloc.heuristics.named import policy_named
from rlalloc.policies import MANIFEST_FILE, PolicyStore
from rlalloc.urgency import UrgencyRules
from rlalloc_trainer.evaluation.policy_runs import ActorWeights, policy_of
from rlalloc_trainer.promotion.policy_versions import Learned, load_shipped_version, load_version

SHIPPED: Final = "shipped"
NO_URGENCY: Final = UrgencyRules()
BASELINE: Final = "as-requested"
SCEPTICS: Final = (
    "repaired",
    "equal-share",
    "marginal-gain",
    "afs-l",
    "efficiency",
    "efficiency-adaptive",
    "earliest-finish",
    "price-ef",
    "steep-price",
    "capped-price",
)
"""What a learned policy has to be compared with, beside the baseline (LEARNING: a sceptic would try these)."""


class Contender(msgspec.Struct, frozen=True):
    """A policy that can be sent to another process. ``weights`` is None for a heuristic."""

    name: str
    weights: ActorWeights | None = None

    @property
    def digest(self) -> str:
        """What a cached result belongs to: the name of a heuristic (its code is digested elsewhere), or weights."""
        if self.weights is None:
            return f"heuristic {self.name}"
        shape = repr((self.weights.hidden, self.weights.inputs, self.weights.routing))
        return "actor " + hashlib.sha256(self.weights.content + shape.encode()).hexdigest()

    def policy(self, urgency: UrgencyRules = NO_URGENCY) -> Heuristic:
        """Return what decides on a site with these rules.

        Where urgency counts a heuristic puts the smallest area first; a learned policy has an urgency of its own.
        """
        if self.weights is not None:
            return policy_of(self.weights)
        heuristic = policy_named(self.name)
        return Ordered(heuristic) if urgency.nice_band > 0 and not isinstance(heuristic, Ordered) else heuristic


def contender_named(name: str, store: PolicyStore | None) -> Contender:
    """Return the contender: ``shipped``, a folder with a manifest, a version of the store, or a heuristic.

    Raises PolicyError if there is none of that name, or its files are damaged.
    """
    if name == SHIPPED:
        return _learned(name, load_shipped_version())
    if (Path(name) / MANIFEST_FILE).is_file():
        return _learned(name, load_version(Path(name)))
    if store is not None and name in store.versions():
        return _learned(name, load_version(store.path(name)))
    try:
        policy_named(name)
    except PolicyError as err:
        versions = ", ".join(store.versions()) if store is not None else ""
        stored = f", a version of the store ({versions})" if versions else ""
        raise PolicyError(f"{err}; or {SHIPPED}, the folder of a policy{stored}") from err
    return Contender(name)


def _learned(name: str, learned: Learned) -> Contender:
    return Contender(name, learned.weights)
