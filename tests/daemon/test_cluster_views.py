"""What policies see of the nodes that a job may use, from jobs and nodes as Slurm tells them."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from rlalloc.devices import Device, node_devices
from rlalloc.job import Allocation
from rlalloc.pool import Stock
from rlalloc.run_time import EXPECTED_FRACTION_OF_LIMIT
from rlalloc.urgency import UrgencyRules
from rlallocd.cluster.cluster_views import MOST_VIEWS, ClusterViews
from rlallocd.cluster.node_access import NO_FACTS, SiteFacts
from rlallocd.cluster.node_pools import NodePools
from rlallocd.slurm import (
    GpuDefaults,
    JobRecord,
    NodeNeeds,
    NodeRecord,
    PartitionRecord,
    ReservationRecord,
    SchedulingRules,
)
from rlallocd.slurm.json_reader import job_record
from rlallocd.slurm.slurm_records import WITHOUT_LIMIT_S
from rlallocd.submissions.request_sizes import Skipped
from tests.daemon.slurm_in_memory import gpus as alike_gpus

NOW_S = 10_000
RULES = UrgencyRules()
NODE = NodeRecord(
    name="n1",
    partitions=("gpu", "all"),
    usable=True,
    cpus=64,
    cpus_used=8,
    mem_mib=512_000,
    mem_mib_used=40_960,
    devices=alike_gpus("a100", 8, 2),
)
DOWN = msgspec.structs.replace(NODE, name="n2", usable=False)
A100 = [msgspec.structs.replace(NODE, name=f"a{number}", devices=alike_gpus("a100", 8, 8)) for number in (1, 2)]
V100 = [
    msgspec.structs.replace(NODE, name=f"v{number}", devices=alike_gpus("v100", 4), mem_mib=96_000)
    for number in (1, 2)
]
LIMIT_S = 3600
EXPECTED_S = EXPECTED_FRACTION_OF_LIMIT * LIMIT_S


def job(job_id: int, state: str, *, gpus: int = 1, **changes: Any) -> JobRecord:
    record = job_record(
        {
            "job_id": job_id,
            "job_state": state,
            "partition": "gpu",
            "user_name": "alice",
            "priority": 5,
            "tres_req_str": f"cpu=4,mem=1G,node=1,gres/gpu={gpus}",
            "time_limit": LIMIT_S // 60,
            "node_count": 1,
            "start_time": NOW_S - 600 if state == "RUNNING" else 0,
            "eligible_time": NOW_S - 700,
        }
    )
    return msgspec.structs.replace(record, **changes)


def views_of(
    nodes: Sequence[NodeRecord],
    jobs: Sequence[JobRecord],
    rules: UrgencyRules = RULES,
    facts: SiteFacts = NO_FACTS,
) -> ClusterViews:
    return ClusterViews(NodePools(nodes), jobs, NOW_S, rules, facts=facts)


NEW = job(99, "PENDING", priority=1)
"""A job that comes in, behind all others."""


def test_a_view_holds_what_is_free_what_ends_and_what_waits() -> None:
    jobs = [job(1, "RUNNING", gpus=2), job(2, "PENDING", gpus=4), job(3, "COMPLETED"), job(4, "PENDING", gpus=0)]
    view = views_of([NODE, DOWN], jobs).for_job(NEW)
    assert view.free.tolist() == [[6, 56, 471_040]]
    assert view.totals.tolist() == [8, 64, 512_000]
    assert view.releases[:, 1:].tolist() == [[2, 4, 1024]]
    assert view.queued.tolist() == [[4, EXPECTED_S]]
    assert not view.urgency_counts


def test_a_job_that_leaves_threads_idle_takes_whole_cores() -> None:
    """One thread of each core: half of the CPUs that are free, that others return, and that it takes of a node."""
    threads = msgspec.structs.replace(NODE, sockets=2, cores=16, threads=2, cpus_per_core=2)
    new = msgspec.structs.replace(NEW, needs=NodeNeeds(threads=1))
    views = views_of([threads], [job(1, "RUNNING", held_nodes="n1")])
    view = views.for_job(new)
    assert (view.shape.cpus, view.totals[1], view.free[0, 1]) == (32, 32, 28)
    assert view.releases[0, 2] == 2
    stock = Stock(views.pools.free)
    stock.take(views.pool(views.access_of(new)), Allocation(1, 1, 1, 20, 1000, 600))
    usual, left = (stock.left(views.pool(views.access_of(each))) for each in (NEW, new))
    assert (usual[0, 1], left[0, 1]) == (56 - 40, 8)


def test_a_job_without_a_time_limit_is_expected_to_go_on() -> None:
    """Slurm reckons with its end a year after its start; of that, the usual part is expected."""
    endless = {"gpus": 2, "time_limit_s": 0}
    views = views_of([NODE], [job(1, "RUNNING", **endless), job(2, "PENDING", **endless)])
    view = views.for_job(NEW)
    assert view.releases[:, 0].tolist() == [pytest.approx(EXPECTED_FRACTION_OF_LIMIT * WITHOUT_LIMIT_S - 600)]
    assert view.queued[:, 1].tolist() == [EXPECTED_FRACTION_OF_LIMIT * WITHOUT_LIMIT_S]
    assert views.limits(views.access_of(NEW))[:, 0].tolist() == [WITHOUT_LIMIT_S - 600]


def test_a_job_without_a_time_limit_runs_into_each_reservation() -> None:
    later = ReservationRecord(name="day", nodes=frozenset({"n1"}), start_s=NOW_S + 90_000, end_s=NOW_S + 99_000)
    views = views_of([NODE], [], facts=SiteFacts(reservations=(later,)))
    limits_s = 0, LIMIT_S, 2 * 90_000
    taken = [views.access_in_queue(msgspec.structs.replace(NEW, time_limit_s=each)).reserved for each in limits_s]
    assert taken == [(0,), (), (0,)]


def test_a_view_says_whether_urgency_counts() -> None:
    assert views_of([NODE], [], UrgencyRules(nice_band=100)).for_job(NEW).urgency_counts


def test_a_job_of_several_partitions_waits_in_each() -> None:
    nodes = [NODE, msgspec.structs.replace(NODE, name="n2", partitions=("cpu",))]
    views = views_of(nodes, [job(1, "PENDING", partition="cpu,all"), job(2, "PENDING", partition="all")])
    asking = (msgspec.structs.replace(NEW, partition=name) for name in ("cpu", "all"))
    assert [len(views.for_job(each).queued) for each in asking] == [1, 2]


def test_a_users_gpus_count_in_all_partitions() -> None:
    jobs = [job(1, "RUNNING", gpus=2), job(2, "RUNNING", gpus=3, partition="all"), job(3, "PENDING", gpus=4)]
    views = views_of([NODE], [*jobs, job(4, "RUNNING", gpus=5, user="bob")])
    assert [views.user_running_gpus(user) for user in ("alice", "bob", "eve")] == [5, 5, 0]


def test_a_partition_without_a_usable_node_is_skipped() -> None:
    with pytest.raises(Skipped, match="no usable GPU node"):
        views_of([DOWN], []).for_job(NEW)


@pytest.mark.parametrize(
    ("gpu_type", "features", "name"),
    [("", "", "mixed-devices"), ("a100", "", None), ("", "whole", None), ("v100", "", "no-gpu-node")],
)
def test_a_job_that_slurm_may_give_slices_of_gpus_is_skipped(gpu_type: str, features: str, name: str | None) -> None:
    """``gpu:4`` on a node of two GPUs and seven slices becomes two GPUs and two slices (seen on 22.05 and 24.11)."""
    mixed = msgspec.structs.replace(NODE, name="n2", devices=alike_gpus("a100", 2) + alike_gpus("1g.10gb", 7))
    whole = msgspec.structs.replace(NODE, features=frozenset({"whole"}))
    asking = msgspec.structs.replace(NEW, gpu_type=gpu_type, features=features)
    views = views_of([whole, mixed], [])
    if name is None:
        gpus = 10 if gpu_type else 8
        assert views.for_job(asking).totals[0] == gpus
        return
    with pytest.raises(Skipped) as skipped:
        views.for_job(asking)
    assert skipped.value.name == name


def test_a_job_of_slices_sees_slices() -> None:
    mixed = msgspec.structs.replace(NODE, name="n2", devices=alike_gpus("a100", 2) + alike_gpus("1g.10gb", 7))
    sliced = msgspec.structs.replace(NODE, name="n3", devices=alike_gpus("1g.10gb", 28))
    view = views_of([NODE, mixed, sliced], []).for_job(msgspec.structs.replace(NEW, gpu_type="1g.10gb"))
    assert (view.device, view.totals[0], view.shape.gpus) == (Device("mig", "1g.10gb"), 35, 28)


def test_a_job_of_shards_sees_shards_and_gets_those_of_one_gpu() -> None:
    """Four GPUs with four shards each: of two some shards are in use, one is in use as a whole."""
    devices = node_devices("gpu:a100:4,shard:a100:16", "gpu:a100:1(IDX:2),shard:a100:6(4/4,2/4,0/4,0/4)")
    shared = msgspec.structs.replace(NODE, devices=devices)
    running = [
        job(1, "RUNNING", gpus=1, held_nodes="n1"),
        job(2, "RUNNING", gpus=4, held_nodes="n1", is_shard=True, time_limit_s=7200),
    ]
    views = views_of([shared], running)
    shards = views.for_job(msgspec.structs.replace(NEW, gpus=2, is_shard=True))
    assert (shards.device.kind, shards.free[0, 0], shards.totals[0], shards.shape.gpus) == ("shard", 6, 16, 4)
    assert shards.releases[:, 1].tolist() == [4, 4]
    whole = views.for_job(NEW)
    assert (whole.free[0, 0], whole.totals[0], whole.shape.gpus) == (1, 4, 4)
    assert whole.releases[:, 1].tolist() == [1, 1]
    assert views.user_running_gpus("alice") == 1


# Competition


def test_a_job_of_one_type_sees_neither_what_ends_nor_who_waits_for_another() -> None:
    """An idle v100 partition's jobs do not wait for what runs on the a100 nodes, nor behind those who want them."""
    jobs = [
        job(1, "RUNNING", gpus=16, held_nodes="a[1-2]", nodes=2),
        job(2, "PENDING", gpus=16, gpu_type="a100"),
        job(3, "PENDING", gpus=2, gpu_type="v100"),
    ]
    view = views_of([*A100, *V100], jobs).for_job(msgspec.structs.replace(NEW, gpu_type="v100"))
    assert len(view.releases) == 0
    assert view.queued[:, 0].tolist() == [2]
    assert view.gpu_types == ("v100",)
    assert (view.shape.gpus, view.shape.mem_mib) == (4, 96_000)


