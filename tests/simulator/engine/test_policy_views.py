"""A job seen by the daemon and the same job in the simulator are the same numbers to a policy."""

import msgspec
import numpy as np
import pytest

from rlalloc.devices import NodeDevices
from rlalloc.job import JobView
from rlalloc.observation import encode
from rlalloc.run_time import RunTimeEstimate
from rlalloc.sockets import Sockets
from rlalloc.view import ClusterView, slowdown
from rlalloc_simulator.engine import NodeKind, SimulatedSite, Simulator, SubmittedJob, UserKind
from rlalloc_simulator.engine.engine_records import NOBODY, PENDING, RUNNING
from rlalloc_simulator.engine.job_table import allocation_of
from rlalloc_simulator.engine.policy_views import cluster_view, job_view
from rlallocd.cluster.cluster_views import ClusterViews
from rlallocd.cluster.node_pools import NodePools
from rlallocd.knowledge.known_run_times import KnownRunTime, KnownRunTimes
from rlallocd.slurm import JobRecord, NodeNeeds, NodeRecord
from tests.simulator.engine.by_hand import SHAPE, job, simulator, size

BIG = msgspec.structs.replace(SHAPE, cpus=16, mem_mib=16_000)
SITE = SimulatedSite(
    nodes=(NodeKind(count=2, shape=SHAPE), NodeKind(count=1, shape=BIG)),
    users=(UserKind(name="user0"), UserKind(name="user1")),
)
JOBS = [
    job(0, size(8, 900, nodes=2), 500, user=1),
    job(10, size(2, 600), 300, user=0),
    job(20, size(8, 1200, nodes=3), 100, user=1),
    job(30, size(8, 300), 100, user=0),
    job(40, size(4, 800), 200, user=0, job_class="finetune", managed=True),
    job(50, size(7, 400), 50, user=1),
]


