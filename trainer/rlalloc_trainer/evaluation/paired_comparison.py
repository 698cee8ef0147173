"""Paired statistics over what has been run. Pure functions of the figures of workloads.

Ratios are geometric means: of a week's workloads (its windows and loads) first, then of a scenario's weeks, then of
the scenarios, so that each counts alike however many jobs or workloads it has. Intervals resample weeks within
scenarios.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from rlalloc_simulator.comparison.paired_statistics import CONFIDENCE, Interval, ratio_of
from rlalloc_simulator.comparison.workload_result import UserSum, WorkloadResult
from rlalloc_trainer.evaluation.scenario_runs import Results, Setting, WorkloadKey

LEAST_JOBS: Final = 20
"""A user with fewer jobs in a scenario at a load is nobody's worst user: the mean JCT of a few jobs is chance."""

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


@dataclass(frozen=True, eq=False)
class Comparison:
    """Everything that was run, workload by workload."""

    workloads: Sequence[tuple[WorkloadKey, Results]]

    @property
    def scenarios(self) -> tuple[str, ...]:
        """Names of the scenarios, in the order of the workloads."""
        return tuple(dict.fromkeys(key.scenario.name for key, _ in self.workloads))

    @property
    def loads(self) -> tuple[float, ...]:
        """Offered loads, ascending."""
        return tuple(sorted({key.load for key, _ in self.workloads}))

    @property
    def sides(self) -> tuple[Side, ...]:
        """Policies and the settings that they ran in."""
        return tuple(self.workloads[0][1]) if self.workloads else ()

    def ratio(
        self,
        side: Side,
        against: Side,
        measured: Measured = "jct_s",
        *,
        loads: Iterable[float] | None = None,
        scenarios: Iterable[str] | None = None,
    ) -> Interval:
        """Return ``measured`` of ``side`` over that of ``against`` on the same workloads; NaN where there are none.

        Raises KeyError for a side that did not run.
        """
        weeks: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        for key, results in self._at(loads, scenarios):
            one, other = (getattr(results[each], measured) for each in (side, against))
            weeks[key.scenario.name][key.week].append(math.log(one / other))
        strata = [np.array([np.mean(values) for values in of_weeks.values()]) for of_weeks in weeks.values()]
        return ratio_of(strata, CONFIDENCE)

    def mean(self, side: Side, measured: Measured, *, loads: Iterable[float] | None = None) -> float:
        """Return the mean over scenarios of the mean over their workloads."""
        values: dict[str, list[float]] = defaultdict(list)
        for key, results in self._at(loads, None):
            values[key.scenario.name].append(float(getattr(results[side], measured)))
        return float(np.mean([np.mean(each) for each in values.values()])) if values else math.nan

    def further(self, side: Side) -> dict[str, float | None]:
        """Return the means of the further figures by name, likewise; None where no workload has one."""
        values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for key, results in self._at(None, None):
            for name, value in results[side].further.items():
                values[name][key.scenario.name] += [] if value is None else [value]
        means = {name: [np.mean(each) for each in of.values() if each] for name, of in values.items()}
        return {name: float(np.mean(each)) if each else None for name, each in means.items()}

    def worst_user(
        self, side: Side, against: Side, *, loads: Iterable[float] | None = None
    ) -> tuple[float, str] | None:
        """Return the user who fares worst with ``side`` instead of ``against``: mean JCT over mean JCT, and who.

        A user's jobs are taken together over all workloads of a scenario at one load. None where nobody has
        LEAST_JOBS.
        """
        ratios = []
        for (scenario, load), workloads in self._by_load(loads).items():
            with_s = _together(results[side] for results in workloads)
            without_s = _together(results[against] for results in workloads)
            for user, sums in with_s.items():
                before = without_s.get(user)
                if before is not None and sums.jobs >= LEAST_JOBS:
                    ratio = (sums.jct_s / sums.jobs) / (before.jct_s / before.jobs)
                    ratios.append((ratio, f"{user} of {scenario} at load {load:g}"))
        return max(ratios, default=None)

    def _at(
        self, loads: Iterable[float] | None, scenarios: Iterable[str] | None
    ) -> Iterable[tuple[WorkloadKey, Results]]:
        wanted_loads = None if loads is None else set(loads)
        wanted = None if scenarios is None else set(scenarios)
        for key, results in self.workloads:
            if (wanted_loads is None or key.load in wanted_loads) and (wanted is None or key.scenario.name in wanted):
                yield key, results

    def _by_load(self, loads: Iterable[float] | None) -> dict[tuple[str, float], list[Results]]:
        groups: dict[tuple[str, float], list[Results]] = defaultdict(list)
        for key, results in self._at(loads, None):
            groups[key.scenario.name, key.load].append(results)
        return groups


def _together(figures: Iterable[WorkloadResult]) -> dict[str, UserSum]:
    sums: dict[str, UserSum] = {}
    for each in figures:
        for user, more in each.users.items():
            before = sums.get(user, UserSum(0, 0.0))
            sums[user] = UserSum(before.jobs + more.jobs, before.jct_s + more.jct_s)
    return sums