def test_who_could_use_other_nodes_as_well_counts_in_part() -> None:
    """16 of the 24 GPUs that the first may use are a100, 8 are v100."""
    views = views_of([*A100, *V100], [job(1, "PENDING", gpus=6)])
    seen = [views.for_job(msgspec.structs.replace(NEW, gpu_type=name)).queued[:, 0] for name in ("a100", "v100")]
    assert [each.tolist() for each in seen] == [[4], [2]]


def test_a_job_counts_where_it_runs_not_where_it_was_submitted() -> None:
    """Two partitions have the same nodes: what the jobs of one hold and ask for is missing in the other."""
    jobs = [
        job(1, "RUNNING", gpus=8, partition="all", held_nodes="a1"),
        job(2, "RUNNING", gpus=8, partition="gpu", held_nodes="a2"),
        job(3, "PENDING", gpus=4, partition="all"),
    ]
    view = views_of(A100, jobs).for_job(NEW)
    assert view.releases[:, 1].tolist() == [8, 8]
    assert view.queued[:, 0].tolist() == [4]


def test_of_a_job_on_more_nodes_than_a_pool_has_its_part_there_counts() -> None:
    views = views_of([*A100, *V100], [job(1, "RUNNING", gpus=8, nodes=2, held_nodes="a1,v1")])
    for gpu_type in ("a100", "v100"):
        view = views.for_job(msgspec.structs.replace(NEW, gpu_type=gpu_type))
        assert view.releases[:, 1:].tolist() == [[4, 2, 512]]


