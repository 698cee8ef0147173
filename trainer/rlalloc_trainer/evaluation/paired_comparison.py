"""Paired statistics over what has been run. Pure functions of the figures of workloads.

Ratios are geometric means over the weeks of a condition: a scenario with what policies know, at one load. Intervals
resample weeks; seeds of a generated scenario are weeks that share nothing.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from rlalloc_simulator.comparison.paired_statistics import CONFIDENCE, Interval, ratio_of
from rlalloc_simulator.comparison.worst_users import worst_user
from rlalloc_trainer.evaluation.scenario_runs import Condition, Results, Setting, WorkloadKey

Side = tuple[str, Setting]
"""A policy's name and the setting that it ran in."""
Measured = Literal[
    "jct_s",
    "jct_p95_s",
    "jct_p99_s",
    "wait_s",
    "bounded_slowdown",
    "gpu_hours",
    "gpu_use",
    "killed",
    "requeues",
    "jobs",
]


class WorstUsers(NamedTuple):
    """Of the worst user of each workload: the geometric mean over workloads, and the largest.

    The largest of hundreds of ratios is chance, and grows with the number of workloads; the mean does not.
    """

    usual: float
    largest: float


@dataclass(frozen=True, eq=False)
class Comparison:
    """Everything that was run, workload by workload."""

    workloads: Sequence[tuple[WorkloadKey, Results]]

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """What workloads are judged together, in their order."""
        return tuple(dict.fromkeys(key.condition for key, _ in self.workloads))

    @property
    def sides(self) -> tuple[Side, ...]:
        """Policies and the settings that they ran in."""
        return tuple(self.workloads[0][1]) if self.workloads else ()

    def under(self, condition: Condition) -> "Comparison":
        """Return the part under one of the conditions."""
        return Comparison([(key, results) for key, results in self.workloads if key.condition == condition])

    def ratio(self, side: Side, against: Side, measured: Measured = "jct_s") -> Interval:
        """Return ``measured`` of ``side`` over that of ``against`` on the same workloads; NaN where there are none.

        Of several conditions each counts alike. Raises KeyError for a side that did not run.
        """
        strata: dict[Condition, list[float]] = defaultdict(list)
        for key, results in self.workloads:
            one, other = (getattr(results[each], measured) for each in (side, against))
            strata[key.condition].append(math.log(one / other))
        return ratio_of([np.array(values) for values in strata.values()], CONFIDENCE)

    def mean(self, side: Side, measured: Measured) -> float:
        """Return the mean over conditions of the mean over their workloads."""
        values: dict[Condition, list[float]] = defaultdict(list)
        for key, results in self.workloads:
            values[key.condition].append(float(getattr(results[side], measured)))
        return float(np.mean([np.mean(each) for each in values.values()])) if values else math.nan

    def killed_part(self, side: Side) -> float:
        """Return the part of the jobs that were killed for what the policy gave them."""
        found = [results[side] for _, results in self.workloads]
        return sum(each.killed_by_policy for each in found) / max(1, sum(each.jobs for each in found))

    def further(self, side: Side) -> dict[str, float | None]:
        """Return the means of the further figures by name, likewise; None where no workload has one."""
        values: dict[str, dict[Condition, list[float]]] = defaultdict(lambda: defaultdict(list))
        for key, results in self.workloads:
            for name, value in results[side].further.items():
                values[name][key.condition] += [] if value is None else [value]
        means = {name: [np.mean(each) for each in of.values() if each] for name, of in values.items()}
        return {name: float(np.mean(each)) if each else None for name, each in means.items()}

    def worst_user(self, side: Side, against: Side) -> WorstUsers | None:
        """Return how the user who fares worst with ``side`` instead of ``against`` fares: mean JCT over mean JCT.

        Users are those of a single workload, over its runs with moved submissions. None where nobody has enough jobs,
        or ``side`` has not run as often as ``against``: its figure would be mostly chance.
        """
        found = [
            worst.ratio
            for key, results in self.workloads
            if results[side].replicates == results[against].replicates
            and (worst := worst_user([(key.week, results[side], results[against])])) is not None
        ]
        return WorstUsers(math.exp(float(np.mean(np.log(found)))), max(found)) if found else None
