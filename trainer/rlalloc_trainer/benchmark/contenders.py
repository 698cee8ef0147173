"""Who is compared: heuristics by name, and learned policies by version, folder, or as shipped."""

import hashlib
from pathlib import Path
from typing import Final

import msgspec

from rlalloc.errors import PolicyError
from rlalloc.heuristics import Heuristic
from rlalloc.heuristics.named import policy_named
from rlalloc.policies import MANIFEST_FILE, PolicyStore
from rlalloc_trainer.evaluation import ActorWeights, policy_of
from rlalloc_trainer.versions import Learned, load_shipped_version, load_version

SHIPPED: Final = "shipped"
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
        shape = repr((self.weights.hidden, self.weights.answers))
        return "actor " + hashlib.sha256(self.weights.content + shape.encode()).hexdigest()

    def policy(self) -> Heuristic:
        """Return what decides."""
        return policy_named(self.name) if self.weights is None else policy_of(self.weights)


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
