"""How many jobs are killed at the time limit that rlalloc gave them, by what their speed-up really is."""

from typing import Final, NamedTuple

import msgspec
import numpy as np

from rlalloc.progress import ProgressCallback
from rlalloc_simulator.comparison.compared_policy import REFERENCE, HeuristicPolicy
from rlalloc_simulator.comparison.runner import run_policy
from rlalloc_simulator.site_from_workload import Workload, site_of, submitted_from
from rlalloc_simulator.workloads.workload_job import CurveName, Speed, WorkloadJob
from rlalloc_trainer.evaluation.scenario_weeks import at_load
from rlalloc_trainer.evaluation.scenarios import scenarios

TRUTHS: Final[tuple[CurveName, ...]] = ("bert", "bert-rising", "llama2-lora", "mpt-7b")


class Kills(NamedTuple):
    """Means over workloads: jobs killed as requested and under the policy, and the mean JCT of one over the other."""

    scenario: str
    truth: CurveName
    workloads: int
    killed_as_requested: float
    killed: float
    jct_ratio: float


def kills(policy: str, load: float, report: ProgressCallback, *, quick: bool) -> list[Kills]:
    """Run ``policy`` on the validation workloads, with each truth in the place of the assumed speed-up."""
    weeks = scenarios("validation", None, quick=quick)
    rows = []
    for place, scenario in enumerate(weeks):
        for turn, truth in enumerate(TRUTHS):
            found = []
            for week in scenario.weeks:
                drawn = at_load(scenario.workload(week), load)
                site = site_of(drawn.cluster, drawn.jobs)
                jobs = [_with_truth(job, truth) for job in drawn.jobs]
                workload = Workload(site, tuple(submitted_from(jobs, site)))
                asked, given = (run_policy(HeuristicPolicy(name), workload) for name in (REFERENCE, policy))
                found.append((asked.killed, given.killed, given.jct_s / asked.jct_s))
            asked_killed, killed, ratio = np.mean(found, axis=0).tolist()
            rows.append(Kills(scenario.name, truth, len(found), asked_killed, killed, ratio))
            report(f"{scenario.name}, {truth}", (place + (turn + 1) / len(TRUTHS)) / len(weeks))
    return rows


def _with_truth(job: WorkloadJob, truth: CurveName) -> WorkloadJob:
    return msgspec.structs.replace(
        job, needs=msgspec.structs.replace(job.needs, speed=Speed(truth, job.needs.speed.exponent))
    )
