"""Limits through the daemon: no job holds what its user could not have had, and none gets stuck on the way."""

import pytest

from slurm_testbed import wait_until

from .conftest import LimitedSite, script

pytestmark = pytest.mark.slurm

RUNS = {"RUNNING", "COMPLETED"}
SLEEP = "exec sleep 600"


def test_a_job_grows_as_far_as_its_user_may(limited: LimitedSite) -> None:
    limited.set_limit("MaxTRES=gres/gpu=6")
    within = limited.rlalloc.submit(script("gpus=6", SLEEP), "--time=10")
    above = limited.rlalloc.submit(script("gpus=8", SLEEP), "--time=10")
    limited.site.wait_for_states([within, above], RUNS, timeout_s=120)
    assert limited.rlalloc.decision(within).reason == ""
    assert limited.allocated(within)["gres/gpu"] == 6
    assert "MaxTRESPerJob of user llm-alice" in limited.rlalloc.decision(above).reason
    assert limited.rlalloc.decision(above).skip_code == "limit"
    assert limited.allocated(above)["gres/gpu"] == 4


def test_a_job_does_not_grow_to_wait_for_a_limit_that_it_would_not_have_met(limited: LimitedSite) -> None:
    limited.set_limit("GrpTRES=gres/gpu=9")
    first = limited.rlalloc.submit(script("gpus=4", SLEEP), "--time=10")
    limited.site.wait_for_states([first], RUNS, timeout_s=120)
    limited.reload()
    second = limited.rlalloc.submit(script("gpus=6", SLEEP), "--time=10")
    limited.site.wait_for_states([second], RUNS, timeout_s=120)
    assert "above GrpTRES of user llm-alice, 9" in limited.rlalloc.decision(second).reason
    assert limited.allocated(second)["gres/gpu"] == 4


def test_jobs_of_one_moment_do_not_grow_in_each_others_way(limited: LimitedSite) -> None:
    """One may have its fifth GPU; if both had, one of them would have to wait for the other."""
    limited.set_limit("GrpTRES=gres/gpu=9")
    jobs = [limited.rlalloc.submit(script("gpus=5", SLEEP), "--time=10") for _ in range(2)]
    limited.site.wait_for_states(jobs, RUNS, timeout_s=120)
    assert sorted(limited.allocated(job_id)["gres/gpu"] for job_id in jobs) in ([4, 4], [4, 5])


def test_a_job_above_a_limit_does_not_slip_below_our_update(limited: LimitedSite) -> None:
    """It waits for ever as submitted; with other CPUs, slurmctld would not look at the limit any more."""
    limited.set_limit("MaxTRES=cpu=4")
    job_id = limited.rlalloc.submit(script("gpus=4 cpus-per-gpu=1.5", SLEEP), "--time=10")
    assert "6 cpu is above MaxTRESPerJob" in limited.rlalloc.decision(job_id).reason
    wait_until(
        lambda: "MaxCpuPerJob" in limited.rlalloc.job(job_id)["Reason"], what="it waits for the limit", timeout_s=120
    )


def test_shrunk_jobs_do_not_get_past_a_limit_that_they_share(limited: LimitedSite) -> None:
    """Two of them may run at a time as submitted; with fewer CPUs, and freed of the limit, all could."""
    limited.set_limit("GrpTRES=cpu=16")
    jobs = [limited.rlalloc.submit(script("gpus=4 cpus-per-gpu=1", "sleep 5"), "--time=10") for _ in range(5)]
    for job_id in jobs:
        assert "GrpTRES of user llm-alice" in limited.rlalloc.decision(job_id).reason
    limited.site.wait_for_states(jobs, {"COMPLETED"}, timeout_s=240)
    assert [limited.allocated(job_id)["cpu"] for job_id in jobs] == [8] * 5
    spans = [_span(limited, job_id) for job_id in jobs]
    assert max(sum(start <= at < end for start, end in spans) for at, _ in spans) <= 2


def test_limits_that_cannot_be_read_leave_jobs_as_submitted(limited: LimitedSite) -> None:
    limited.site.kill("slurmdbd")
    try:
        limited.reload()
        job_id = limited.rlalloc.submit(script("gpus=6", SLEEP), "--time=10")
        assert "limits could not be read" in limited.rlalloc.decision(job_id).reason
        limited.site.wait_for_states([job_id], RUNS, timeout_s=120)
        assert limited.allocated(job_id)["gres/gpu"] == 4
    finally:
        limited.site.start_daemon("slurmdbd")
        limited.reload()


def _span(limited: LimitedSite, job_id: int) -> tuple[str, str]:
    job = limited.rlalloc.job(job_id)
    return job["StartTime"], job["EndTime"]
