"""The clairvoyant bound is never above what brute force or any policy reaches, and exact where it can be."""

import itertools
import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlalloc.heuristics import REFERENCE_POLICIES, Ordered
from rlalloc_simulator.driving import drive
from rlalloc_simulator.engine import NodeFailure, SubmittedJob
from rlalloc_simulator.jct_lower_bound import mean_jct_bound_s, shortest_remaining_first
from rlalloc_simulator.site_from_workload import with_urgency
from tests.simulator.engine.by_hand import job, simulator, site, size

SITE = site(nodes=1)
GPUS = 8


@st.composite
def small_workloads(draw: st.DrawFn, most: int = 4) -> list[SubmittedJob]:
    """Up to ``most`` jobs on one node of eight GPUs, all managed, with every kind of end."""
    jobs = []
    for _ in range(draw(st.integers(1, most))):
        run_s = draw(st.floats(1, 500))
        plain = job(draw(st.floats(0, 300)), size(draw(st.sampled_from([1, 2, 4, 8])), 400), run_s, managed=True)
        curve = msgspec.structs.replace(plain.curve, speedup=(1.0, 64.0 ** draw(st.floats(0.2, 1.0))))
        bounds = msgspec.structs.replace(plain.bounds, gpu_counts=(1, 2, 4, 8))
        bounds = msgspec.structs.replace(bounds, gpus=msgspec.structs.replace(bounds.gpus, minimum=1, maximum=8))
        end = draw(
            st.sampled_from(["all", "fails", "cancelled", "cancelled while pending", "short of memory", "needs GPUs"])
        )
        changes: dict[str, object] = {"curve": curve, "bounds": bounds}
        if end == "fails":
            changes |= {"stops_at": draw(st.floats(0.1, 0.9)), "stop_state": "FAILED"}
        elif end == "cancelled":
            changes["cancel_after_s"] = draw(st.floats(1, 300))
        elif end == "cancelled while pending":
            changes["cancel_s"] = plain.submit_s + draw(st.floats(1, 300))
        elif end == "short of memory":
            changes["mem_mib_per_gpu_needed"] = 2000.0
        elif end == "needs GPUs":
            changes["gpus_needed"] = draw(st.integers(1, 9))
        jobs.append(msgspec.structs.replace(plain, **changes))
    return sorted(jobs, key=lambda one: one.submit_s)


@settings(max_examples=40, deadline=None)
@given(small_workloads())
def test_no_policy_comes_below(jobs: list[SubmittedJob]) -> None:
    bound_s = mean_jct_bound_s(SITE, jobs)
    for policy in REFERENCE_POLICIES.values():
        for ordered in (policy, Ordered(policy)):
            outcomes = drive(simulator(jobs, with_urgency(SITE)), jobs, ordered).outcomes
            assert bound_s <= (outcomes["finished_s"] - outcomes["submit_s"]).mean() * (1 + 1e-9) + 1e-6


def test_a_job_that_its_own_limit_ends_is_not_run_again_where_a_smaller_size_kills_it() -> None:
    """As requested it reaches its limit after 400 s; on one GPU it is killed after 680 s * 0.2."""
    plain = job(0, size(8, 400), 1, managed=True)
    curve = msgspec.structs.replace(plain.curve, speedup=(1.0, 64.0**0.25))
    bounds = msgspec.structs.replace(plain.bounds, gpu_counts=(1, 2, 4, 8))
    jobs = [msgspec.structs.replace(plain, work_s=680.0, curve=curve, bounds=bounds, gpus_needed=2)]
    outcomes = drive(simulator(jobs, with_urgency(SITE)), jobs, REFERENCE_POLICIES["smallest"]).outcomes
    assert mean_jct_bound_s(SITE, jobs) <= outcomes["finished_s"][0] == pytest.approx(136.0)


def best_mean_jct_s(jobs: list[SubmittedJob]) -> float:
    """Every order and every size on a pool of GPUs: some list schedule is optimal (Sprecher et al., 1995)."""
    best = math.inf
    for order in itertools.permutations(range(len(jobs))):
        for counts in itertools.product(*(one.bounds.gpu_counts for one in jobs)):
            placed: list[tuple[float, float, int]] = []
            total = 0.0
            for number in order:
                count, one = counts[number], jobs[number]
                run_s = one.work_s / one.curve.at(count, one.curve.cpus_per_gpu_needed)
                start_s = earliest_start_s(placed, one.submit_s, run_s, count)
                placed.append((start_s, start_s + run_s, count))
                total += start_s + run_s - one.submit_s
            best = min(best, total)
    return best / len(jobs)


def earliest_start_s(placed: list[tuple[float, float, int]], released_s: float, run_s: float, count: int) -> float:
    for start_s in sorted({released_s, *(end_s for _, end_s, _ in placed if end_s > released_s)}):
        moments = [start_s, *(other_s for other_s, _, _ in placed if start_s < other_s < start_s + run_s)]
        if all(held_at(placed, moment_s) + count <= GPUS for moment_s in moments):
            return start_s
    raise AssertionError("after the last end everything is free")


def held_at(placed: list[tuple[float, float, int]], moment_s: float) -> int:
    return sum(count for start_s, end_s, count in placed if start_s <= moment_s < end_s)


@settings(max_examples=25, deadline=None)
@given(small_workloads(most=3))
def test_brute_force_comes_not_below(jobs: list[SubmittedJob]) -> None:
    """Of jobs that all run to their end: the best of all schedules that know everything."""
    complete = [
        msgspec.structs.replace(
            one,
            stops_at=1.0,
            stop_state="COMPLETED",
            cancel_s=math.inf,
            cancel_after_s=math.inf,
            mem_mib_per_gpu_needed=0.0,
            request=msgspec.structs.replace(one.request, time_limit_s=100_000),
        )
        for one in jobs
    ]
    assert mean_jct_bound_s(SITE, complete) <= best_mean_jct_s(complete) * (1 + 1e-9) + 1e-6


def test_the_bound_is_reached_by_jobs_that_scale_linearly() -> None:
    """Eight GPUs: 100 and 200 GPU-seconds at once, shortest first on all of them: 12.5 s and 37.5 s."""
    jobs = [job(0, size(8), 12.5, managed=True), job(0, size(8), 25.0, managed=True)]
    assert mean_jct_bound_s(SITE, jobs) == pytest.approx((12.5 + 37.5) / 2)


def test_the_bound_is_reached_by_a_job_alone() -> None:
    jobs = [job(0, size(8), 100, begin_s=50.0)]
    assert mean_jct_bound_s(site(nodes=4), jobs) == pytest.approx(150.0)


def test_shortest_remaining_first() -> None:
    """A task of 10 s is interrupted at 2 s by one of 3 s; one of 20 s waits for both."""
    assert list(shortest_remaining_first([(0.0, 10.0), (2.0, 3.0), (1.0, 20.0)])) == [5.0, 13.0, 33.0]
    assert list(shortest_remaining_first([])) == []
    assert list(shortest_remaining_first([(0.0, 1.0), (5.0, 1.0)])) == [1.0, 6.0]


def test_where_it_would_not_hold_it_is_refused() -> None:
    jobs = [job(0, size(8)), job(1, size(8), dependencies=(("afterok", 0),))]
    with pytest.raises(ValueError, match="dependencies"):
        mean_jct_bound_s(SITE, jobs)
    with pytest.raises(ValueError, match="failures"):
        mean_jct_bound_s(site(failures=(NodeFailure(node=0, time_s=1.0),)), jobs[:1])
    assert mean_jct_bound_s(SITE, []) == 0.0
