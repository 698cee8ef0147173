"""What the gate is shown: the candidate, the policy in use and the heuristics on the same held-out workloads.

Where the candidate is refused, a heuristic that the agent can serve may be better than the policy in use. The gate
then judges the best of them, so that a site is never served worse than by rlalloc's own heuristics. Where that is
refused, too, and the policy in use is shown to be worse than as requested, as requested takes its place.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from rlalloc.heuristics import ALTERNATIVES, AS_REQUESTED_NAME, BASELINE_NAME
from rlalloc.objective import DEFAULT_WEIGHTS, Weights
from rlalloc.policy.policies import Routing
from rlalloc_simulator.comparison.compared_policy import REFERENCE, ComparedPolicy, HeuristicPolicy
from rlalloc_simulator.comparison.paired_statistics import (
    jct_ratio,
    jct_ratios_by_third,
    paired_ratio,
    thirds_by_wait,
)
from rlalloc_simulator.comparison.runner import Run, run_all
from rlalloc_simulator.comparison.workload_result import WorkloadResult
from rlalloc_simulator.comparison.worst_users import worst_user
from rlalloc_simulator.parallel import ParallelMap
from rlalloc_simulator.site_from_workload import Workload
from rlalloc_trainer.evaluation.never_worse import SameOrder
from rlalloc_trainer.promotion.gate import Evidence, Verdict, judge, judge_in_use
from rlalloc_trainer.promotion.policy_versions import Learned

CANDIDATE: Final = "the candidate"
INSTEAD: Final = (*ALTERNATIVES, BASELINE_NAME)
"""The heuristics that may take the place of a refused candidate."""
GATE_HEURISTICS: Final = (REFERENCE, "repaired", *INSTEAD)
"""The heuristics that a policy must not be behind."""
SAME_ORDER: Final = AS_REQUESTED_NAME
"""What a policy must never be worse than: as requested, and the smallest area first where urgency counts."""


def measure(
    candidate: ComparedPolicy,
    current: Learned,
    workloads: Sequence[Workload],
    parallel_map: ParallelMap,
    objective: Weights = DEFAULT_WEIGHTS,
) -> dict[str, list[WorkloadResult]]:
    """Run the candidate, the policy in use and the heuristics on the same workloads; results by name."""
    runs = {
        CANDIDATE: Run(candidate),
        current.version: Run(msgspec.structs.replace(current.policy, objective=objective)),
        **{name: Run(HeuristicPolicy(name)) for name in GATE_HEURISTICS},
        SAME_ORDER: Run(HeuristicPolicy(SAME_ORDER)),
    }
    return run_all(runs, workloads, parallel_map)


class HeldOut(NamedTuple):
    """What came out on workloads that were drawn from ``jobs`` held-out ones: ``measure``'s results."""

    results: dict[str, list[WorkloadResult]]
    current: str
    jobs: int
    confidence: float

    def evidence(self, name: str, confidence: float) -> Evidence:
        """Return what the gate needs to judge one of those that ran."""
        results = self.results[name]
        heuristics = {other: self.results[other] for other in GATE_HEURISTICS if other != name}
        thirds = thirds_by_wait(self.results[REFERENCE])
        by_third = {other: jct_ratios_by_third(results, of, thirds, confidence) for other, of in heuristics.items()}
        return Evidence(
            candidate=name,
            current=self.current,
            against_current=jct_ratio(results, self.results[self.current], confidence),
            against_heuristics={other: jct_ratio(results, of, confidence) for other, of in heuristics.items()},
            same_order=same_order(results, self.results[SAME_ORDER], confidence),
            current_same_order=same_order(self.results[self.current], self.results[SAME_ORDER], confidence),
            by_third={third: {other: ratios[third] for other, ratios in by_third.items()} for third in thirds},
            killed_candidate=sum(result.killed for result in results),
            killed_current=sum(result.killed for result in self.results[self.current]),
            held_out_jobs=self.jobs,
            workloads=len(results),
            confidence=confidence,
        )

    def best_heuristic(self) -> str:
        """Return the one of INSTEAD that did best."""
        return min(
            INSTEAD,
            key=lambda name: jct_ratio(self.results[name], self.results[self.current], self.confidence).estimate,
        )


def same_order(
    results: Sequence[WorkloadResult], requested: Sequence[WorkloadResult], confidence: float
) -> SameOrder:
    """What the bar asks: results over those of SAME_ORDER on the same workloads."""
    pairs = list(zip(results, requested, strict=True))
    # All workloads are drawn from the same jobs: a user's are taken together over them.
    worst = worst_user(("held-out jobs", *pair) for pair in pairs)
    return SameOrder(
        jct=jct_ratio(results, requested, confidence),
        p95=paired_ratio((one.jct_p95_s for one in results), (one.jct_p95_s for one in requested), confidence),
        killed=sum(result.killed_by_policy for result in results) / max(1, sum(result.jobs for result in results)),
        worst_user=None if worst is None else worst.ratio,
    )


def decide(held_out: HeldOut, routing: Routing, *, heuristics: bool) -> tuple[Routing, Verdict]:
    """Judge the candidate, which answers as ``routing`` says; if it is refused, the best heuristic in its place.

    Return the routing to store, and the gate's verdict on it. Heuristics are not trained, but this one is the best of
    several on the held-out workloads: its intervals are wider for it (Bonferroni). If it is refused, too, the policy
    in use is judged: one of two intervals is enough to find it worse, so they are wider, too. Without ``heuristics``
    only the candidate is judged: heuristics, and as requested, know nothing of another objective.
    """
    verdict = judge(held_out.evidence(CANDIDATE, held_out.confidence))
    if verdict.promote or not heuristics:
        return routing, verdict
    best = held_out.best_heuristic()
    instead = judge(held_out.evidence(best, 1.0 - (1.0 - held_out.confidence) / len(INSTEAD)))
    if instead.promote:
        return Routing.by(best), instead
    fallback = judge_in_use(held_out.evidence(SAME_ORDER, 1.0 - (1.0 - held_out.confidence) / 2))
    return (routing, verdict) if fallback is None else (Routing.by(SAME_ORDER), fallback)
