"""Scenarios at every load, as workloads for the one evaluator, and the settings that policies run in there."""

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Final, Literal

import msgspec

from rlalloc_simulator.comparison.compared_policy import ComparedPolicy
from rlalloc_simulator.comparison.runner import Run, RunSettings, run_all, source_digest
from rlalloc_simulator.comparison.workload_result import WorkloadResult
from rlalloc_simulator.engine import Simulator, table_of
from rlalloc_simulator.knowledge import Knowledge
from rlalloc_simulator.parallel import ParallelMap
from rlalloc_simulator.progress import ProgressCallback
from rlalloc_simulator.site_from_workload import SIMULATED_URGENCY, Workload, site_of, submitted_from
from rlalloc_simulator.workloads.chosen_limits import Limits, with_limits
from rlalloc_simulator.workloads.workload_errors import WorkloadError
from rlalloc_trainer.evaluation.scenario_weeks import WeekWorkload, at_load
from rlalloc_trainer.evaluation.scenarios import Scenario

Setting = Literal["sizes", "urgency", "requeue"]
SETTINGS: Final[Mapping[Setting, RunSettings]] = {
    "sizes": RunSettings(further=True),
    "urgency": RunSettings(urgency=SIMULATED_URGENCY, further=True),
    "requeue": RunSettings(urgency=SIMULATED_URGENCY, requeue=True, further=True),
}
"""Sizes only; sizes and the order of the queue; both, and running jobs requeued in other sizes (a reference)."""


class Conditions(msgspec.Struct, frozen=True):
    """What policies know of run times, and how users choose time limits."""

    knowledge: Knowledge = "limits"
    limits: Limits = "recorded"


AS_USUAL: Final = Conditions()


class WorkloadKey(msgspec.Struct, frozen=True):
    """One workload: which scenario, week, part of the week, load, and kind of time limits."""

    scenario: Scenario
    week: int
    part: int
    load: float
    limits: Limits = "recorded"

    @property
    def digest(self) -> str:
        """All that the workload follows from. A file is known by its digest, wherever it lies.

        Other weeks of a scenario do not change one week.
        """
        replaced: dict[str, object] = {"weeks": ()}
        if hasattr(self.scenario, "path"):
            replaced["path"] = Path()
        plain = msgspec.structs.replace(self, scenario=msgspec.structs.replace(self.scenario, **replaced))
        return msgspec.json.encode(plain, enc_hook=str).decode() + source_digest("rlalloc_trainer.evaluation")

    def workload(self) -> Workload:
        """Return the workload. Raises WorkloadError if a job is too large for the scenario's cluster."""
        week = self.scenario.workload(self.week, self.part)
        jobs = with_limits(week.jobs, self.limits, 100 * self.week + self.part)
        drawn = at_load(WeekWorkload(week.cluster, tuple(jobs)), self.load)
        site = site_of(drawn.cluster, drawn.jobs)
        try:
            submitted = submitted_from(drawn.jobs, site)
            Simulator(site, table_of(submitted, site))
        except ValueError as err:
            raise WorkloadError(f"{self.scenario.name}, week {self.week}: {err}; make its cluster larger") from err
        return Workload(site, tuple(submitted))


Results = dict[tuple[str, Setting], WorkloadResult]
"""By a policy's name and the setting."""


def run_scenarios(
    scenarios: Sequence[Scenario],
    loads: Sequence[float],
    policies: Mapping[str, ComparedPolicy],
    settings: Sequence[Setting],
    cache: Path,
    parallel_map: ParallelMap,
    report: ProgressCallback,
    conditions: Conditions = AS_USUAL,
) -> list[tuple[WorkloadKey, Results]]:
    """Run every policy on every workload in every setting. Raises WorkloadError and RlallocError as ``run_all``."""
    keys = [
        WorkloadKey(scenario, week, part, load, conditions.limits)
        for scenario in scenarios
        for week, part in product(scenario.weeks, range(scenario.parts))
        for load in loads
    ]
    runs = {
        (name, setting): Run(policy, msgspec.structs.replace(SETTINGS[setting], knowledge=conditions.knowledge))
        for name, policy in policies.items()
        for setting in settings
    }
    found = run_all(runs, keys, parallel_map, report, cache)
    return [(key, {side: results[place] for side, results in found.items()}) for place, key in enumerate(keys)]
