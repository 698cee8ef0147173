"""Which policies an evaluation compares: heuristics by name, learned ones by version, folder, or as shipped."""

from pathlib import Path
from typing import Final

from rlalloc.errors import PolicyError
from rlalloc.heuristics.named import policy_named
from rlalloc.policy.policies import MANIFEST_FILE, PolicyStore
from rlalloc_simulator.comparison.compared_policy import ComparedPolicy, HeuristicPolicy
from rlalloc_trainer.promotion.policy_versions import load_shipped_version, load_version

SHIPPED: Final = "shipped"
BASELINES: Final = ("repaired", "marginal-gain", "afs-l", "efficiency-adaptive")
"""What every evaluation compares with, beside REFERENCE: repairing alone, Optimus, AFS, the adaptive threshold."""


def policy_to_compare(name: str, store: PolicyStore | None) -> ComparedPolicy:
    """Return the policy: ``shipped``, a folder with a manifest, a version of the store, or a heuristic.

    Where urgency counts, a heuristic puts the smallest area first; a learned policy has an urgency of its own.
    Raises PolicyError if there is none of that name, or its files are damaged.
    """
    if name == SHIPPED:
        return load_shipped_version().policy
    if (Path(name) / MANIFEST_FILE).is_file():
        return load_version(Path(name)).policy
    if store is not None and name in store.versions():
        return load_version(store.path(name)).policy
    try:
        policy_named(name)
    except PolicyError as err:
        versions = ", ".join(store.versions()) if store is not None else ""
        stored = f", a version of the store ({versions})" if versions else ""
        raise PolicyError(f"{err}; or {SHIPPED}, the folder of a policy{stored}") from err
    return HeuristicPolicy(name, smallest_first=True)
