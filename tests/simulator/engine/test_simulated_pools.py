"""Jobs run on nodes that have what they ask for: features, GPUs of a type, slices (MIG), shards and sockets."""

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import numba
import numpy as np
import pytest

from rlalloc.allocation import allocation_for
from rlalloc.devices import Device
from rlalloc.heuristics import Heuristic, known_gain, largest
from rlalloc.job import Shares
from rlalloc.sockets import Sockets
from rlalloc_simulator.driving import drive, sizes_now
from rlalloc_simulator.engine import SimulatedSite, Simulator, SubmittedJob, UserKind, table_of
from rlalloc_simulator.engine.engine_records import COMPLETED, NOBODY, RUNNING
from rlalloc_simulator.engine.policy_views import cluster_view, usable_by
from rlalloc_simulator.site_from_workload import site_of, submitted_from, with_late_decisions
from rlalloc_simulator.workloads import (
    ClusterDescription,
    Header,
    Needs,
    NodeGroup,
    Request,
    WorkloadJob,
    read_workload,
    write_workload,
)
from tests.simulator.engine.by_hand import job, simulator, size

CLUSTER = ClusterDescription(
    nodes=(
        NodeGroup(
            "big", 2, gpus=8, cpus=64, mem_mib=64_000, gpu_type="a100", features=("ib", "big"), sockets_per_node=4
        ),
        NodeGroup("shared", 1, 4, 64, 64_000, "a100", gres="gpu:1g.10gb:7,shard:16", features=("ib",)),
        NodeGroup("old", 2, gpus=4, cpus=32, mem_mib=32_000, gpu_type="v100", features=("old",)),
        NodeGroup("sliced", 1, gpus=14, cpus=32, mem_mib=32_000, gpu_type="1g.10gb"),
        NodeGroup("cpus", 1, gpus=0, cpus=32, mem_mib=32_000, features=("ib",)),
    )
)
SITE = msgspec.structs.replace(site_of(CLUSTER, []), users=(UserKind(name="user0"),))
KINDS: tuple[dict[str, Any], ...] = (
    {"gpu_type": "a100"},
    {"gpu_type": "a100", "constraint": "ib&big"},
    {"gpu_type": "a100", "constraint": "old|ib"},
    {"constraint": "old"},
    {},
    {"gpu_type": "1g.10gb"},
    {"shards": True},
    {"gpu_type": "a100", "sockets_per_node": 4},
)


def drawn(count: int, seed: int) -> list[WorkloadJob]:
    """Jobs of all kinds, some of several nodes, most with a range."""
    generator = np.random.default_rng(seed)
    found = []
    for number in range(count):
        kind, nodes = KINDS[generator.integers(len(KINDS))], 1 + int(generator.integers(2))
        gpus = int(generator.integers(0 if "gpu_type" not in kind else 1, 5))
        nodes = 1 if kind.get("shards") or kind.get("gpu_type") == "1g.10gb" else nodes
        plain = Request(nodes, gpus, 1, max(1, gpus), 1000, 60 * int(generator.integers(5, 60)))
        found.append(
            WorkloadJob(
                id=number + 1,
                submit_s=30.0 * number,
                user=f"user{number % 3}",
                request=msgspec.structs.replace(plain, **kind) if gpus else plain,
                needs=Needs(run_time_s=0.5 * plain.time_limit_s, cpu_fraction=0.5, max_rss_mib=10.0),
                job_class="train" if gpus else None,
                directives="gpus=1-8" if gpus and number % 4 else "",
            )
        )
    return found


def submitted(jobs: list[WorkloadJob]) -> tuple[SimulatedSite, list[SubmittedJob]]:
    there = site_of(CLUSTER, jobs)
    return there, submitted_from(jobs, there)


def nodes_of(made: Simulator, number: int) -> list[int]:
    found, link = [], int(made.world.jobs[number]["first_hold"])
    while link != NOBODY:
        found.append(int(made.world.holds[link]["node"]))
        link = int(made.world.holds[link]["next"])
    return found


