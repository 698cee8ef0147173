"""The checks that need no Slurm to be asked: several partitions, reservations, what cannot be read, the ladder."""

import msgspec
import pytest

from rlalloc.allocation import allocation_for
from rlalloc.bounds import Directives, NodeShape, SiteBounds, bounds_for
from rlalloc.job import Allocation, Shares
from rlallocd.limits import SiteView, may_be_ours, obstacle, shares_towards_request
from rlallocd.slurm import (
    AssociationRecord,
    JobRecord,
    Limits,
    NodeRecord,
    PartitionRecord,
    Pool,
    QosRecord,
    RequestFields,
    ReservationRecord,
    SiteLimits,
)
from tests.daemon.slurm_in_memory import gpus
from tests.daemon.test_request_sizes_and_tags import JOB, SIZE

NODES = tuple(
    NodeRecord(
        name=name,
        partitions=("gpu", "short"),
        usable=True,
        cpus=64,
        cpus_used=0,
        mem_mib=400_000,
        mem_mib_used=0,
        devices=gpus("a100", 8, 0),
    )
    for name in ("n1", "n2", "n3")
)
PARTITIONS = {
    "gpu": PartitionRecord(name="gpu", max_time_s=86400, max_nodes=None),
    "short": PartitionRecord(name="short", max_time_s=900, max_nodes=2),
}
SITE = SiteView(now_s=1000, nodes=NODES, partitions=PARTITIONS, limits=SiteLimits(enforced=False))
LONGER = msgspec.structs.replace(SIZE, gpus_per_node=2, time_limit_s=1200)


def _obstacle(allocation: Allocation, site: SiteView = SITE, job: JobRecord = JOB, wait_s: float = 0) -> str:
    return obstacle(job, SIZE, allocation, site, wait_s)


def test_nothing_stands_against_what_was_submitted() -> None:
    assert _obstacle(SIZE, msgspec.structs.replace(SITE, limits=None, partitions={})) == ""


def test_limits_that_could_not_be_read_stand_against_any_change() -> None:
    assert "could not be read" in _obstacle(LONGER, msgspec.structs.replace(SITE, limits=None))
    assert "no partition gpu" in _obstacle(LONGER, msgspec.structs.replace(SITE, partitions={}))


def test_an_association_that_is_not_told_stands_against_any_change() -> None:
    site = msgspec.structs.replace(SITE, limits=SiteLimits(enforced=True))
    assert "no association" in _obstacle(LONGER, site)


def test_a_job_of_several_partitions_must_be_within_all() -> None:
    several = msgspec.structs.replace(JOB, partition="gpu,short")
    assert _obstacle(LONGER) == ""
    assert "MaxTime of partition short" in _obstacle(LONGER, job=several)
    wider = msgspec.structs.replace(SIZE, nodes=3)
    assert "MaxNodes of partition short" in _obstacle(wider, job=several)


def test_a_job_that_names_its_nodes_gets_no_fewer() -> None:
    """The update to fewer would clear the list, and the job could run where its data is not."""
    named = msgspec.structs.replace(JOB, required_nodes="n[1-2]")
    fewer_nodes, fewer_cpus = msgspec.structs.replace(SIZE, nodes=1), msgspec.structs.replace(SIZE, cpus_per_task=1)
    assert "n[1-2]" in _obstacle(fewer_nodes, job=named)
    assert _obstacle(fewer_cpus, job=named) == _obstacle(fewer_nodes) == ""


@pytest.mark.parametrize(("of_task", "stands"), [(2, False), (8, True)])
def test_a_job_with_more_cpus_for_a_default_above_max_mem_per_cpu_keeps_its_size(
    of_task: int, *, stands: bool
) -> None:
    """As on 22.05: -n4 --gpus-per-task=1 -c2 --mem-per-gpu=4000, with DefMemPerCPU=8000 and MaxMemPerCPU=2000."""
    asked = RequestFields(min_nodes=1, min_cpus=4 * of_task, mem_mib_per_gpu=4000, gpus_per_task=1)
    job = msgspec.structs.replace(JOB, nodes=1, tasks=4, cpus=8, gpus=4, mem_mib=16_000, fields=asked)
    partition = msgspec.structs.replace(PARTITIONS["gpu"], max_mem_mib_per_cpu=2000)
    site = msgspec.structs.replace(SITE, partitions={"gpu": partition})
    request = msgspec.structs.replace(
        SIZE, nodes=1, gpus_per_node=4, tasks_per_node=4, cpus_per_task=of_task, mem_mib_per_node=16_000
    )
    fewer = msgspec.structs.replace(request, gpus_per_node=2, tasks_per_node=2, mem_mib_per_node=8_000)
    assert (
        obstacle(job, request, fewer, site, 0).startswith("Slurm gives it more CPUs than it names (MaxMemPerCPU")
        == stands
    )