def devices_of(made: Simulator, node: int) -> tuple[NodeDevices, ...]:
    """What scontrol would show of a node, by what its jobs hold."""
    kinds = [kind for kind in made.site.nodes for _ in range(kind.count)]
    held = dict.fromkeys(("gpu", "mig", "shard"), 0)
    for number in np.flatnonzero(made.world.jobs["state"] == RUNNING).tolist():
        device = made.pools[made.world.sizes[number]["pool"]].device
        if device is not None and node in nodes_of(made, number):
            held[device.kind] += int(made.world.sizes[number]["gpus_per_node"])
    found = []
    for each in kinds[node].devices:
        used, shards = held[each.device.kind], held["shard"]
        if each.device.whole:
            per_gpu = next((other.per_gpu for other in kinds[node].devices if other.device.kind == "shard"), 1)
            used += -(-shards // per_gpu)
        elif each.device.kind == "shard":
            used += held["gpu"] * each.per_gpu
        found.append(msgspec.structs.replace(each, used=used))
    return tuple(found)


def node_records(made: Simulator) -> list[NodeRecord]:
    kinds = [kind for kind in made.site.nodes for _ in range(kind.count)]
    return [
        NodeRecord(
            name=f"n{number}",
            partitions=("gpu",),
            usable=bool(node["up"]),
            cpus=int(node["cpus"]),
            cpus_used=int(node["cpus"] - node["free_cpus"]),
            mem_mib=int(node["mem_mib"]),
            mem_mib_used=int(node["mem_mib"] - node["free_mem_mib"]),
            devices=devices_of(made, number),
            features=frozenset(kinds[number].features),
            sockets=kinds[number].sockets.sockets,
            cores=kinds[number].sockets.cores,
        )
        for number, node in enumerate(made.world.nodes)
    ]


def nodes_of(made: Simulator, number: int) -> list[int]:
    """The nodes that a running job holds."""
    world = made.world
    found, hold = [], int(world.jobs[number]["first_hold"])
    while hold != NOBODY:
        found.append(int(world.holds[hold]["node"]))
        hold = int(world.holds[hold]["next"])
    return found


def job_records(made: Simulator, jobs: list[SubmittedJob]) -> list[JobRecord]:
    """What squeue would show: jobs that have come and not ended, under ids of their own."""
    names = {PENDING: "PENDING", RUNNING: "RUNNING"}
    records = []
    for number, submitted in enumerate(jobs):
        state = int(made.world.jobs[number]["state"])
        if submitted.submit_s > made.now_s or state > RUNNING:
            continue
        size = allocation_of(made.world.sizes[number])
        running = state == RUNNING
        records.append(
            JobRecord(
                job_id=number + 1,
                name="job",
                user=f"user{submitted.user}",
                account="all",
                partition="gpu",
                state=names.get(state, "PENDING"),
                reason="",
                submitted_s=int(submitted.submit_s),
                begin_s=int(made.now_s) + 60 if state not in names else 0,
                started_s=int(made.world.jobs[number]["start_s"]) if running else 0,
                time_limit_s=size.time_limit_s,
                priority=1000 - number,
                admin_comment="",
                nodes=size.nodes,
                tasks=size.nodes,
                cpus=size.cpus,
                gpus=size.gpus,
                mem_mib=float(size.mem_mib),
                gpu_type=submitted.gpu_type or "",
                is_shard=submitted.is_shard,
                features=submitted.constraint,
                needs=NodeNeeds(sockets=submitted.sockets.sockets, cores=submitted.sockets.cores),
                is_batch=True,
                is_array=False,
                is_heterogeneous=False,
                is_exclusive=False,
                has_deadline=False,
                nodes_certain=True,
                required_nodes="",
                held_nodes=",".join(f"n{node}" for node in nodes_of(made, number)) if running else "",
            )
        )
    return records


def run_times_of(made: Simulator, jobs: list[SubmittedJob]) -> KnownRunTimes:
    """What the daemon would know: an estimate a job, and how much longer it takes in its size."""
    known = {
        number + 1: KnownRunTime(
            submitted.run_time, slowdown(submitted.request, allocation_of(made.world.sizes[number]))
        )
        for number, submitted in enumerate(jobs)
        if submitted.run_time is not None
    }
    return KnownRunTimes(known)


def as_the_daemon_sees_it(
    made: Simulator, number: int, jobs: list[SubmittedJob] = JOBS
) -> tuple[JobView, ClusterView]:
    """By the daemon's own functions for the cluster; the job's view is put together as by ``job_view``."""
    records, submitted = job_records(made, jobs), jobs[number]
    pools, rules = NodePools(node_records(made)), made.site.interception.urgency
    views = ClusterViews(pools, records, made.now_s, rules, run_times_of(made, jobs))
    view = views.for_job(next(record for record in records if record.job_id == number + 1))
    held = views.user_running_gpus(f"user{submitted.user}")
    waited_s = made.now_s - submitted.submit_s
    return JobView(submitted.job_class, submitted.request, submitted.bounds, waited_s, held, submitted.run_time), view


def test_an_arriving_job_encodes_to_the_same_numbers() -> None:
    made = simulator(JOBS, SITE)
    assert made.run().tolist() == [4]
    ours = job_view(made, 4, JOBS[4]), cluster_view(made, 4)
    theirs = as_the_daemon_sees_it(made, 4)
    assert ours[0] == theirs[0]
    assert len(ours[1].queued) == 2
    assert len(ours[1].releases) == 2
    one, other = encode(*ours), encode(*theirs)
    np.testing.assert_array_equal(one.features, other.features)
    assert one.alternatives == other.alternatives


@pytest.mark.parametrize("number", [2, 4, 5])
def test_a_waiting_job_encodes_to_the_same_numbers(number: int) -> None:
    """It sees those ahead of it and counts those behind."""
    wide = [msgspec.structs.replace(each, managed=False) for each in JOBS]
    made = simulator(wide, SITE)
    made.run(55.0)
    made.world.nodes[2]["up"] = False  # a node that is down is none of either view's
    ours = job_view(made, number, JOBS[number]), cluster_view(made, number)
    theirs = as_the_daemon_sees_it(made, number)
    assert ours[0] == theirs[0]
    assert ours[1].behind + len(ours[1].queued) == 3
    one, other = encode(*ours), encode(*theirs)
    np.testing.assert_array_equal(one.features, other.features)
    assert one.alternatives == other.alternatives


@pytest.mark.parametrize("elapsed_s", [1.0, 40.0, 400.0])
def test_with_known_run_times_a_view_is_the_same_numbers(elapsed_s: float) -> None:
    """Some jobs are known, one only by its limit; one runs and one waits in another size than it asked for."""
    medians_s = [500.0, None, 100.0, 90.0, 200.0, 50.0]
    known = [
        msgspec.structs.replace(
            each,
            managed=number in {2, 4},
            run_time=None if median_s is None else RunTimeEstimate(0.6 * median_s, median_s, 2 * median_s, "test"),
        )
        for number, (each, median_s) in enumerate(zip(JOBS, medians_s, strict=True))
    ]
    made = simulator(known, SITE)
    assert made.run().tolist() == [2]
    made.resize({2: size(4, 1500, nodes=3)})
    assert made.run().tolist() == [4]
    made.resize({4: size(2, 1000, cpus_per_task=1)})
    made.run(50.0 + elapsed_s)
    pending = [number for number in range(len(known)) if made.world.jobs[number]["state"] == PENDING]
    assert pending
    for number in pending:
        ours = job_view(made, number, known[number]), cluster_view(made, number)
        theirs = as_the_daemon_sees_it(made, number, known)
        assert ours[0] == theirs[0]
        np.testing.assert_allclose(ours[1].releases, theirs[1].releases, rtol=1e-12)
        np.testing.assert_allclose(ours[1].queued, theirs[1].queued, rtol=1e-12)
        one, other = encode(*ours), encode(*theirs)
        np.testing.assert_allclose(one.features, other.features, rtol=1e-6)


def test_a_known_run_time_replaces_the_part_of_the_limit_in_views() -> None:
    plain = simulator([msgspec.structs.replace(each, managed=False) for each in JOBS], SITE)
    known = [
        msgspec.structs.replace(each, managed=False, run_time=RunTimeEstimate(70.0, 70.0, 70.0, "test"))
        for each in JOBS
    ]
    informed = simulator(known, SITE)
    plain.run(55.0)
    informed.run(55.0)
    number = 5
    assert cluster_view(plain, number).queued[0, 1] != 70.0
    assert set(cluster_view(informed, number).queued[:, 1]) == {70.0}
    assert cluster_view(informed, number).releases[:, 0].max() <= 70.0


def test_jobs_of_features_slices_shards_and_sockets_see_what_the_daemon_shows_them() -> None:
    """Two kinds of whole nodes, one of a GPU type that jobs name; a third with slices and shared GPUs."""
    kinds = (
        NodeKind(count=2, shape=SHAPE, gpu_type="h100", features=("ib",), sockets=Sockets(2, 4)),
        NodeKind(count=1, shape=SHAPE, gpu_type="v100", features=("old",)),
        NodeKind(count=1, shape=BIG, gpu_type="h100", gres="gpu:1g.10gb:7,shard:32", features=("ib", "mix")),
        NodeKind(count=1, shape=msgspec.structs.replace(SHAPE, gpus=0)),
    )
    there = msgspec.structs.replace(SITE, nodes=kinds)
    asked: list[dict[str, object]] = [
        {"gpu_type": "h100"},
        {"gpu_type": "h100", "constraint": "mix"},
        {"gpu_type": "v100"},
        {"constraint": "ib&mix", "gpu_type": "1g.10gb"},
        {"is_shard": True},
        {"gpu_type": "h100", "constraint": "old|ib"},
        {"gpu_type": "h100", "sockets": Sockets(sockets=2)},
    ]
    jobs = [
        job(number, size(gpus, 400, cpus_per_task=1, mem_mib_per_node=500), 90 + number, user=number % 2, **kind)
        for number, (gpus, kind) in enumerate((gpus, kind) for gpus in (3, 4, 4, 1) for kind in asked)
    ]
    made = simulator(jobs, there)
    made.run(80.0)
    waiting = np.flatnonzero(made.world.jobs["state"] == PENDING).tolist()
    assert {made.pools[made.world.sizes[number]["pool"]] for number in waiting} >= {jobs[0].asked, jobs[4].asked}
    for number in waiting:
        ours = job_view(made, number, jobs[number]), cluster_view(made, number)
        theirs = as_the_daemon_sees_it(made, number, jobs)
        assert ours[0] == theirs[0]
        assert (ours[1].shape, ours[1].gpu_types, ours[1].device) == (
            theirs[1].shape,
            theirs[1].gpu_types,
            theirs[1].device,
        )
        np.testing.assert_array_equal(ours[1].releases, theirs[1].releases)
        one, other = encode(*ours), encode(*theirs)
        np.testing.assert_array_equal(one.features, other.features)
        assert one.alternatives == other.alternatives