def test_a_new_job_stands_where_its_priority_puts_it() -> None:
    jobs = [job(number, "PENDING", gpus=number, priority=10 * number) for number in (1, 2, 3)]
    views = views_of([NODE], jobs)
    view = views.for_job(msgspec.structs.replace(NEW, priority=25))
    assert (view.queued[:, 0].tolist(), view.behind) == ([3], 2)
    waiting = views.for_job(jobs[1])
    assert (waiting.queued[:, 0].tolist(), waiting.behind) == ([3], 1)
    assert views.for_job(msgspec.structs.replace(NEW, priority=10, job_id=99)).queued[:, 0].tolist() == [3, 2, 1]


def test_a_partition_of_a_higher_tier_comes_first_whatever_the_priorities() -> None:
    tiers = {
        name: PartitionRecord(name=name, max_time_s=None, max_nodes=None, tier=tier)
        for name, tier in (("gpu", 1), ("all", 10))
    }
    jobs = [job(1, "PENDING", gpus=1, priority=900), job(2, "PENDING", gpus=2, priority=3, partition="all")]
    views = views_of([NODE], jobs, facts=SiteFacts(partitions=tiers))
    assert views.for_job(msgspec.structs.replace(NEW, partition="all", priority=2)).queued[:, 0].tolist() == [2]
    assert views.for_job(msgspec.structs.replace(NEW, priority=1000)).queued[:, 0].tolist() == [2]
    assert views.for_job(NEW).queued[:, 0].tolist() == [2, 1]