@pytest.mark.parametrize(
    ("start_s", "node", "wait_s", "stands"),
    [
        (1000 + 1200, "n1", 0, False),  # even the longer job ends before it begins
        (1000 + 1199, "n1", 0, True),
        (1000 + 1200, "n1", 1, True),  # … not if it first waits for a second
        (1000 + 600, "n1", 0, True),  # as submitted it would just fit
        (1000 + 599, "n1", 0, False),  # it runs into it as submitted, too
        (1000 + 900, "elsewhere", 0, False),
    ],
)
def test_a_job_is_not_lengthened_into_a_reservation(start_s: int, node: str, wait_s: float, *, stands: bool) -> None:
    maintenance = ReservationRecord(name="maint", nodes=frozenset({node}), start_s=start_s, end_s=start_s + 60)
    site = msgspec.structs.replace(SITE, limits=SiteLimits(enforced=False, reservations=(maintenance,)))
    assert bool(_obstacle(LONGER, site, wait_s=wait_s)) == stands
    assert _obstacle(msgspec.structs.replace(SIZE, cpus_per_task=8), site, wait_s=wait_s) == ""


def test_a_reservation_of_nodes_that_a_job_cannot_use_does_not_stand_against_a_longer_limit() -> None:
    maintenance = ReservationRecord(name="maint", nodes=frozenset({"n1"}), start_s=1000 + 600, end_s=5000)
    site = msgspec.structs.replace(SITE, limits=SiteLimits(enforced=False, reservations=(maintenance,)))
    assert "maint" in _obstacle(LONGER, site)
    assert _obstacle(LONGER, site, msgspec.structs.replace(JOB, excluded_nodes="n1")) == ""


@pytest.mark.parametrize(
    ("asked", "stands"),
    [
        (RequestFields(min_nodes=2, max_nodes=2, min_cpus=64, mem_mib_per_node=100_000), False),
        (RequestFields(min_nodes=2, max_nodes=2, min_cpus=64, mem_mib_per_cpu=3125), True),
        (RequestFields(min_nodes=2, min_cpus=64, mem_mib_per_node=100_000), True),
        (RequestFields(), True),
    ],
)
def test_only_a_field_that_stays_as_it_is_keeps_its_shared_limits(asked: RequestFields, *, stands: bool) -> None:
    """Only the GPUs change; but memory per CPU, say, becomes memory per node, and slurmctld looks at it no more."""
    job = msgspec.structs.replace(JOB, fields=asked)
    fewer_gpus = msgspec.structs.replace(SIZE, gpus_per_node=2)
    group = Pool({"mem": 300_000, "node": 2}, {"mem": 0, "node": 0})
    site = msgspec.structs.replace(SITE, limits=_enforced(Limits(group=group)))
    assert bool(_obstacle(fewer_gpus, site, job)) == stands


def test_a_shared_limit_above_the_whole_cluster_is_none() -> None:
    fewer_cpus = msgspec.structs.replace(SIZE, cpus_per_task=8)
    for limit, stands in ((3 * 64 - 1, True), (3 * 64, False)):
        site = msgspec.structs.replace(SITE, limits=_enforced(Limits(group=Pool({"cpu": limit}, {"cpu": 0}))))
        assert bool(_obstacle(fewer_cpus, site)) == stands


