"""Choice of a routing: which decisions a network answers, and which heuristic answers the others.

A network that wins where the cluster is full may lose where it is empty, or the other way round. One that wins where
the queue keeps its own order may have nothing to add where smaller jobs go first. On some sites another heuristic
than the baseline is best. So several routings run the same workloads. The best one is taken that is ahead of the
baseline heuristic overall, with the whole interval, and in no third of the workloads behind by more than MARGIN with
the whole interval; else the baseline heuristic alone. A routing that must prove itself on further workloads later
may be ahead here without being significant.
"""

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from rlalloc.heuristics import ALTERNATIVES
from rlalloc.objective import DEFAULT_WEIGHTS
from rlalloc.policy.policies import EVERYWHERE, NOWHERE, Routing
from rlalloc_simulator.comparison.compared_policy import ComparedPolicy, HeuristicPolicy
from rlalloc_simulator.comparison.paired_statistics import (
    Interval,
    jct_ratio,
    jct_ratios_by_third,
    thirds_by_wait,
)
from rlalloc_simulator.comparison.runner import Run, run_all
from rlalloc_simulator.comparison.workload_result import WorkloadResult
from rlalloc_simulator.parallel import ParallelMap
from rlalloc_simulator.site_from_workload import Workload
from rlalloc_trainer.evaluation.learned_policy import LearnedPolicy

Choice = TypeVar("Choice")

PRESSURE: Final = 0.5
"""Jobs that wait ahead request half of the cluster's GPUs: between a queue that comes and goes and one that stays."""
ANY_PRESSURE: Final = 0.01
"""At least one job waits ahead."""
ROUTINGS: Final = (
    EVERYWHERE,
    Routing(at_least=PRESSURE),
    Routing(below=PRESSURE),
    Routing(at_least=ANY_PRESSURE),
    Routing(own_order=True),
    *(Routing.by(name) for name in ALTERNATIVES),
)
"""Routings of a network, and heuristics to serve instead of it and the baseline."""
MARGIN: Final = 0.005
"""A difference that nobody notices: where hardly any job waits, a tenth of a percent is already significant."""


def served(policy: LearnedPolicy, routing: Routing) -> ComparedPolicy:
    """Return the policy that decides under a routing: the heuristic alone where the network answers nothing."""
    return HeuristicPolicy(routing.heuristic) if routing.nowhere else msgspec.structs.replace(policy, routing=routing)


def choose_routing(
    policy: LearnedPolicy, workloads: Sequence[Workload], parallel_map: ParallelMap
) -> tuple[Routing, dict[str, Interval]]:
    """Return the best routing, and the mean JCT of each over that of the baseline heuristic.

    Heuristics know only the default objective: for another one the network answers everywhere.
    """
    routings = ROUTINGS if policy.objective == DEFAULT_WEIGHTS else (EVERYWHERE,)
    runs = {routing: Run(served(policy, routing)) for routing in (NOWHERE, *routings)}
    results = run_all(runs, workloads, parallel_map)
    best, ratios = best_of({routing: results[routing] for routing in routings}, results[NOWHERE])
    return best or NOWHERE, described(ratios)


def described(ratios: Mapping[Routing, Interval]) -> dict[str, Interval]:
    """Return the ratios by the routings' descriptions."""
    return {routing.describe(): ratio for routing, ratio in ratios.items()}


def best_of(
    routings: Mapping[Choice, Sequence[WorkloadResult]], base: Sequence[WorkloadResult], *, proven_later: bool = False
) -> tuple[Choice | None, dict[Choice, Interval]]:
    """Return the best routing by its results (``best_routing``), and the ratio of each to the baseline."""
    thirds = thirds_by_wait(base)
    overall = {routing: jct_ratio(results, base) for routing, results in routings.items()}
    ratios = {
        routing: {"all": overall[routing], **jct_ratios_by_third(results, base, thirds)}
        for routing, results in routings.items()
    }
    return best_routing(ratios, proven_later=proven_later), overall


def best_routing(ratios: Mapping[Choice, Mapping[str, Interval]], *, proven_later: bool = False) -> Choice | None:
    """Return the routing with the lowest ratio among those significantly ahead and in no third behind, or None.

    ``ratios`` are mean JCTs over the baseline's, on all workloads ("all") and in each third. With ``proven_later``
    routings that are ahead, but not significantly, are candidates, too.
    """
    wins = {
        routing: by_third["all"].estimate
        for routing, by_third in ratios.items()
        if (by_third["all"].estimate if proven_later else by_third["all"].high) < 1.0
        and not any(ratio.low > 1.0 and ratio.estimate > 1.0 + MARGIN for ratio in by_third.values())
    }
    return min(wins, key=lambda routing: wins[routing], default=None)