@pytest.mark.parametrize(
    "changes",
    [
        *({"reason": reason} for reason in ("Dependency", "QOSMaxGRESPerUser", "AssocGrpGRES", "Licenses")),
        {"reason": "JobArrayTaskLimit"},
        {"begin_s": NOW_S + 60},
        {"priority": 0},
        {"reservation": "course"},
    ],
)
def test_who_waits_for_something_else_is_ahead_of_nobody(changes: dict[str, Any]) -> None:
    assert len(views_of([NODE], [job(1, "PENDING", **changes)]).for_job(NEW).queued) == 0


def test_an_array_counts_by_its_tasks() -> None:
    views = views_of([NODE], [job(1, "PENDING", gpus=2, waiting_tasks=3), job(2, "PENDING", waiting_tasks=100_000)])
    queued = views.for_job(NEW).queued
    assert queued[:3].tolist() == [[2, EXPECTED_S]] * 3
    assert len(queued) == 103
    assert queued[3:].prod(axis=1).sum() == pytest.approx(100_000 * EXPECTED_S)


def test_in_a_long_queue_neighbours_share_a_view() -> None:
    jobs = [job(number, "PENDING", priority=5000 - number) for number in range(1, 1001)]
    views = views_of([NODE], jobs)
    new = msgspec.structs.replace(NEW, job_id=5000)
    seen = [views.for_job(msgspec.structs.replace(new, priority=5000 - number)) for number in range(1, 1000, 7)]
    assert len({id(view) for view in seen}) < 100
    for number, view in zip(range(1, 1000, 7), seen, strict=True):
        ahead = number  # one of the same priority and a lower id included
        assert ahead <= len(view.queued) <= min(1000, 1.13 * ahead + 1)
        assert len(view.queued) + view.behind == 1000


def test_of_several_partitions_a_job_is_decided_for_the_one_where_it_would_start_first() -> None:
    nodes = [
        msgspec.structs.replace(A100[0], partitions=("big",)),
        msgspec.structs.replace(V100[0], partitions=("old",)),
    ]
    running = [job(1, "RUNNING", gpus=8, held_nodes="a1", partition="big")]
    asking = msgspec.structs.replace(NEW, partition="big,old")
    assert views_of(nodes, running).for_job(asking).gpu_types == ("v100",)
    assert views_of(nodes, running).for_job(msgspec.structs.replace(asking, gpus=8)).gpu_types == ("a100",)


PARTITIONS = {
    name: PartitionRecord(name=name, max_time_s=None, max_nodes=None, whole_nodes=whole, gpu_defaults=defaults)
    for name, whole, defaults in (
        ("gpu", False, GpuDefaults()),
        ("whole", True, GpuDefaults(cpus=8)),
        ("both", False, GpuDefaults(4, 6000)),
    )
}


@pytest.mark.parametrize(
    ("partition", "alone", "defaults"),
    [
        ("gpu", False, [(2, 3000)]),
        ("gpu,whole", True, [(2, 3000), (8, 3000)]),
        ("whole,both", True, [(8, 3000), (4, 6000)]),
        ("gpu,both", False, [(2, 3000), (4, 6000)]),
        ("both,new", False, [(4, 6000), (2, 3000)]),
        ("new", False, [(2, 3000)]),
    ],
)
def test_a_job_may_start_in_each_of_its_partitions(
    partition: str, defaults: list[tuple[int, int]], *, alone: bool
) -> None:
    """In a partition that is so new that it is not known yet, slurm.conf's defaults hold."""
    views = views_of([NODE], [], facts=SiteFacts(partitions=PARTITIONS, gpu_defaults=GpuDefaults(2, 3000)))
    asking = msgspec.structs.replace(NEW, partition=partition)
    assert views.has_its_nodes_alone(asking) is alone
    assert views.gpu_defaults_for(asking) == tuple(GpuDefaults(*each) for each in defaults)


# On which terms nodes are open