@pytest.mark.parametrize(
    ("limit", "used", "changes", "stands"),
    [
        (2, 1, {"gpus_per_node": 8}, True),  # as submitted, it may start on a node that is counted already
        (2, 1, {"mem_mib_per_node": 100_001}, True),
        (2, 1, {"gpus_per_node": 2}, False),
        (2, 0, {"gpus_per_node": 8}, False),
        (2, 1, {"time_limit_s": 1200}, False),
        (1, 1, {"gpus_per_node": 8}, False),  # the request itself is above it
        (3, 1, {"gpus_per_node": 8}, False),  # all nodes
    ],
)
@pytest.mark.parametrize("of", ["group", "user"])
def test_a_job_does_not_need_more_of_a_node_where_there_is_no_room_for_other_nodes(
    of: str, limit: int, used: int, changes: dict[str, int], *, stands: bool
) -> None:
    """For such limits, Slurm counts the different nodes of all jobs."""
    job = msgspec.structs.replace(JOB, qos="q", fields=RequestFields(min_nodes=2, max_nodes=2))
    pool = Pool({"node": limit}, {"node": used})
    qos = QosRecord(
        name="q", flags=frozenset(), usage_factor=1, limit_factor=1, limits=Limits(), min_tres={},
        limits_accounts=False, limits_users=of == "user", per_account={}, per_user={1: pool} if of == "user" else {},
        per_account_running_minutes={}, per_user_running_minutes={},
    )  # fmt: skip
    limits = msgspec.structs.replace(_enforced(Limits(group=pool) if of == "group" else Limits()), qos={"q": qos})
    site = msgspec.structs.replace(SITE, limits=limits)
    assert bool(_obstacle(msgspec.structs.replace(SIZE, **changes), site, job)) == stands


@pytest.mark.parametrize("waits", [True, False])
def test_a_job_leaves_the_nodes_of_a_shared_limit_to_others_that_wait(*, waits: bool) -> None:
    asked = RequestFields(min_nodes=1, max_nodes=1)
    job, other = (msgspec.structs.replace(JOB, job_id=job_id, nodes=1, fields=asked) for job_id in (JOB.job_id, 8))
    site = msgspec.structs.replace(
        SITE, limits=_enforced(Limits(group=Pool({"node": 1}, {}))), jobs=(job, other) if waits else (job,)
    )
    request = msgspec.structs.replace(SIZE, nodes=1)
    assert bool(obstacle(job, request, msgspec.structs.replace(request, gpus_per_node=8), site, 0)) == waits


@pytest.mark.parametrize(
    ("changes", "granted", "stands"),
    [
        ({}, {}, False),  # 10 of its own and 8 of the other are the limit
        ({"gpus": 9}, {}, True),
        ({}, {8: msgspec.structs.replace(SIZE, gpus_per_node=5)}, True),
        ({"gpus": 9, "reason": "Dependency"}, {}, False),
        ({"gpus": 9, "user": "bob", "account": "other"}, {}, False),
        ({"gpus": 9, "state": "RUNNING", "started_s": 99}, {}, False),  # counted in what is used already
        ({"gpus": 9, "state": "RUNNING", "started_s": 100}, {}, True),
    ],
)
def test_a_job_does_not_grow_in_the_way_of_others(
    changes: dict[str, object], granted: dict[int, Allocation], *, stands: bool
) -> None:
    other = msgspec.structs.replace(JOB, job_id=8, **({"gpus": 8} | changes))
    limits = msgspec.structs.replace(_enforced(Limits(group=Pool({"gres/gpu": 18}, {}))), read_s=100.5)
    site = msgspec.structs.replace(SITE, limits=limits, jobs=(JOB, other), granted=granted)
    larger = msgspec.structs.replace(SIZE, gpus_per_node=5)
    assert bool(_obstacle(larger, site)) == stands


@pytest.mark.parametrize(
    ("changes", "granted", "stands"),
    [
        ({}, {}, False),  # 4 GPUs and 21 minutes of its own, 8 GPUs and 10 minutes of the other, are the limit
        ({"time_limit_s": 660}, {}, True),
        ({}, {8: msgspec.structs.replace(SIZE, gpus_per_node=4, time_limit_s=660)}, True),
        ({"time_limit_s": 660, "reason": "Dependency"}, {}, False),
    ],
)
@pytest.mark.parametrize("tres", ["gres/gpu", "gres/gpu:a100", "cpu"])
def test_a_longer_job_does_not_take_the_minutes_of_others(
    tres: str, changes: dict[str, object], granted: dict[int, Allocation], *, stands: bool
) -> None:
    """With GrpTRESMins, slurmctld would start this job and let the other wait."""
    other = msgspec.structs.replace(JOB, job_id=8, **({"gpus": 8, "cpus": 64, "time_limit_s": 600} | changes))
    minutes = 64 * 21 + 64 * 10 if tres == "cpu" else 4 * 21 + 8 * 10
    asked = RequestFields(min_nodes=2, max_nodes=2, min_cpus=64, mem_mib_per_node=100_000)
    job = msgspec.structs.replace(JOB, fields=asked)
    group = Limits(group_minutes=Pool({tres: minutes}, {}))
    site = msgspec.structs.replace(SITE, limits=_enforced(group), jobs=(job, other), granted=granted)
    assert bool(_obstacle(msgspec.structs.replace(LONGER, time_limit_s=1260), site, job)) == stands


