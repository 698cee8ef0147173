"""What like jobs did lately, as features."""

import math
import tracemalloc

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlalloc.past_job import Allotted, PastJob
from rlalloc.run_times import recent_runs
from rlalloc.run_times.job_facts import NAME_LENGTH, JobFacts, family_name
from rlalloc.run_times.recent_runs import FEATURES, RECENT, RecentRuns

FACTS = JobFacts(
    user="ann", submitted_s=90_000.0, nodes=2, cpus=16, gpus=4, mem_mib=1600.0, limit_s=1024.0, name="a1"
)


def past_job(run_s: float, ended_s: float = 80_000.0, **changes: object) -> PastJob:
    job = PastJob(
        job_id="1",
        user="ann",
        submitted_s=ended_s - run_s - 10.0,
        started_s=ended_s - run_s,
        ended_s=ended_s,
        state="COMPLETED",
        nodes=2,
        cpus=16,
        gpus=4,
        limit_s=1024.0,
        name="a2",
    )
    return msgspec.structs.replace(job, **changes)


def features(recent: RecentRuns, facts: JobFacts = FACTS, now_s: float = 90_000.0) -> dict[str, float]:
    return dict(zip(FEATURES, recent.features([facts], now_s)[0].tolist(), strict=True))


def test_a_job_itself() -> None:
    found = features(RecentRuns())
    assert found["limit"] == 10.0
    assert (found["nodes"], found["cpus"]) == (1.0, 4.0)
    assert found["mem_per_cpu"] == 100.0
    assert (found["hour"], found["weekday"]) == (1.0, 1.0)
    assert math.isnan(found["user_last"])
    assert math.isnan(features(RecentRuns(), msgspec.structs.replace(FACTS, limit_s=None))["limit"])


def test_statistics_of_like_jobs() -> None:
    recent = RecentRuns()
    for run_s, state in ((16.0, "FAILED"), (256.0, "COMPLETED"), (64.0, "COMPLETED"), (4.0, "COMPLETED")):
        recent.add(past_job(run_s, state=state))
    found = features(recent)
    assert found["user_last"] == 2.0
    assert found["user_one_before"] == 6.0
    assert found["user_mean_of_2"] == 4.0
    assert found["user_median_of_5"] == 5.0
    assert (found["user_shortest"], found["user_longest"]) == (2.0, 8.0)
    assert found["user_completed"] == 0.75
    assert found["user_use_median_of_5"] == -5.0
    assert found["user_runs"] == pytest.approx(math.log2(5))
    assert found["user_age"] == pytest.approx(math.log2(10_000))
    assert found["user_name_last"] == 2.0  # a1 and a2 are one family


def test_others_runs_count_for_the_site_only() -> None:
    recent = RecentRuns()
    recent.add(past_job(64.0, user="bob", account="x", limit_s=60.0))
    found = features(recent)
    assert math.isnan(found["user_last"])
    assert math.isnan(found["limit_size_last"])
    assert found["site_last"] == 6.0


def test_running_jobs_of_the_user_count_until_they_end() -> None:
    recent = RecentRuns()
    recent.started("7", FACTS, 90_000.0 - 512.0)
    recent.started("8", msgspec.structs.replace(FACTS, cpus=1), 90_000.0 - 64.0)
    recent.started("9", msgspec.structs.replace(FACTS, user="bob"), 90_000.0 - 4096.0)
    found = features(recent)
    assert (found["running"], found["running_oldest"]) == (2.0, 9.0)
    assert (found["running_alike"], found["running_alike_newest"]) == (1.0, 9.0)
    recent.add(past_job(512.0, job_id="7"))
    recent.add(past_job(64.0, job_id="8", cpus=1))
    assert features(recent)["running"] == 0.0


def test_only_the_last_runs_count() -> None:
    recent = RecentRuns()
    recent.add(past_job(2.0**30))
    for _ in range(RECENT):
        recent.add(past_job(8.0))
    assert features(recent)["user_longest"] == 3.0


@pytest.mark.parametrize(
    "times",
    [(0.0, -5.0), (math.nan, 10.0), (20.0, 10.0), (0.0, math.inf)],
    ids=["negative", "nan", "backwards", "never ended"],
)
def test_a_job_with_impossible_times_is_left_out(times: tuple[float, float]) -> None:
    recent = RecentRuns()
    recent.add(past_job(1.0, started_s=times[0], ended_s=times[1]))
    assert recent.group("user", FACTS) is None


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("train_7b-2026-11-23", "train-b"),
        ("Train_13b_2025-01-02.3", "train-b"),
        ("2026-11-23", ""),
        ("", ""),
        ("模型9", "模型"),
    ],
)
def test_names_lose_digits_and_dates(name: str, family: str) -> None:
    assert family_name(name) == family


@given(st.text(max_size=2000), st.text(max_size=50), st.integers(-(2**31), 2**31), st.floats())
def test_no_name_or_number_is_too_odd(name: str, user: str, size: int, limit_s: float) -> None:
    assert len(family_name(name)) <= NAME_LENGTH
    facts = JobFacts(
        user=user, submitted_s=9.0, nodes=size, cpus=size, gpus=size, mem_mib=float(size), limit_s=limit_s, name=name
    )
    recent = RecentRuns()
    recent.add(past_job(64.0, user=user, name=name, nodes=size, cpus=size, limit_s=limit_s))
    row = recent.features([facts], 90_000.0)
    assert row.shape == (1, len(FEATURES))
    assert not np.isinf(row).any()


def test_memory_is_bounded_over_all_kinds_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each job of its own user, name, script and size is the worst case; the cap is scaled down and up again."""
    monkeypatch.setattr(recent_runs, "MOST_GROUPS", 2000)
    tracemalloc.start()
    try:
        recent = RecentRuns()
        for number in range(600):
            for _ in range(RECENT):
                recent.add(
                    past_job(60.0, user=f"user{number}", account=f"a{number}", script=f"s{number}", cpus=number)
                )
        recent.features([past_job(60.0, user=f"user{number}") for number in range(600)], 90_000.0)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert recent.groups == 2000
    assert held / 2000 * 80_000 < 150e6


def test_a_job_that_was_resized_counts_with_the_run_time_that_it_would_have_had() -> None:
    smaller = Allotted(nodes=1, cpus=4, gpus=1, mem_mib=1024.0, limit_s=None, slowdown=2.0)
    found, plain = RecentRuns(), RecentRuns()
    found.add(past_job(800.0, allotted=smaller))
    plain.add(past_job(400.0))
    assert features(found) == pytest.approx(features(plain), nan_ok=True)


def test_a_job_that_left_the_queue_runs_no_more() -> None:
    recent = RecentRuns()
    recent.started("7", FACTS, 80_000.0)
    assert features(recent)["running"] == 1
    recent.left("7")
    recent.left("7")
    assert features(recent)["running"] == 0
