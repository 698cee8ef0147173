"""What new jobs get at once: what is free, after those that wait; everybody else waits as requested."""

from collections.abc import Sequence

import msgspec
import pytest

from rlalloc.allocation import shares_of
from rlalloc.bounds import Directives, NodeShape, SiteBounds, bounds_for
from rlalloc.job import Allocation, JobView, Shares
from rlalloc.urgency import UrgencyRules
from rlallocd.cluster.cluster_views import ClusterViews
from rlallocd.cluster.node_access import NO_FACTS, SiteFacts
from rlallocd.cluster.node_pools import NodePools
from rlallocd.decisions.first_sizes import FirstSizes
from rlallocd.slurm import JobRecord, LicenseRecord, SchedulingRules
from rlallocd.slurm.json_reader import whole_list
from rlallocd.submissions.candidates import Candidate
from rlallocd.submissions.job_tag import read_tag

from .slurm_in_memory import NODE, gpus
from .test_redecision_rules import EIGHT, pending_job
from .test_request_sizes_and_tags import TAG

NOW_S = 10_000.0
SHAPE = NodeShape(gpus=8, cpus=64, mem_mib=512_000)
FOUR = msgspec.structs.replace(EIGHT, gpus_per_node=4, cpus_per_task=16, mem_mib_per_node=40_000)
ANSWER = Shares(2 / 3, 1.0, 1.0)
"""Four GPUs within bounds of one to eight."""
VIEW, VIEW_OF_FOUR = (
    JobView("train", size, bounds_for(size, Directives(gpus=(1, 8)), SiteBounds(), SHAPE), 0.0, 0)
    for size in (EIGHT, FOUR)
)


def cluster(*free_gpus: int, jobs: Sequence[JobRecord] = (), facts: SiteFacts = NO_FACTS) -> ClusterViews:
    """A node for each count of free GPUs; the type of its GPUs follows from its place."""
    nodes = [
        msgspec.structs.replace(NODE, name=f"n{number}", devices=gpus(gpu_type, 8, 8 - free))
        for number, (free, gpu_type) in enumerate(zip(free_gpus, ("a100", "v100"), strict=False))
    ]
    return ClusterViews(NodePools(nodes), jobs, NOW_S, UrgencyRules(), facts=facts)


def new(job_id: int, **changes: object) -> Candidate:
    usual = pending_job(job_id, reason="BeginTime", begin_s=int(NOW_S) + 30, gpu_type="")
    record = msgspec.structs.replace(usual, **changes)
    tag = read_tag(record.admin_comment)
    assert tag is not None
    return Candidate(record, tag, "enforce")


def share(
    first: FirstSizes,
    candidate: Candidate,
    views: ClusterViews,
    size: Allocation = FOUR,
    answer: Shares = ANSWER,
    view: JobView = VIEW,
) -> Shares:
    return first.shares(candidate, view, views.access_of(candidate.job), size, answer)


def test_new_jobs_of_one_cycle_share_what_is_free() -> None:
    views = cluster(8)
    first = FirstSizes(views, late=True)
    assert [share(first, new(job_id), views).gpu for job_id in (1, 2, 3)] == [ANSWER.gpu, ANSWER.gpu, 1.0]


def test_a_waiting_job_that_could_start_comes_first() -> None:
    waiting = (pending_job(1, gpu_type=""), pending_job(2, gpu_type="", reason="Dependency"))
    for free, expected in (((8,), 1.0), ((8, 4), ANSWER.gpu)):
        views = cluster(*free, jobs=waiting)
        assert share(FirstSizes(views, late=True), new(3), views).gpu == expected


def test_a_waiting_job_of_lower_priority_or_for_other_nodes_does_not() -> None:
    for waiting in (pending_job(1, gpu_type="", priority=1), pending_job(1, gpu_type="v100", priority=9)):
        views = cluster(8, 8, jobs=(waiting,)) if waiting.gpu_type else cluster(8, jobs=(waiting,))
        asking = new(3, priority=5)
        typed = msgspec.structs.replace(asking, job=msgspec.structs.replace(asking.job, gpu_type="a100"))
        assert share(FirstSizes(views, late=True), typed, views).gpu == ANSWER.gpu