def _enforced(limits: Limits) -> SiteLimits:
    user = AssociationRecord(account="llm", user="alice", user_id=1, partition="", parent="", limits=Limits())
    account = AssociationRecord(account="llm", user="", user_id=-1, partition="", parent="", limits=limits)
    return SiteLimits(enforced=True, associations=(user, account))


def test_the_ladder_goes_from_the_decision_towards_the_request() -> None:
    shape = NodeShape(gpus=8, cpus=64, mem_mib=400_000)
    request = Allocation(
        nodes=1, gpus_per_node=8, tasks_per_node=1, cpus_per_task=64, mem_mib_per_node=80_000, time_limit_s=600
    )
    bounds = bounds_for(request, Directives(gpus=(1, 8), cpus_per_gpu=(2, 8)), SiteBounds(), shape)

    def allocate(shares: Shares) -> Allocation:
        return allocation_for(shares, request, bounds, shape, lambda _: 1.0)

    decided = Shares(0.0, 0.0, 0.0)
    steps = [allocate(shares) for shares in shares_towards_request(decided, allocate(decided), request, bounds)]
    assert [(step.gpus, step.cpus_per_gpu) for step in steps] == [
        (2, 2),
        (4, 2),
        (8, 2),
        (1, 8),
        (2, 8),
        (4, 8),
        (8, 8),
    ]
    assert steps[-1] == request


@pytest.mark.parametrize(
    ("reason", "changes", "ours"),
    [
        ("AssocGrpGRES", {"gpus_per_node": 8}, True),
        ("MaxGRESPerAccount", {"gpus_per_node": 8}, True),
        ("AssocGrpGRES", {"gpus_per_node": 1, "time_limit_s": 2400}, False),
        ("QOSMaxGRESMinutesPerJob", {"gpus_per_node": 2, "time_limit_s": 2400}, True),
        ("QOSMaxGRESMinutesPerJob", {"gpus_per_node": 2, "time_limit_s": 1200}, False),
        ("QOSGrpCPUMinutesLimit", {"cpus_per_task": 17}, True),
        ("QOSMinGRES", {"gpus_per_node": 1}, True),
        ("QOSMinGRES", {"gpus_per_node": 8}, False),
        ("AssocMaxWallDurationPerJobLimit", {"time_limit_s": 1200}, True),
        ("AssocGrpMemLimit", {"mem_mib_per_node": 200_000}, True),
        ("QOSGrpNodeLimit", {"gpus_per_node": 8}, True),  # it may no longer fit a node that is counted already
        ("AssocGrpNodeLimit", {"mem_mib_per_node": 200_000}, True),
        ("MaxNodePerAccount", {"nodes": 1, "gpus_per_node": 8}, True),
        ("QOSMaxNodePerUserLimit", {"cpus_per_task": 17}, True),
        ("QOSMaxNodePerUserLimit", {"cpus_per_task": 8, "time_limit_s": 1200}, False),
        ("QOSMaxNodePerJobLimit", {"cpus_per_task": 17}, False),
        ("AssocGrpNodeRunMinutes", {"cpus_per_task": 17}, False),
        ("AssocMaxJobsLimit", {"gpus_per_node": 8}, False),
        ("BadConstraints", {"gpus_per_node": 1}, True),
        ("Resources", {"gpus_per_node": 8}, False),
    ],
)
def test_which_waiting_may_be_our_doing(reason: str, changes: dict[str, int], *, ours: bool) -> None:
    assert may_be_ours(reason, SIZE, msgspec.structs.replace(SIZE, **changes)) == ours
