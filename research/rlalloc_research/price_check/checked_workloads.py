"""The validation workloads on which predictions are checked, with and without urgency. Test seeds stay unseen."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from rlalloc.heuristics import Heuristic, as_requested, known_gain
from rlalloc.heuristics.order import Ordered
from rlalloc.progress import ProgressCallback
from rlalloc_research.price_check.forced_sizes import RetakenDecision, retaken_decisions
from rlalloc_simulator.site_from_workload import SIMULATED_URGENCY, with_late_decisions, with_urgency
from rlalloc_simulator.workloads.workload_errors import WorkloadError
from rlalloc_trainer.evaluation.scenario_runs import LATE_AFTER_S, Extent
from rlalloc_trainer.evaluation.scenarios import scenarios

OTHERS: Final[dict[str, Heuristic]] = {"known-gain": known_gain, "as-requested": as_requested}
"""What decides all jobs but the one."""


class CheckSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``decisions`` of each workload are taken again, of ``seeds`` workloads of each scenario.

    ``pollux`` adds Pollux's workloads. ``only`` names scenarios to keep.
    """

    decisions: int = 20
    seeds: int = 2
    others: str = "known-gain"
    pollux: Path | None = None
    only: tuple[str, ...] = ()


class CheckedWorkload(NamedTuple):
    """The decisions of one workload that were taken again."""

    scenario: str
    urgency: bool
    decisions: list[RetakenDecision]


def checked_workloads(settings: CheckSettings, report: ProgressCallback) -> Iterator[CheckedWorkload]:
    """Yield one workload after the other. Raises WorkloadError for an unknown word."""
    if settings.others not in OTHERS:
        raise WorkloadError(f"--others {settings.others}: write one of {', '.join(OTHERS)}")
    known = scenarios("validation", None, settings.pollux, quick=True)
    if unknown := set(settings.only) - {each.name for each in known}:
        raise WorkloadError(f"--only {min(unknown)}: write one of {'; '.join(each.name for each in known)}")
    chosen = [each for each in known if not settings.only or each.name in settings.only]
    keys = Extent(levels=("history",), most_weeks=settings.seeds).keys(chosen)
    for done, key in enumerate(keys, 1):
        workload = key.workload()
        site = with_late_decisions(workload.site, LATE_AFTER_S)
        policy = OTHERS[settings.others]
        for urgency in (False, True):
            taken = retaken_decisions(
                workload._replace(site=with_urgency(site, SIMULATED_URGENCY) if urgency else site),
                Ordered(policy) if urgency else policy,
                settings.decisions,
                key.week,
            )
            yield CheckedWorkload(key.scenario.name, urgency, taken)
        report(f"workload {done} of {len(keys)}", done / len(keys))
