"""Scenarios at every load, as workloads for the one evaluator, and the settings that policies run in there."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec

from rlalloc.config import DaemonSection
from rlalloc.past_job import PastJob
from rlalloc.progress import ProgressCallback
from rlalloc_simulator.comparison.compared_policy import REFERENCE, ComparedPolicy
from rlalloc_simulator.comparison.runner import Run, RunSettings, run_all, source_digest
from rlalloc_simulator.comparison.workload_result import WorkloadResult
from rlalloc_simulator.engine import Simulator, table_of
from rlalloc_simulator.knowledge import LEVELS, Knowledge, with_knowledge
from rlalloc_simulator.parallel import ParallelMap
from rlalloc_simulator.site_from_workload import (
    SIMULATED_URGENCY,
    Workload,
    site_of,
    submitted_from,
    with_usual_scheduler,
)
from rlalloc_simulator.workloads.workload_errors import WorkloadError
from rlalloc_trainer.evaluation.left_out_priors import PRIORS_WITHOUT
from rlalloc_trainer.evaluation.scenario_weeks import at_load, with_calm_ends
from rlalloc_trainer.evaluation.scenarios import AS_RECORDED, FEW_SEEDS, LOADS, PolluxWeeks, Scenario

Setting = Literal["sizes", "urgency", "requeue"]
LATE_AFTER_S: Final = DaemonSection().poll_s
"""When a site decides that changes no setting: late, at the latest so long after resources were freed."""
REPLICATES: Final = 6
"""Runs of a workload with moved submissions, of the policies that are judged most closely."""
AGAIN: Final = f"{REFERENCE}, again"
"""As requested in further runs with moved submissions: over itself, it shows what of a figure is chance."""
_USUAL: Final = RunSettings(knowledge=None, further=True, late_after_s=LATE_AFTER_S)
SETTINGS: Final[Mapping[Setting, RunSettings]] = {
    "sizes": _USUAL,
    "urgency": msgspec.structs.replace(_USUAL, urgency=SIMULATED_URGENCY),
    "requeue": msgspec.structs.replace(_USUAL, urgency=SIMULATED_URGENCY, requeue=True),
}
"""Sizes only; sizes and the order of the queue; both, and running jobs requeued in other sizes (a reference)."""


class WorkloadKey(msgspec.Struct, frozen=True):
    """One workload: of which scenario, which of its weeks, at which load, and what policies know of run times."""

    scenario: Scenario
    week: int
    load: float
    knowledge: Knowledge = "limits"

    @property
    def condition(self) -> "Condition":
        """Which of the workloads that are judged together it is one of."""
        return Condition(self.scenario.name, self.knowledge, self.load)

    @property
    def digest(self) -> str:
        """All that the workload follows from. A file is known by its digest, wherever it lies.

        Other weeks of a scenario do not change one week.
        """
        return _said(self) + source_digest("rlalloc_trainer.evaluation")

    @property
    def origin(self) -> str:
        """The same jobs, whatever is known of them."""
        return _said(msgspec.structs.replace(self, knowledge="limits"))

    def workload(self) -> Workload:
        """Return the workload. Raises WorkloadError if a job is too large for the scenario's cluster."""
        workload, past = _plain_workload(msgspec.structs.replace(self, knowledge="limits"))
        return Workload(workload.site, with_knowledge(*workload, self.knowledge, past))


def _said(key: WorkloadKey) -> str:
    replaced: dict[str, object] = {"weeks": (), "knowledge": ()}
    for place in ("path", "folder"):
        if hasattr(key.scenario, place):
            replaced[place] = Path()
    plain = msgspec.structs.replace(key, scenario=msgspec.structs.replace(key.scenario, **replaced))
    return msgspec.json.encode(plain, enc_hook=str).decode()


@functools.lru_cache(maxsize=1)
def _plain_workload(key: WorkloadKey) -> tuple[Workload, tuple[PastJob, ...]]:
    """The workload without what is known of it, and its past. Kept: levels of knowledge come one after the other."""
    drawn = key.scenario.workload(key.week)
    if key.load != AS_RECORDED:
        drawn = with_calm_ends(at_load(drawn, key.load), key.load)
    site = with_usual_scheduler(site_of(drawn.cluster, drawn.jobs), drawn.jobs)
    try:
        believed = PRIORS_WITHOUT.get(key.scenario.scaling or "")
        submitted = [msgspec.structs.replace(job, speed=believed) for job in submitted_from(drawn.jobs, site)]
        Simulator(site, table_of(submitted, site))
    except ValueError as err:
        raise WorkloadError(f"{key.scenario.name}, week {key.week}: {err}; make its cluster larger") from err
    return Workload(site, tuple(submitted)), drawn.past


class Condition(NamedTuple):
    """Workloads that are judged together."""

    scenario: str
    knowledge: Knowledge
    load: float

    def __str__(self) -> str:
        at = "" if self.load in (AS_RECORDED, *LOADS) else f" at load {self.load:g}"
        return f"{self.scenario}, {self.knowledge}{at}"


Results = dict[tuple[str, Setting], WorkloadResult]
"""By a policy's name and the setting."""


class Extent(msgspec.Struct, frozen=True, kw_only=True):
    """How much is run: at which loads, with which levels of knowledge, at most so many weeks of each scenario.

    Policies in ``often`` run each workload ``replicates`` times, with moved submissions; others run it once. Those
    in ``by_gain`` are held to the gain that the daemon wants of a waiting job's new size; the others' sizes count.
    """

    loads: tuple[float, ...] = LOADS
    levels: tuple[Knowledge, ...] = LEVELS
    most_weeks: int | None = None
    often: tuple[str, ...] = ()
    by_gain: tuple[str, ...] = ()
    replicates: int = REPLICATES

    def settings_of(self, policy: str, rules: RunSettings) -> RunSettings:
        """Return the settings that a policy runs in where others run in ``rules``."""
        replicates = self.replicates if policy in self.often else 1
        return msgspec.structs.replace(
            rules,
            as_answered=policy not in self.by_gain,
            replicates=replicates,
            first=replicates if policy == AGAIN else 0,
        )

    def keys(self, scenarios: Sequence[Scenario]) -> list[WorkloadKey]:
        """Return the workloads: all weeks with a site's history, FEW_SEEDS with what else policies may know."""
        return [
            WorkloadKey(scenario, week, load, knowledge)
            for scenario in scenarios
            for knowledge in scenario.knowledge
            if knowledge in self.levels
            for load in ((AS_RECORDED,) if isinstance(scenario, PolluxWeeks) else self.loads)
            for week in scenario.weeks[: None if knowledge == "history" else FEW_SEEDS][: self.most_weeks]
        ]


def run_scenarios(
    scenarios: Sequence[Scenario],
    extent: Extent,
    policies: Mapping[str, ComparedPolicy],
    settings: Mapping[Setting, RunSettings],
    cache: Path,
    parallel_map: ParallelMap,
    report: ProgressCallback,
) -> list[tuple[WorkloadKey, Results]]:
    """Run every policy on every workload in every setting, with each level of knowledge that a scenario has.

    Raises WorkloadError and RlallocError as ``run_all``.
    """
    keys = extent.keys(scenarios)
    runs = {
        (name, setting): Run(policy, extent.settings_of(name, rules))
        for name, policy in policies.items()
        for setting, rules in settings.items()
    }
    found = run_all(runs, keys, parallel_map, report, cache)
    return [(key, {side: results[place] for side, results in found.items()}) for place, key in enumerate(keys)]
