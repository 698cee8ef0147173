"""All policies by name: our own, those of plug-ins, each with and without an order of the queue."""

import inspect
from dataclasses import dataclass
from typing import Final

import msgspec

from rlalloc.errors import PluginError, PolicyError
from rlalloc.heuristics import REFERENCE_POLICIES
from rlalloc.heuristics.order import ORDERS, Ordered
from rlalloc.heuristics.packing import solver_is_there, window_packing
from rlalloc.heuristics.workable_sizes import Heuristic
from rlalloc.job import JobView, Shares
from rlalloc.plugins import Registry
from rlalloc.view import ClusterView

SOLVER_POLICIES: Final[dict[str, Heuristic]] = {"cp-sat": window_packing}
"""Those that want OR-Tools; a decision takes about a tenth of a second."""
EXPERTS: Final = Registry("rlalloc.experts", REFERENCE_POLICIES | SOLVER_POLICIES)


@dataclass(frozen=True)
class PluggedExpert:
    """A policy of a plug-in, whose answers are checked. It may be sent to other processes: it is its name."""

    name: str

    def __call__(self, job: JobView, view: ClusterView) -> Shares:
        """Return its shares. Raises PluginError where it fails, or answers anything but shares in [0, 1]."""
        with EXPERTS.errors_named(self.name):
            shares = EXPERTS.get(self.name)(job, view)
        if not isinstance(shares, Shares) or not all(
            0.0 <= value <= 1.0 for value in msgspec.structs.astuple(shares)
        ):
            raise PluginError(f"{EXPERTS.describe(self.name)} answered {shares!r}: it has to return Shares in [0, 1]")
        return shares


def policy_named(name: str) -> Heuristic:
    """Return the policy.

    Raises PolicyError if there is none of that name, or its solver is not installed, PluginError if its plug-in
    cannot be used.
    """
    order = next((order for order in ORDERS if name.endswith(order)), "")
    plain = name.removesuffix(order)
    if plain not in EXPERTS.names():
        raise PolicyError(
            f"no policy {name!r}: write one of {', '.join(EXPERTS.names())}, optionally with "
            f"{' or '.join(ORDERS)} after it"
        )
    if plain in SOLVER_POLICIES and not solver_is_there():
        raise PolicyError(f"policy {name!r} needs OR-Tools: pip install 'rlalloc[ortools]'")
    policy = EXPERTS.get(plain)
    if plain not in EXPERTS.own:
        policy = PluggedExpert(plain)
    return Ordered(policy, ORDERS[order]) if order else policy


def described() -> dict[str, tuple[str, str]]:
    """Return what each policy does and where it comes from, by name: its docstring's first line, and the rest.

    A plug-in's source is also its distribution; one that cannot be used says why.
    """
    answer = {}
    for name in EXPERTS.names():
        try:
            what, _, source = (inspect.getdoc(EXPERTS.get(name)) or "").partition("\n\n")
        except PluginError as err:
            what, source = str(err), ""
        if name not in EXPERTS.own:
            source = f"{source} {EXPERTS.describe(name)}"
        answer[name] = (" ".join(what.split()), " ".join(source.split()))
    return answer