def test_what_does_not_fit_waits_with_its_gpus_and_the_answered_cpus_and_memory() -> None:
    views = cluster(2)
    got = share(FirstSizes(views, late=True), new(1), views, answer=Shares(0.5, 0.25, 0.0, 0.3))
    assert got == Shares(1.0, 0.25, 0.0, 0.3)


def test_a_job_whose_larger_answer_does_not_fit_takes_what_it_asked_for() -> None:
    """Four GPUs are free; the job asked for four, and eight were answered. Nothing is left for the next one."""
    two = msgspec.structs.replace(FOUR, gpus_per_node=2, cpus_per_task=8, mem_mib_per_node=20_000)
    views = cluster(4)
    first = FirstSizes(views, late=True)
    given = [
        share(first, new(job_id), views, size, Shares(part, 1.0, 1.0), VIEW_OF_FOUR).gpu
        for job_id, size, part in ((1, EIGHT, 1.0), (2, two, 1 / 3))
    ]
    assert given == pytest.approx([2 / 3, 2 / 3])


def test_without_its_licence_a_job_waits_with_its_gpus_and_leaves_what_is_free_to_others() -> None:
    views = cluster(4, facts=SiteFacts(licenses={"solver": LicenseRecord(total=1, used=1)}))
    first = FirstSizes(views, late=True)
    assert share(first, new(1, licenses="solver"), views).gpu == 1.0
    assert share(first, new(2), views) == ANSWER


def test_new_jobs_of_one_cycle_do_not_get_the_same_licence() -> None:
    jobs = [new(job_id, licenses="solver") for job_id in (1, 2)]
    tags = [msgspec.structs.replace(each.job, begin_s=each.tag.begin) for each in jobs]
    views = cluster(8, jobs=tags, facts=SiteFacts(licenses={"solver": LicenseRecord(total=1)}))
    first = FirstSizes(views, late=True)
    given = [
        share(first, msgspec.structs.replace(each, job=job), views).gpu for each, job in zip(jobs, tags, strict=True)
    ]
    assert given == [ANSWER.gpu, 1.0]


@pytest.mark.parametrize(("of_a_user", "gpu"), [(1, 1.0), (2, ANSWER.gpu)])
def test_who_is_too_far_behind_for_backfill_waits_with_its_gpus(of_a_user: int, gpu: float) -> None:
    """Slurm would not start it out of its order in any size, so it takes nothing of what is free."""
    facts = SiteFacts(scheduling=SchedulingRules(bf_max_job_user=of_a_user))
    views = cluster(4, jobs=(pending_job(1, gpu_type=""),), facts=facts)
    typed = new(2)
    starts = FirstSizes(views, late=True).starts(typed, views.access_of(typed.job), FOUR)
    assert starts == (gpu == ANSWER.gpu)
    for view in (VIEW, VIEW_OF_FOUR):
        first = FirstSizes(views, late=True)
        assert share(first, new(2), views, view=view).gpu == (gpu if view is VIEW else ANSWER.gpu)
        assert share(first, new(3, user="bob"), views).gpu == (ANSWER.gpu if of_a_user == 1 else 1.0)


@pytest.mark.parametrize(("of_a_user", "gpu"), [(1, ANSWER.gpu), (2, 1.0)])
def test_who_waits_ahead_and_is_too_far_behind_for_backfill_takes_nothing(of_a_user: int, gpu: float) -> None:
    waiting = (pending_job(1, gpu_type=""), pending_job(2, FOUR, gpu_type=""))
    facts = SiteFacts(scheduling=SchedulingRules(bf_max_job_user=of_a_user))
    views = cluster(4, jobs=waiting, facts=facts)
    assert share(FirstSizes(views, late=True), new(3, user="bob"), views).gpu == gpu


GROWS = Shares(1.0, 1.0, 1.0)
"""Eight GPUs for a job that asked for four."""


