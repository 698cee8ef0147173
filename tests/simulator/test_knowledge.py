"""What policies know of run times changes what they decide, and nothing else."""

import msgspec
import pytest

from rlalloc_simulator.comparison.compared_policy import HeuristicPolicy
from rlalloc_simulator.comparison.load_comparison import ComparisonSettings, LoadWorkload
from rlalloc_simulator.comparison.runner import RunSettings, run_policy
from rlalloc_simulator.comparison.workload_result import WorkloadResult
from rlalloc_simulator.knowledge import Knowledge, knowledge_named, with_knowledge
from rlalloc_simulator.past_of_workload import as_requested
from rlalloc_simulator.report.recording import alone_s
from rlalloc_simulator.site_from_workload import Workload
from rlalloc_simulator.workloads.workload_errors import WorkloadError

SETTINGS = ComparisonSettings(hours=12.0, nodes=4, limits="people")


def workload(seed: int = 0) -> Workload:
    return LoadWorkload(SETTINGS, 1.5, seed).workload()


def result(policy: str, knowledge: Knowledge, seed: int = 0) -> WorkloadResult:
    return run_policy(HeuristicPolicy(policy), workload(seed), RunSettings(knowledge=knowledge))


def test_with_limits_only_nothing_is_known() -> None:
    site, jobs = workload()
    assert with_knowledge(site, jobs, "limits") == jobs


def test_the_truth_is_the_run_time_as_requested() -> None:
    site, jobs = workload()
    for plain, known in zip(jobs, with_knowledge(site, jobs, "truth"), strict=True):
        assert known.run_time is not None
        assert known.run_time.median_s == max(1.0, alone_s(plain))
        assert msgspec.structs.replace(known, run_time=None) == plain


def test_knowledge_changes_what_is_decided_but_not_what_runs_as_requested() -> None:
    assert result("as-requested", "truth") == result("as-requested", "limits")
    assert result("price-ef+smallest-area-first", "truth") != result("price-ef+smallest-area-first", "limits")


def test_with_limits_as_people_choose_them_knowing_run_times_pays() -> None:
    policy = "price-ef+smallest-area-first"
    limits, truth = (sum(result(policy, level, seed).jct_s for seed in range(3)) for level in ("limits", "truth"))
    assert truth < 0.95 * limits


def test_a_wrong_word_is_named() -> None:
    with pytest.raises(WorkloadError, match="--knowledge all: write one of limits, history, model"):
        knowledge_named("all")


def test_history_is_of_jobs_that_had_ended_when_a_job_was_submitted() -> None:
    """What comes after a submission changes no estimate, and the first job knows nothing."""
    site, jobs = workload()
    known = with_knowledge(site, jobs, "history")
    assert known[0].run_time is None
    assert known[-1].run_time is not None
    ended = [job for job in as_requested(site, jobs) if job.ended_s <= jobs[200].submit_s]
    assert 0 < len(ended) < 200
    part = with_knowledge(site, jobs[:201], "history")
    assert part[:201] == known[:201]
    assert result("price-ef+smallest-area-first", "history") == result("price-ef+smallest-area-first", "history")


def test_a_user_whose_jobs_are_alike_is_known_after_a_few() -> None:
    site, jobs = workload()
    often = max(range(len(site.users)), key=lambda user: sum(job.user == user for job in jobs))
    alike = [
        job if job.user != often else msgspec.structs.replace(job, work_s=job.curve.at(job.request.gpus, 100.0) * 777)
        for job in jobs
    ]
    mine = [job for job in with_knowledge(site, alike, "history") if job.user == often]
    assert mine[-1].run_time is not None
    assert mine[-1].run_time.median_s == pytest.approx(777, rel=0.2)
