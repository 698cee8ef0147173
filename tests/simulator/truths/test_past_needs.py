"""What the simulator knows of needs is what the daemon would know; a true need kills a job that got less."""

from functools import cache

import msgspec
import pytest

from rlalloc.scripts.consent import NO_CONSENT
from rlalloc.usage.past_bounds import PAST_JOBS, KnownNeeds, with_past_needs
from rlalloc.usage.past_usage import PastUsage
from rlalloc.usage.trimming_rules import DEFAULT_RULES
from rlalloc_simulator.comparison.compared_policy import REFERENCE, HeuristicPolicy
from rlalloc_simulator.comparison.runner import RunSettings, run_policy
from rlalloc_simulator.comparison.workload_result import WorkloadResult
from rlalloc_simulator.engine import SimulatedSite, SubmittedJob
from rlalloc_simulator.knowledge import Knowledge, with_knowledge
from rlalloc_simulator.past_of_workload import remembered
from rlalloc_simulator.site_from_workload import Workload, site_of, submitted_from
from rlalloc_simulator.truths.people import Habits
from rlalloc_simulator.truths.sites import WeekWorkload, peopled
from rlalloc_simulator.workloads import ClusterDescription, NodeGroup
from rlalloc_simulator.workloads.generator import GeneratorSettings, generate
from rlalloc_simulator.workloads.workload_model import load_model

NODE = NodeGroup("n", 4, 8, 96, 768_000)
JOBS = 150


@cache
def people(declared: float = 0.0) -> WeekWorkload:
    jobs = list(generate(load_model("philly"), GeneratorSettings(cluster=NODE, hours=48.0, load=8.0, seed=5)))
    cluster = ClusterDescription(nodes=(NODE,))
    return peopled(cluster, NODE, jobs[-JOBS:], jobs[:-JOBS], Habits(declared=declared), 0)


def submitted(declared: float = 0.0) -> tuple[SimulatedSite, list[SubmittedJob]]:
    made = people(declared)
    site = site_of(made.cluster, made.jobs)
    return site, submitted_from(made.jobs, site)


def run(jobs: tuple[SubmittedJob, ...], site: SimulatedSite, policy: str = "repaired") -> WorkloadResult:
    return run_policy(HeuristicPolicy(policy), Workload(site, jobs), RunSettings(knowledge=None))


@pytest.mark.parametrize("declared", [0.0, 1.0])
def test_bounds_are_those_of_the_daemon_after_the_same_past(declared: float) -> None:
    """Each job is told of by what had ended when it was submitted, and what its user declared stays."""
    site, jobs = submitted(declared)
    past = remembered(site, jobs, people(declared).past)
    by_end = sorted(past.jobs, key=lambda job: job.ended_s)
    known = with_knowledge(site, jobs, "history", people(declared).past)
    trimmed = added = 0
    usage = PastUsage(DEFAULT_RULES)
    for number in (0, JOBS // 2, JOBS - 1):
        mine, plain = past.jobs[past.first + number], jobs[number]
        while by_end[added].ended_s <= mine.submitted_s:
            usage.add(by_end[added])
            added += 1
        needs = KnownNeeds(usage.floors(mine))
        expected = with_past_needs(plain.bounds, plain.request, plain.directives, NO_CONSENT, needs)
        assert known[number].bounds == expected
        trimmed += expected.cpus_per_gpu.minimum_from == PAST_JOBS
        trimmed += expected.mem_mib_per_gpu.minimum < plain.bounds.mem_mib_per_gpu.minimum
    assert (trimmed > 0) == (declared == 0.0)


@pytest.mark.parametrize("knowledge", ["limits", "truth"])
def test_without_a_history_nothing_is_trimmed(knowledge: Knowledge) -> None:
    site, jobs = submitted()
    known = with_knowledge(site, jobs, knowledge, people().past)
    assert [job.bounds for job in known] == [job.bounds for job in jobs]


def test_repairing_frees_what_nobody_declared() -> None:
    """With a history, ``repaired`` holds fewer CPUs than as requested; without one it cannot."""
    site, jobs = submitted()
    held = {
        knowledge: sum(
            job.bounds.cpus_per_gpu.minimum * job.request.gpus
            for job in with_knowledge(site, jobs, knowledge, people().past)
        )
        for knowledge in ("limits", "history")
    }
    assert held["history"] < 0.8 * held["limits"]


def test_a_need_that_jumps_kills_and_is_our_doing() -> None:
    """Jobs that suddenly need all that they asked for are killed in what like jobs used, and none as requested."""
    site, jobs = submitted()
    needy = [
        msgspec.structs.replace(job, mem_mib_per_gpu_needed=job.request.mem_mib_per_gpu, work_s=600.0 + job.work_s)
        if number >= JOBS // 2
        else job
        for number, job in enumerate(jobs)
    ]
    known = with_knowledge(site, needy, "history", people().past)
    assert run(known, site).killed_by_policy > 0
    assert run(known, site, REFERENCE).killed_by_policy == 0
    assert run(with_knowledge(site, needy, "limits"), site).killed_by_policy == 0
