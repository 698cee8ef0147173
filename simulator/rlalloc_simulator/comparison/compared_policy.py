"""What is compared: anything that gives a heuristic for a site, and that can be sent to another process."""

from typing import Final, Protocol

import msgspec

from rlalloc.heuristics import Heuristic, Ordered
from rlalloc.heuristics.named import policy_named
from rlalloc.urgency import UrgencyRules

REFERENCE: Final = "as-requested"
"""The policy that mean JCTs are divided by: each job gets what its user asked for."""


class ComparedPolicy(Protocol):
    """A policy that runs workloads, in this process or in another one. It has its name from who compares it."""

    @property
    def digest(self) -> str:
        """What a kept result belongs to, beside the sources of ``rlalloc`` and ``rlalloc_simulator``."""
        ...

    def policy(self, urgency: UrgencyRules) -> Heuristic:
        """Return what decides on a site with these rules. Raises PolicyError or PluginError if it cannot be had."""
        ...


class HeuristicPolicy(msgspec.Struct, frozen=True):
    """A heuristic by its name; with ``smallest_first``, in that order where urgency counts, unless it has its own."""

    name: str
    smallest_first: bool = False

    @property
    def digest(self) -> str:
        """The name, and whether it orders the queue."""
        return f"heuristic {self.name}{' smallest first' if self.smallest_first else ''}"

    def policy(self, urgency: UrgencyRules) -> Heuristic:
        """Return the heuristic."""
        heuristic = policy_named(self.name)
        if self.smallest_first and urgency.nice_band > 0 and not isinstance(heuristic, Ordered):
            return Ordered(heuristic)
        return heuristic
