"""When a size is decided: mean JCT over as requested in the same order, by rule, in the simulator.

    python bench/decision_moment.py [--pollux FOLDER] [--policy price-ef] [--only SCENARIO] [--weeks 4]

Rules: ``arrival`` decides each job once, when it comes; ``waiting`` asks again about the first 32 waiting jobs every
30 s, three times at most; ``late S`` is ``rlalloc.late_decisions``, S seconds after resources were freed. Behind each
ratio stand updates per job. Validation workloads, knowledge from history. docs/results/late-decisions.md has figures.
"""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Final

import msgspec

from rlalloc_simulator.comparison.compared_policy import REFERENCE, HeuristicPolicy
from rlalloc_simulator.comparison.runner import RunSettings, run_policy
from rlalloc_simulator.comparison.workload_result import WorkloadResult
from rlalloc_simulator.site_from_workload import Workload
from rlalloc_trainer.evaluation.scenario_runs import SETTINGS, Setting, WorkloadKey
from rlalloc_trainer.evaluation.scenarios import AS_RECORDED, PolluxWeeks, scenarios

LOAD: Final = 1.2
ORDERS: Final[tuple[Setting, ...]] = ("sizes", "urgency")
REVIEW_S: Final = 30.0
LATE_S: Final = (0.0, 1.5, 5.0, 30.0)
SCENARIOS: Final = ("modest site", "80% resizable")
"""And those of Pollux, where ``--pollux`` names its folder."""


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description="When a size is decided, in the simulator.")
    parser.add_argument("--pollux", type=Path, help="folder with Pollux's tables and workloads")
    parser.add_argument("--policy", action="append", help="a heuristic; without it, price-ef")
    parser.add_argument("--only", help="one scenario")
    parser.add_argument("--weeks", type=int, default=4, help="workloads of each scenario")
    options = parser.parse_args()
    names = ["arrival", "waiting", *(f"late {seconds:g} s" for seconds in LATE_S)]
    print(f"| scenario | order | policy | as requested, s | {' | '.join(names)} |")
    print(f"|---|---|---|---:|{'---:|' * len(names)}")
    for scenario in scenarios("validation", None, options.pollux, quick=True):
        if scenario.name not in SCENARIOS and not isinstance(scenario, PolluxWeeks):
            continue
        if options.only not in (None, scenario.name):
            continue
        load = AS_RECORDED if isinstance(scenario, PolluxWeeks) else LOAD
        weeks = scenario.weeks[: options.weeks]
        workloads = [WorkloadKey(scenario, week, load, "history").workload() for week in weeks]
        for order in ORDERS:
            for policy in options.policy or ["price-ef"]:
                jct_s, figures = compared(policy, workloads, SETTINGS[order])
                print(f"| {scenario.name} | {order} | {policy} | {jct_s:,.0f} | {' | '.join(figures)} |", flush=True)


def compared(name: str, workloads: Sequence[Workload], usual: RunSettings) -> tuple[float, list[str]]:
    """Mean JCT as requested [s], and each rule's ratio with updates per job."""
    plain = msgspec.structs.replace(usual, further=False, late_after_s=None)
    late = [msgspec.structs.replace(plain, late_after_s=seconds) for seconds in LATE_S]
    reference = run(REFERENCE, workloads, plain)
    ways = [run(name, workloads, plain), run(name, [reviewed(each) for each in workloads], plain)]
    ways += [run(name, workloads, each) for each in late]
    return fmean(one.jct_s for one in reference), [figure(way, reference) for way in ways]


def reviewed(workload: Workload) -> Workload:
    """The same workload where waiting jobs are asked about every REVIEW_S seconds."""
    rules = msgspec.structs.replace(workload.site.interception, review_interval=REVIEW_S, review_limit=4)
    return workload._replace(site=msgspec.structs.replace(workload.site, interception=rules))


def run(name: str, workloads: Sequence[Workload], settings: RunSettings) -> list[WorkloadResult]:
    """Run all workloads under a heuristic, in the order that the settings allow."""
    return [run_policy(HeuristicPolicy(name, smallest_first=True), each, settings) for each in workloads]


def figure(results: Sequence[WorkloadResult], reference: Sequence[WorkloadResult]) -> str:
    """Geometric mean of the ratios of mean JCT, and updates per job."""
    logs = [math.log(one.jct_s / other.jct_s) for one, other in zip(results, reference, strict=True)]
    updates = sum(each.updates for each in results) / sum(each.jobs for each in results)
    return f"{math.exp(fmean(logs)):.3f} ({updates:.2f})"


if __name__ == "__main__":
    main()