def test_nodes_that_others_have_reserved_open_when_the_reservation_ends() -> None:
    """A job that would still run when it begins cannot have them, a shorter one can."""
    reserved = ReservationRecord(name="course", nodes=frozenset({"v1"}), start_s=NOW_S + 1800, end_s=NOW_S + 9000)
    views = views_of(V100, [], facts=SiteFacts(reservations=(reserved,)))
    long, short = views.for_job(NEW), views.for_job(msgspec.structs.replace(NEW, time_limit_s=1200))
    assert long.free[:, 0].tolist() == [0, 4]
    assert long.releases[:, :2].tolist() == [[9000, 4]]
    assert long.totals[0] == 8
    assert short.free[:, 0].tolist() == [4, 4]
    assert len(short.releases) == 0


def test_a_powered_down_node_opens_once_it_has_booted() -> None:
    asleep = msgspec.structs.replace(V100[0], asleep=True)
    facts = SiteFacts(scheduling=SchedulingRules(resume_timeout_s=300))
    view = views_of([asleep, V100[1]], [], facts=facts).for_job(NEW)
    assert view.free[:, 0].tolist() == [0, 4]
    assert view.releases[:, :2].tolist() == [[300, 4]]


def test_a_node_that_takes_one_users_jobs_only_is_open_to_that_user() -> None:
    owned = msgspec.structs.replace(V100[0], owner="bob")
    views = views_of([owned, V100[1]], [])
    assert views.for_job(NEW).free[:, 0].tolist() == [0, 4]
    assert views.for_job(msgspec.structs.replace(NEW, user="bob")).free[:, 0].tolist() == [4, 4]


@pytest.mark.parametrize(
    ("rules", "changes", "preempts"),
    [
        (SchedulingRules(preempts_by="qos"), {"qos": "high"}, True),
        (SchedulingRules(preempts_by="qos"), {"qos": "normal"}, False),
        (SchedulingRules(preempts_by="partition"), {"partition": "gpu"}, True),
        (SchedulingRules(preempts_by="partition"), {"partition": "all"}, False),
        (SchedulingRules(), {"qos": "high"}, False),
    ],
)
def test_what_a_job_may_preempt_is_free_for_it(
    rules: SchedulingRules, changes: dict[str, str], *, preempts: bool
) -> None:
    partitions = {
        name: PartitionRecord(name=name, max_time_s=None, max_nodes=None, tier=tier, preemptable=True)
        for name, tier in (("gpu", 2), ("all", 1))
    }
    facts = SiteFacts(partitions=partitions, preempts={"high": frozenset({"scavenger"})}, scheduling=rules)
    running = job(1, "RUNNING", gpus=8, held_nodes="a1", partition="all", qos="scavenger")
    kept = job(2, "RUNNING", gpus=8, held_nodes="a2", partition="gpu", qos="normal")
    view = views_of(A100, [running, kept], facts=facts).for_job(msgspec.structs.replace(NEW, **changes))
    assert view.free[:, 0].tolist() == ([8, 0] if preempts else [0, 0])
    assert view.releases[:, 1].tolist() == ([8] if preempts else [8, 8])


# What is kept


def test_a_view_is_made_once() -> None:
    views = views_of([NODE], [])
    assert views.for_job(NEW) is views.for_job(msgspec.structs.replace(NEW, job_id=100))


def test_of_many_constraints_only_the_latest_views_are_kept() -> None:
    """A view that is forgotten is made again, and is the same."""
    names = [f"n{number}" for number in range(2 * MOST_VIEWS)]
    nodes = [msgspec.structs.replace(NODE, name=name, features=frozenset({name})) for name in names]
    views = views_of(nodes, [job(1, "RUNNING")])
    seen = [views.for_job(msgspec.structs.replace(NEW, features=name)) for name in names]
    again = views.for_job(msgspec.structs.replace(NEW, features=names[0]))
    assert again is not seen[0]
    assert again.free.tolist() == seen[0].free.tolist()
    assert views.for_job(msgspec.structs.replace(NEW, features=names[-1])) is seen[-1]


def test_more_kinds_of_demands_than_are_told_apart_count_for_their_partition() -> None:
    nodes = [msgspec.structs.replace(NODE, name=f"n{number}") for number in range(300)]
    jobs = [job(number, "PENDING", gpus=3, excluded_nodes=f"n{number}") for number in range(300)]
    view = views_of(nodes, jobs).for_job(NEW)
    assert len(view.queued) == 300
    np.testing.assert_allclose(view.queued[:, 0], 3, rtol=0.01)
