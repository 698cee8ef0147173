"""Where a learned policy answers, and which heuristic does elsewhere: chosen on workloads kept for choosing.

A network that wins where the cluster is full may lose where it is empty, or the other way round, and one that wins
where the queue keeps its own order may have nothing to add where smaller jobs go first; on some sites another
heuristic than the base is the best. Ways to serve are run on the same workloads; the best of those that are surely
ahead of the baseline heuristic over all, and in no third of the workloads surely and by more than MARGIN behind, is
taken, or the base alone. Sure is what the whole interval says. What has to prove itself on further workloads before
it is served may be ahead here without being sure.
"""

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from rlalloc.heuristics import ALTERNATIVES
from rlalloc.objective import DEFAULT_WEIGHTS
from rlalloc.policies import EVERYWHERE, NOWHERE, Routing
from rlalloc_simulator.comparison.compared_policy import ComparedPolicy, HeuristicPolicy
from rlalloc_simulator.comparison.paired_statistics import Interval, jct_ratio, thirds_by_wait
from rlalloc_simulator.comparison.runner import run_policies
from rlalloc_simulator.comparison.workload_result import WorkloadResult
from rlalloc_simulator.parallel import ParallelMap
from rlalloc_simulator.site_from_workload import Workload
from rlalloc_trainer.evaluation.learned_policy import LearnedPolicy

Way = TypeVar("Way")

PRESSURE: Final = 0.5
"""Half of the cluster's GPUs asked for by jobs that wait ahead: between a queue that comes and goes and one that
stays."""
ANY_PRESSURE: Final = 0.01
"""Somebody waits ahead."""
WAYS: Final = (
    EVERYWHERE,
    Routing(at_least=PRESSURE),
    Routing(below=PRESSURE),
    Routing(at_least=ANY_PRESSURE),
    Routing(own_order=True),
    *(Routing.by(name) for name in ALTERNATIVES),
)
"""Ways to serve a network, and heuristics to serve instead of it and the base."""
MARGIN: Final = 0.005
"""So little in a third is nothing to anybody: where hardly a job waits, a tenth of a percent is already sure."""


def served(policy: LearnedPolicy, way: Routing) -> ComparedPolicy:
    """Return what decides where a network is served in that way: the heuristic, where the network is never asked."""
    return HeuristicPolicy(way.heuristic) if way.nowhere else msgspec.structs.replace(policy, routing=way)


def choose_routing(
    policy: LearnedPolicy, workloads: Sequence[Workload], parallel_map: ParallelMap
) -> tuple[Routing, dict[str, Interval]]:
    """Return where the network answers, and each way's mean JCT over that of the baseline heuristic.

    Of another objective than the default one heuristics know nothing: the network answers in any way, and one is run.
    """
    ways = WAYS if policy.objective == DEFAULT_WEIGHTS else (EVERYWHERE,)
    policies = {way: served(policy, way) for way in (NOWHERE, *ways)}
    results = run_policies(policies, workloads, parallel_map)
    best, ratios = best_of({way: results[way] for way in ways}, results[NOWHERE])
    return best or NOWHERE, described(ratios)


def described(ratios: Mapping[Routing, Interval]) -> dict[str, Interval]:
    """Return what was measured of each way, for people."""
    return {way.describe(): ratio for way, ratio in ratios.items()}


def best_of(
    ways: Mapping[Way, Sequence[WorkloadResult]], base: Sequence[WorkloadResult], *, proven_later: bool = False
) -> tuple[Way | None, dict[Way, Interval]]:
    """Return the best of the ways to serve by their results (``best_routing``), and each's ratio to the base."""
    thirds = thirds_by_wait(base)
    ratios = {
        way: {
            name: jct_ratio(those(results, rows), those(base, rows))
            for name, rows in {"all": np.arange(len(base)), **thirds}.items()
        }
        for way, results in ways.items()
    }
    return best_routing(ratios, proven_later=proven_later), {way: by_third["all"] for way, by_third in ratios.items()}


def best_routing(ratios: Mapping[Way, Mapping[str, Interval]], *, proven_later: bool = False) -> Way | None:
    """Return the way of the least ratio among those that are surely ahead and in no third behind, or None.

    ``ratios`` has each way's mean JCT over the baseline's, over all workloads ("all") and in each third. With
    ``proven_later`` those count too that are ahead and not surely so.
    """
    wins = {
        way: by_third["all"].estimate
        for way, by_third in ratios.items()
        if (by_third["all"].estimate if proven_later else by_third["all"].high) < 1.0
        and not any(ratio.low > 1.0 and ratio.estimate > 1.0 + MARGIN for ratio in by_third.values())
    }
    return min(wins, key=lambda way: wins[way], default=None)


def those(results: Sequence[WorkloadResult], rows: NDArray[np.intp]) -> list[WorkloadResult]:
    """Return the results at these places."""
    return [results[row] for row in rows.tolist()]
