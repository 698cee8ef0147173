"""Policies that need no learning, on one interface: a job and a cluster in, shares out.

A learned policy has to beat them. One of them is the baseline that the actor is a residual around; the agent serves
some of them where learning does not win.
"""

from dataclasses import replace
from typing import Final

from rlalloc.heuristics.asked import as_requested, fixed, largest, repaired, smallest
from rlalloc.heuristics.efficiency import adaptive_efficiency_threshold, efficiency_threshold
from rlalloc.heuristics.experts import first_come_first_served, round_robin, shortest_job_first
from rlalloc.heuristics.known_gain import known_costs_s, known_gain
from rlalloc.heuristics.order import SMALLEST_AREA_FIRST, Ordered
from rlalloc.heuristics.price import (
    DEFAULT_PRICE,
    TUNED_PRICE,
    PriceConstants,
    capped_price,
    earliest_finish,
    expected_cost_s,
    price_by_order,
    price_ef,
    steep_price,
)
from rlalloc.heuristics.sharing import afs_l, equal_share, marginal_gain
from rlalloc.heuristics.workable_sizes import CPUS_PER_GPU_ENOUGH, Heuristic

BASELINE_NAME: Final = f"known-gain{SMALLEST_AREA_FIRST}"
BASELINE_OF_0_1: Final = f"price-by-order{SMALLEST_AREA_FIRST}"
BASELINE: Final[Heuristic] = Ordered(known_gain)
"""The heuristic that answers by default, and that the actor of a new network is a residual around."""
_INSTEAD: Final[dict[str, Heuristic]] = {
    "price-ef": replace(price_ef, with_memory=True),
    "price-by-order": replace(price_by_order, with_memory=True),
    "capped-price": replace(capped_price, with_memory=True),
    "marginal-gain": replace(marginal_gain, with_memory=True),
    "efficiency-adaptive": replace(adaptive_efficiency_threshold, with_memory=True),
    "equal-share": replace(equal_share, with_memory=True),
}
ALTERNATIVES: Final[dict[str, Heuristic]] = {
    f"{name}{SMALLEST_AREA_FIRST}": Ordered(policy) for name, policy in _INSTEAD.items()
}
"""Heuristics that the agent can serve instead of the baseline, on a site where one is better.

All of them answer the baseline's CPU and memory shares. Price-by-order and capped-price are kept for networks that
read their answers."""
AS_REQUESTED_NAME: Final = f"as-requested{SMALLEST_AREA_FIRST}"
"""No policy may be worse than this heuristic. It is served instead of a policy that is."""
SERVED_HEURISTICS: Final[dict[str, Heuristic]] = {
    **ALTERNATIVES,
    BASELINE_NAME: BASELINE,
    AS_REQUESTED_NAME: Ordered(as_requested),
}
"""All heuristics that the agent can serve. Each is asked once for every question that goes to the agent."""

REFERENCE_POLICIES: Final[dict[str, Heuristic]] = {
    "as-requested": as_requested,
    "repaired": repaired,
    "smallest": smallest,
    "largest": largest,
    "known-gain": known_gain,
    "steep-price": steep_price,
    "fcfs": first_come_first_served,
    "sjf": shortest_job_first,
    "round-robin": round_robin,
    "fixed-4": fixed(4),
    "afs-l": afs_l,
    "efficiency": efficiency_threshold,
    "earliest-finish": earliest_finish,
    **_INSTEAD,
}
"""What an evaluation can compare with."""

__all__ = [
    "ALTERNATIVES",
    "AS_REQUESTED_NAME",
    "BASELINE",
    "BASELINE_NAME",
    "BASELINE_OF_0_1",
    "CPUS_PER_GPU_ENOUGH",
    "DEFAULT_PRICE",
    "REFERENCE_POLICIES",
    "SERVED_HEURISTICS",
    "TUNED_PRICE",
    "Heuristic",
    "Ordered",
    "PriceConstants",
    "adaptive_efficiency_threshold",
    "afs_l",
    "as_requested",
    "capped_price",
    "earliest_finish",
    "efficiency_threshold",
    "equal_share",
    "expected_cost_s",
    "first_come_first_served",
    "fixed",
    "known_costs_s",
    "known_gain",
    "largest",
    "marginal_gain",
    "price_by_order",
    "price_ef",
    "repaired",
    "round_robin",
    "shortest_job_first",
    "smallest",
    "steep_price",
]
