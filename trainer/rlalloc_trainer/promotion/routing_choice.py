"""Where a learned policy answers, and which heuristic answers elsewhere: chosen on workloads kept for choosing.

A network that wins where the cluster is full may lose where it is empty, or the other way round. One that wins where
the queue keeps its own order may add nothing where smaller jobs go first. On some sites another heuristic than the
baseline is the best. So several routings run on the same workloads, and the best of those is taken that are

- ahead of the baseline over all workloads, by the whole interval;
- in no third of the workloads worse than the baseline by the whole interval and by more than MARGIN.

If there is none, the baseline answers everywhere. A routing that is tested on further workloads before it is served
may be ahead here by its estimate only (``tested_later``).
"""

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from rlalloc.heuristics import ALTERNATIVES
from rlalloc.objective import DEFAULT_WEIGHTS
from rlalloc.policies import EVERYWHERE, NOWHERE, Routing
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

Name = TypeVar("Name")

PRESSURE: Final = 0.5
"""Jobs that wait ahead ask for half of the cluster's GPUs: between a queue that comes and goes and one that stays."""
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
"""Where a network may answer, and heuristics that may answer everywhere instead of it and the baseline."""
MARGIN: Final = 0.005
"""Less than this in a third does not count: where hardly a job waits, intervals exclude even a tenth of a percent."""


def served(policy: LearnedPolicy, routing: Routing) -> ComparedPolicy:
    """Return the policy with this routing, or the heuristic itself where the network never answers."""
    return HeuristicPolicy(routing.heuristic) if routing.nowhere else msgspec.structs.replace(policy, routing=routing)


def choose_routing(
    policy: LearnedPolicy, workloads: Sequence[Workload], parallel_map: ParallelMap
) -> tuple[Routing, dict[str, Interval]]:
    """Return where the network answers, and each routing's mean JCT ratio versus the baseline heuristic.

    Heuristics know nothing of an objective other than the default one: the network then answers everywhere, and only
    this routing runs.
    """
    routings = ROUTINGS if policy.objective == DEFAULT_WEIGHTS else (EVERYWHERE,)
    runs = {routing: Run(served(policy, routing)) for routing in (NOWHERE, *routings)}
    results = run_all(runs, workloads, parallel_map)
    baseline = results.pop(NOWHERE)
    best, ratios = best_of(results, baseline)
    return best or NOWHERE, described(ratios)


def described(ratios: Mapping[Routing, Interval]) -> dict[str, Interval]:
    """Return each routing's ratio by its description, for people."""
    return {routing.describe(): ratio for routing, ratio in ratios.items()}


def best_of(
    results: Mapping[Name, Sequence[WorkloadResult]],
    baseline: Sequence[WorkloadResult],
    *,
    tested_later: bool = False,
) -> tuple[Name | None, dict[Name, Interval]]:
    """Return the name of the best by its results (``best_by_ratios``), and each one's ratio versus the baseline."""
    thirds = thirds_by_wait(baseline)
    overall = {name: jct_ratio(found, baseline) for name, found in results.items()}
    by_third = {name: jct_ratios_by_third(found, baseline, thirds) for name, found in results.items()}
    ratios = {name: {"all": overall[name], **by_third[name]} for name in results}
    return best_by_ratios(ratios, tested_later=tested_later), overall


def best_by_ratios(ratios: Mapping[Name, Mapping[str, Interval]], *, tested_later: bool = False) -> Name | None:
    """Return the name with the lowest ratio among those that may be taken (see the module), or None.

    ``ratios`` has mean JCT ratios versus the baseline, over all workloads ("all") and in each third.
    """
    ahead = {
        name: by_third["all"].estimate
        for name, by_third in ratios.items()
        if (by_third["all"].estimate if tested_later else by_third["all"].high) < 1.0
        and not any(ratio.low > 1.0 and ratio.estimate > 1.0 + MARGIN for ratio in by_third.values())
    }
    return min(ahead, key=lambda name: ahead[name], default=None)