@pytest.mark.parametrize(
    ("free", "tasks", "grows"),
    [((8, 8), 2, True), ((8, 8), 3, False), ((8, 4), 2, False), ((8,), 1, True)],
    ids=["all-start", "too-many", "no-room-for-one", "one-at-once"],
)
def test_an_array_grows_if_all_tasks_that_may_run_at_once_can_start(
    free: tuple[int, ...], tasks: int, *, grows: bool
) -> None:
    """``waiting_tasks`` counts at most as many as may run at once: the last one has ``--array=0-99%1``."""
    views = cluster(*free)
    array = new(1, is_array=True, waiting_tasks=tasks, array_tasks="0-99")
    got = share(FirstSizes(views, late=True), array, views, EIGHT, GROWS, VIEW_OF_FOUR)
    assert got.gpu == (GROWS.gpu if grows else pytest.approx(2 / 3))


def test_an_array_does_not_grow_if_slurm_has_cut_the_list_of_its_tasks() -> None:
    views = cluster(8, 8)
    array = new(1, is_array=True, waiting_tasks=2, array_tasks=whole_list("0,2,..."))
    got = share(FirstSizes(views, late=True), array, views, EIGHT, GROWS, VIEW_OF_FOUR)
    assert got.gpu == pytest.approx(2 / 3)


def test_an_array_behind_others_keeps_its_gpus_and_gets_the_answered_cpus_and_memory() -> None:
    """The array ahead takes the room of all its tasks, in the queue and in the same cycle."""
    answer = Shares(1.0, 0.25, 0.0, 0.3)
    ahead = pending_job(1, FOUR, gpu_type="", is_array=True, waiting_tasks=3)
    array = new(2, is_array=True, waiting_tasks=2)
    for jobs, first_in_cycle in (((ahead,), ()), ((), (new(1, is_array=True, waiting_tasks=4),))):
        views = cluster(8, 8, jobs=jobs)
        first = FirstSizes(views, late=True)
        for other in first_in_cycle:
            share(first, other, views, FOUR, Shares(2 / 3, 1.0, 1.0), VIEW_OF_FOUR)
        got = share(first, array, views, EIGHT, answer, VIEW_OF_FOUR)
        assert got == Shares(shares_of(FOUR, VIEW_OF_FOUR.bounds).gpu, 0.25, 0.0, 0.3)


KINDS = {
    "array": {"is_array": True, "waiting_tasks": 5},
    "held": {"reason": "JobHeldUser"},
    "held-array": {"is_array": True, "reason": "JobHeldAdmin"},
    "dependency": {"reason": "Dependency"},
    "begin-time": {"admin_comment": TAG.replace("user_begin=0", "user_begin=20000")},
}


@pytest.mark.parametrize("changes", KINDS.values(), ids=KINDS)
def test_a_job_that_no_pass_may_decide_may_always_have_what_takes_no_more_and_no_longer(
    changes: dict[str, object],
) -> None:
    views = cluster(0)
    longer = msgspec.structs.replace(FOUR, time_limit_s=FOUR.time_limit_s + 60)
    more_memory = msgspec.structs.replace(FOUR, mem_mib_per_node=EIGHT.mem_mib_per_node + 1)
    job = new(1, **changes)
    given = [share(FirstSizes(views, late=True), job, views, size).gpu for size in (FOUR, longer, more_memory)]
    assert given == [ANSWER.gpu, 1.0, 1.0]


@pytest.mark.parametrize("changes", list(KINDS.values())[1:], ids=list(KINDS)[1:])
def test_who_cannot_start_now_does_not_grow_on_free_nodes(changes: dict[str, object]) -> None:
    """Nobody knows what is free once it may start."""
    views = cluster(8, 8)
    got = share(FirstSizes(views, late=True), new(1, **changes), views, EIGHT, GROWS, VIEW_OF_FOUR)
    assert got.gpu == pytest.approx(2 / 3)


def test_a_begin_time_that_has_passed_keeps_nobody_from_growing() -> None:
    views = cluster(8, 8)
    job = new(1, admin_comment=TAG.replace("user_begin=0", f"user_begin={NOW_S - 1:.0f}"))
    assert share(FirstSizes(views, late=True), job, views, EIGHT, GROWS, VIEW_OF_FOUR) == GROWS


def test_in_shadow_mode_and_with_late_decisions_off_the_answer_stands() -> None:
    views = cluster(0)
    for is_array in (False, True):
        shadow = msgspec.structs.replace(new(1, is_array=is_array), mode="shadow")
        assert share(FirstSizes(views, late=True), shadow, views) == ANSWER
    assert share(FirstSizes(views, late=False), new(1), views) == ANSWER
