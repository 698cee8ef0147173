"""Fewer GPUs mean a longer run: the time limit grows with it, or the job stays as it was submitted."""

import pytest

from slurm_testbed import wait_until

from .conftest import LimitedSite, script

pytestmark = pytest.mark.slurm

RUNS = {"RUNNING", "COMPLETED"}
SLEEP = "exec sleep 600"


def test_a_job_stays_as_submitted_where_its_user_may_not_run_longer(limited: LimitedSite) -> None:
    limited.set_limit("MaxWall=20")
    job_id = limited.rlalloc.submit(script("gpus=1", SLEEP), "--time=10")
    decision = limited.rlalloc.decision(job_id)
    assert "MaxWallPerJob of user llm-alice, 20" in decision.reason
    limited.site.wait_for_states([job_id], RUNS, timeout_s=120)
    assert limited.allocated(job_id)["gres/gpu"] == 4
    assert limited.rlalloc.job(job_id)["TimeLimit"] == "00:10:00"


def test_a_job_shrinks_as_far_as_its_longer_limit_is_allowed(limited: LimitedSite) -> None:
    """On one GPU it would need 45 minutes, on two 23."""
    limited.set_limit("MaxWall=30")
    job_id = limited.rlalloc.submit(script("gpus=1,2", SLEEP), "--time=10")
    decision = limited.rlalloc.decision(job_id)
    assert decision.reason == ""
    limited.site.wait_for_states([job_id], RUNS, timeout_s=120)
    assert limited.allocated(job_id)["gres/gpu"] == 2
    assert limited.rlalloc.job(job_id)["TimeLimit"] == "00:23:00"


def test_a_job_is_not_lengthened_into_a_reservation(limited: LimitedSite) -> None:
    """It would not start before the maintenance; as submitted it runs now."""
    reservation = "ReservationName=maintenance StartTime=now+30minutes Duration=60 Nodes=ALL Users=root Flags=MAINT"
    limited.site.run(["scontrol", "create", "reservation", *reservation.split()])
    try:
        limited.reload()
        job_id = limited.rlalloc.submit(script("gpus=1", SLEEP), "--time=10")
        assert "reservation maintenance" in limited.rlalloc.decision(job_id).reason
        limited.site.wait_for_states([job_id], RUNS, timeout_s=120)
        assert limited.allocated(job_id)["gres/gpu"] == 4
    finally:
        limited.site.run(["scontrol", "delete", "ReservationName=maintenance"])
        limited.reload()


def test_no_job_is_killed_for_our_decision(limited_site: LimitedSite, timed_jobs: dict[str, int]) -> None:
    """On one GPU the work takes longer than the limit that was asked for; without the longer one it is not done."""
    site, control = limited_site.site, timed_jobs["control"]
    for name in ("longer", "control"):
        assert limited_site.rlalloc.decision(timed_jobs[name]).reason == ""
    assert site.wait_for_states([control], {"TIMEOUT", "COMPLETED"}, timeout_s=300) == {str(control): "TIMEOUT"}
    site.wait_for_states([timed_jobs["longer"]], {"COMPLETED"}, timeout_s=300)
    assert limited_site.allocated(timed_jobs["longer"])["gres/gpu"] == 1
    assert limited_site.rlalloc.job(timed_jobs["longer"])["TimeLimit"] == "00:05:00"


def test_the_signal_before_the_end_comes_before_the_new_end(
    limited_site: LimitedSite, timed_jobs: dict[str, int]
) -> None:
    job_id = timed_jobs["signal"]
    wait_until(lambda: limited_site.rlalloc.job(job_id)["TimeLimit"] == "00:05:00", what="its limit has grown")
    assert limited_site.site.wait_for_states([job_id], {"COMPLETED", "FAILED", "TIMEOUT"}, timeout_s=400) == {
        str(job_id): "COMPLETED"
    }
