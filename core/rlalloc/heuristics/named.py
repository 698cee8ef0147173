"""All reference policies by name: with and without shortest-first order, and the one that takes a solver."""

import inspect
from typing import Final

from rlalloc.errors import PolicyError
from rlalloc.heuristics import REFERENCE_POLICIES
from rlalloc.heuristics.order import Ordered
from rlalloc.heuristics.packing import solver_is_there, window_packing
from rlalloc.heuristics.sizes import Heuristic

SHORTEST_FIRST: Final = "+shortest-first"
"""What a name ends with where the policy's urgency is not always 1 (``Ordered``)."""
SOLVER_POLICIES: Final[dict[str, Heuristic]] = {"cp-sat": window_packing}
"""Those that want OR-Tools; a decision takes about a tenth of a second."""


def policy_named(name: str) -> Heuristic:
    """Return the policy. Raises PolicyError if there is none of that name, or its solver is not installed."""
    plain = name.removesuffix(SHORTEST_FIRST)
    known = REFERENCE_POLICIES | SOLVER_POLICIES
    if plain not in known:
        raise PolicyError(f"no policy {name!r}: write one of {', '.join(known)}, or with {SHORTEST_FIRST} behind it")
    if plain in SOLVER_POLICIES and not solver_is_there():
        raise PolicyError(f"policy {name!r} wants OR-Tools: pip install 'rlalloc[ortools]'")
    return known[plain] if plain == name else Ordered(known[plain])


def described() -> dict[str, tuple[str, str]]:
    """Return what each policy does and where it comes from, by name: its docstring's first line, and the rest."""
    answer = {}
    for name, policy in (REFERENCE_POLICIES | SOLVER_POLICIES).items():
        what, _, source = (inspect.getdoc(policy) or "").partition("\n\n")
        answer[name] = (" ".join(what.split()), " ".join(source.split()))
    return answer