def check_placement(made: Simulator, jobs: list[SubmittedJob]) -> None:
    """By the words of the request alone: each job's nodes have its features and devices, and none has too many."""
    kinds = [group for group in CLUSTER.nodes for _ in range(group.count)]
    held: Counter[tuple[int, str]] = Counter()
    for number in np.flatnonzero(made.world.jobs["state"] == RUNNING).tolist():
        one, gpus = jobs[number], int(made.world.sizes[number]["gpus_per_node"])
        for node in nodes_of(made, number):
            group = kinds[node]
            assert one.constraint != "ib&big" or group.name == "big"
            assert one.constraint != "old|ib" or group.name in ("big", "shared")
            assert one.constraint != "old" or group.name == "old"
            assert group.sockets_per_node >= one.sockets.sockets
            assert not one.is_shard or (group.name == "shared" and gpus <= 4)
            assert one.gpu_type != "1g.10gb" or group.name in ("shared", "sliced")
            assert one.gpu_type != "a100" or group.name in ("big", "shared")
            held[node, "shard" if one.is_shard else "slice" if one.gpu_type == "1g.10gb" else "gpu"] += gpus
    for node, group in enumerate(kinds):
        slices = {"shared": 7, "sliced": 14}.get(group.name, 0)
        assert held[node, "slice"] <= slices
        whole = 0 if group.name == "sliced" else group.gpus
        assert held[node, "gpu"] + -(-held[node, "shard"] // 4) <= whole


@pytest.mark.parametrize(
    ("late", "policy"),
    [
        pytest.param(True, known_gain, marks=[pytest.mark.compiles, pytest.mark.xdist_group("compilation")]),
        (True, largest),
        (True, None),
        (False, known_gain),
        (False, largest),
        (False, None),
    ],
)
def test_a_job_runs_only_where_it_may_and_nothing_waits_for_ever(policy: Heuristic | None, late: bool) -> None:
    """Every job of the workload runs as requested; no policy changes that."""
    there, jobs = submitted(drawn(120, seed=1))
    made = simulator(jobs, with_late_decisions(there, 0.0) if late else there)

    def look(asked: list[int]) -> None:
        assert asked
        check_placement(made, jobs)

    driven = drive(made, jobs, policy, before=look)
    assert (driven.outcomes["state"] == COMPLETED).all()
    assert (made.world.free_devices == made.devices).all()


@pytest.mark.compiles
@pytest.mark.xdist_group("compilation")
def test_one_compilation_serves_each_site_its_clones_and_answers_in_one_go() -> None:
    """For arrays of another layout numba would compile all of the engine once more."""
    there, jobs = submitted(drawn(12, seed=1))
    made = [simulator(jobs, there), simulator([job(0.0, size(1))])]
    made += [each.clone() for each in made]
    assert len({numba.typeof(each.world) for each in made}) == 1  # type: ignore[no-untyped-call]
    for each in made:
        each.run_answered(np.asfortranarray(sizes_now(each)))
        assert (each.outcomes()["state"] == COMPLETED).all()


def test_the_workload_is_read_back_from_its_file(tmp_path: Path) -> None:
    jobs = drawn(20, seed=2)
    write_workload(tmp_path / "mixed.jsonl", Header(cluster=CLUSTER), jobs)
    header, again = read_workload(tmp_path / "mixed.jsonl")
    assert (header.cluster, again) == (CLUSTER, jobs)


@pytest.mark.parametrize(
    ("kind", "nodes", "devices", "of_a_node"),
    [
        ({"gpu_type": "1g.10gb"}, [2, 5], 21, 14),
        ({"shards": True}, [2], 16, 4),
        ({"gpu_type": "a100", "constraint": "big"}, [0, 1], 16, 8),
        ({"constraint": "old"}, [3, 4], 8, 4),
        ({"sockets_per_node": 4}, [0, 1], 16, 8),
    ],
)
def test_a_size_counts_devices_of_the_jobs_own_kind(
    kind: dict[str, object], nodes: list[int], devices: int, of_a_node: int
) -> None:
    """The view and the bounds are those of the nodes that it may use, in slices for a job of slices."""
    request = msgspec.structs.replace(Request(1, 2, 1, 2, 1000, 600), **kind)
    one = msgspec.structs.replace(
        drawn(1, 0)[0], request=request, job_class="train", directives=f"gpus=1-{of_a_node}"
    )
    there, jobs = submitted([one])
    made = simulator(jobs, there)
    assert made.run().tolist() == [0]
    view = cluster_view(made, 0)
    assert np.flatnonzero(usable_by(made, 0)).tolist() == nodes
    assert (view.totals[0], view.free[:, 0].sum(), view.shape.gpus) == (devices, devices, of_a_node)
    assert view.cluster_nodes == 6
    assert jobs[0].bounds.gpu_counts[-1] == of_a_node
    most = allocation_for(Shares(1.0, 1.0, 1.0), jobs[0].request, jobs[0].bounds, view.shape, lambda _: 1.0)
    assert (most.nodes, most.gpus_per_node) == (1, of_a_node)
    made.resize({0: most})
    made.run()
    assert made.outcomes()["state"].tolist() == [COMPLETED]


def test_a_shared_gpu_is_not_free_as_a_whole() -> None:
    """Five shards of the only shared node are on two of its four GPUs, of four shards each."""
    jobs = [job(0, size(1), is_shard=True) for _ in range(5)]
    jobs += [job(1, size(gpus, limit_s), gpu_type="a100", constraint="ib&s") for gpus, limit_s in ((2, 90), (1, 300))]
    shared = msgspec.structs.replace(SITE.nodes[1], features=("ib", "s"))
    made = simulator(jobs, msgspec.structs.replace(SITE, nodes=(shared,)))
    made.run(2.0)
    assert made.world.free_devices.tolist() == [[16 - 5 - 2 * 4, 7]]
    assert cluster_view(made, 6).free[0, 0] == 0
    assert made.pools[made.world.sizes[0]["pool"]].device == Device("shard")
    made.run()
    assert made.outcomes()["start_s"].tolist() == [0, 0, 0, 0, 0, 1, 91]  # when the time limit ends the one before
    assert made.world.users[0]["running_gpus"] == 0


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"constraint": "old", "gpu_type": "a100"}, "can never run"),
        ({"constraint": "ib*2"}, "is none of"),
        ({"sockets": Sockets(8, 16)}, "can never run .*, 8 sockets of 16 cores"),
        ({"sockets": Sockets(threads=1)}, "asks for threads"),
        ({"is_shard": True}, "can never run"),
        ({"gpu_type": "2g.20gb"}, "no node has GPUs of type"),
    ],
)
def test_what_no_node_has_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Simulator(SITE, table_of([job(0, size(5), **changes)], SITE))
