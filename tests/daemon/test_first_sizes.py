"""What new jobs get at once: what is free, after those that wait; everybody else waits as requested."""

import msgspec
import numpy as np
import pytest

from rlalloc.bounds import Directives, NodeShape, SiteBounds, bounds_for
from rlalloc.job import Allocation, JobView, Shares
from rlalloc.view import ClusterView
from rlallocd.candidates import Candidate
from rlallocd.first_sizes import FirstSizes
from rlallocd.job_tag import read_tag
from rlallocd.slurm import JobRecord

from .test_redecision_rules import EIGHT, pending_job

NOW_S = 10_000.0
SHAPE = NodeShape(gpus=8, cpus=64, mem_mib=512_000)
FOUR = msgspec.structs.replace(EIGHT, gpus_per_node=4, cpus_per_task=16, mem_mib_per_node=40_000)
ANSWER = Shares(2 / 3, 1.0, 1.0)
"""Four GPUs within bounds of one to eight."""
VIEW = JobView("train", EIGHT, bounds_for(EIGHT, Directives(gpus=(1, 8)), SiteBounds(), SHAPE), 0.0, 0)


def cluster(*free_gpus: int) -> ClusterView:
    free = np.array([(gpus, 64, 512_000) for gpus in free_gpus], dtype=np.float64)
    return ClusterView(NOW_S, SHAPE, free, free.sum(axis=0), np.empty((0, 4)), np.empty((0, 2)))


def new(job_id: int) -> Candidate:
    record = pending_job(job_id, reason="BeginTime", begin_s=int(NOW_S) + 30)
    tag = read_tag(record.admin_comment)
    assert tag is not None
    return Candidate(record, tag, "enforce")


def gpu_share(first: FirstSizes, candidate: Candidate, view: ClusterView, size: Allocation = FOUR) -> float:
    return first.shares(candidate, VIEW, view, size, ANSWER).gpu


def test_new_jobs_of_one_cycle_share_what_is_free() -> None:
    first, view = FirstSizes((), NOW_S, late=True), cluster(8)
    assert [gpu_share(first, new(job_id), view) for job_id in (1, 2, 3)] == [ANSWER.gpu, ANSWER.gpu, 1.0]


def test_a_waiting_job_that_could_start_comes_first() -> None:
    waiting: tuple[JobRecord, ...] = (pending_job(1), pending_job(2, reason="Dependency"))
    assert gpu_share(FirstSizes(waiting, NOW_S, late=True), new(3), cluster(8)) == 1.0
    assert gpu_share(FirstSizes(waiting, NOW_S, late=True), new(3), cluster(8, 4)) == ANSWER.gpu


def test_what_does_not_fit_waits_with_its_gpus_and_the_answered_cpus_and_memory() -> None:
    got = FirstSizes((), NOW_S, late=True).shares(new(1), VIEW, cluster(2), FOUR, Shares(0.5, 0.25, 0.0, 0.3))
    assert got == Shares(1.0, 0.25, 0.0, 0.3)


def test_a_job_whose_larger_answer_does_not_fit_takes_what_it_asked_for() -> None:
    """Four GPUs are free; the job asked for four, and eight were answered. Nothing is left for the next one."""
    asked = JobView("train", FOUR, bounds_for(FOUR, Directives(gpus=(1, 8)), SiteBounds(), SHAPE), 0.0, 0)
    two = msgspec.structs.replace(FOUR, gpus_per_node=2, cpus_per_task=8, mem_mib_per_node=20_000)
    first, view = FirstSizes((), NOW_S, late=True), cluster(4)
    given = [
        first.shares(new(job_id), asked, view, size, Shares(share, 1.0, 1.0)).gpu
        for job_id, size, share in ((1, EIGHT, 1.0), (2, two, 1 / 3))
    ]
    assert given == pytest.approx([2 / 3, 2 / 3])


@pytest.mark.parametrize("changes", [{"reason": "JobHeldUser"}, {"reason": "Dependency"}, {"is_array": True}])
def test_jobs_that_no_pass_may_reach_get_the_whole_answer(changes: dict[str, object]) -> None:
    candidate = new(1)
    changed = msgspec.structs.replace(candidate, job=msgspec.structs.replace(candidate.job, **changes))
    assert gpu_share(FirstSizes((), NOW_S, late=True), changed, cluster(0)) == ANSWER.gpu


def test_in_shadow_mode_and_with_late_decisions_off_the_answer_stands() -> None:
    shadow = msgspec.structs.replace(new(1), mode="shadow")
    assert gpu_share(FirstSizes((), NOW_S, late=True), shadow, cluster(0)) == ANSWER.gpu
    assert gpu_share(FirstSizes((), NOW_S, late=False), new(1), cluster(0)) == ANSWER.gpu
