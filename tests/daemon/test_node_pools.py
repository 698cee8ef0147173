"""Which nodes a job may use, with which of their devices, and which sizes fit on them."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from rlalloc.constraint import is_simple
from rlalloc.devices import Device, NodeDevices
from rlalloc.pool import CPUS
from rlallocd.cluster.node_pools import NodePools
from rlallocd.slurm import JobRecord, NodeNeeds
from tests.daemon.slurm_in_memory import NODE, gpus
from tests.daemon.test_request_sizes_and_tags import JOB, SIZE

LARGE = msgspec.structs.replace(
    NODE, name="n1", cpus=64, mem_mib=512_000, devices=gpus("a100", 8, 2), features=frozenset({"new", "ib"})
)
SMALL = tuple(
    msgspec.structs.replace(
        LARGE, name=f"n{number}", cpus=32, mem_mib=96_000, devices=gpus("v100", 4), features=frozenset({"old", "ib"})
    )
    for number in range(2, 6)
)
MIXED = NodePools((LARGE, *SMALL))
ONE = msgspec.structs.replace(
    SIZE, nodes=1, gpus_per_node=1, tasks_per_node=1, cpus_per_task=8, mem_mib_per_node=65_536
)


def job(**changes: Any) -> JobRecord:
    return msgspec.structs.replace(JOB, **({"gpu_type": "", "partition": LARGE.partitions[0]} | changes))


def names(pools: NodePools, asking: JobRecord) -> str:
    pool = pools.for_job(asking, asking.partition.split(",")[0])
    return " ".join(pools.nodes[place].name for place in pool.pool.places)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, "n1 n2 n3 n4 n5"),
        ({"gpu_type": "v100"}, "n2 n3 n4 n5"),
        ({"gpu_type": "h100"}, ""),
        ({"features": "new"}, "n1"),
        ({"features": "old&ib"}, "n2 n3 n4 n5"),
        ({"features": "new|old"}, "n1 n2 n3 n4 n5"),
        ({"features": "old,new"}, ""),
        ({"features": "ib*2"}, ""),
        ({"excluded_nodes": "n[1,3-4]"}, "n2 n5"),
        ({"excluded_nodes": "n[1-"}, ""),
        ({"excluded_nodes": "@all:x"}, "n1 n2 n3 n4 n5"),
    ],
)
def test_a_job_may_use_the_nodes_that_it_asks_for(changes: Mapping[str, str], found: str) -> None:
    assert names(MIXED, job(**changes)) == found


TWO_THREADS = msgspec.structs.replace(LARGE, sockets=2, cores=16, threads=2, cpus_per_core=2, tmp_disk_mib=1000)
ONE_THREAD = msgspec.structs.replace(LARGE, name="n2", sockets=4, cores=16, threads=1)
CORES_ARE_CPUS = msgspec.structs.replace(TWO_THREADS, name="n3", cores=32, cpus_per_core=1, tmp_disk_mib=0)
IN_PARTS = NodePools((TWO_THREADS, ONE_THREAD, CORES_ARE_CPUS))


@pytest.mark.parametrize(
    ("needs", "found", "cpus", "told"),
    [
        (NodeNeeds(), "n1 n2 n3", [64, 64, 64], ""),
        (NodeNeeds(sockets=4), "n2", [64], "only nodes with at least 4 sockets: 1 of 3"),
        (
            NodeNeeds(sockets=2, cores=16),
            *("n1 n2 n3", [64, 64, 64], "only nodes with at least 2 sockets, 16 cores a socket: 3 of 3"),
        ),
        (NodeNeeds(cores=33), "", [], "only nodes with at least 33 cores a socket: 0 of 3"),
        (NodeNeeds(threads=2), "n1 n3", [64, 64], "only nodes with at least 2 threads a core: 2 of 3"),
        (NodeNeeds(threads=1), "n1 n2 n3", [32, 64, 64], "of each core only 1 thread"),
        (NodeNeeds(tmp_disk_mib=1000), "n1", [64], ""),
    ],
)
def test_its_nodes_have_the_parts_that_it_asks_for(needs: NodeNeeds, found: str, cpus: list[int], told: str) -> None:
    asking = job(needs=needs)
    assert names(IN_PARTS, asking) == found
    assert IN_PARTS.for_job(asking, asking.partition).has[:, CPUS].tolist() == cpus
    assert IN_PARTS.told_of_sockets(asking) == told


def test_a_size_that_does_not_fit_is_told_with_the_sockets_that_it_asks_for() -> None:
    four, larger = job(needs=NodeNeeds(sockets=4)), msgspec.structs.replace(ONE, nodes=2)
    (why,) = IN_PARTS.unfit(four, larger)
    assert why.startswith("there are no 2 nodes with at least 4 sockets for it")


@pytest.mark.parametrize(("nodes", "excluded", "fits"), [(4, "", True), (2, "n3", True), (3, "n3", False)])
def test_contiguous_nodes_are_in_a_row(nodes: int, excluded: str, *, fits: bool) -> None:
    asking = job(gpu_type="v100", excluded_nodes=excluded, needs=NodeNeeds(contiguous=True))
    assert (not list(MIXED.unfit(asking, msgspec.structs.replace(ONE, nodes=nodes)))) == fits


def test_only_usable_nodes_with_gpus_of_the_partition_count() -> None:
    nodes = (
        msgspec.structs.replace(LARGE, usable=False),
        msgspec.structs.replace(LARGE, devices=()),
        msgspec.structs.replace(LARGE, partitions=("other",)),
    )
    assert names(NodePools(nodes), job()) == ""


def test_a_pool_has_what_its_jobs_can_get() -> None:
    """The largest node is an a100 node; only v100 nodes count for a job that asks for v100."""
    whole, typed = (MIXED.for_job(job(gpu_type=gpu_type), LARGE.partitions[0]) for gpu_type in ("", "v100"))
    assert (whole.shape.gpus, whole.gpu_types) == (8, ("a100", "v100"))
    assert (typed.shape.gpus, typed.shape.mem_mib, typed.gpu_types) == (4, 96_000, ("v100",))
    assert whole.pool.of(MIXED.free)[:, 0].tolist() == [6, 4, 4, 4, 4]


@pytest.mark.parametrize(
    ("gpu_type", "counts"), [("a100", [4, 0]), ("1g.10gb", [7, 28]), ("", []), ("v100", [2]), ("2g.20gb", [])]
)
def test_devices_of_different_kinds_are_never_added_up(gpu_type: str, counts: list[int]) -> None:
    """One node of each: GPUs and slices, slices alone, GPUs of two types."""
    devices = (gpus("a100", 4) + gpus("1g.10gb", 7), gpus("1g.10gb", 28), gpus("a100", 0) + gpus("v100", 2))
    two_types = (*gpus("a100", 2, 2), *gpus("v100", 2))
    pools = NodePools(
        [
            msgspec.structs.replace(LARGE, name=f"n{number}", devices=each)
            for number, each in enumerate((*devices[:2], two_types))
        ]
    )
    pool = pools.for_job(job(gpu_type=gpu_type), LARGE.partitions[0])
    assert pool.pool.of(pools.free)[:, 0].tolist() == counts
    assert pools.mixes_devices(job(gpu_type=gpu_type)) is (gpu_type == "")


def test_a_job_may_have_gpus_of_a_node_whose_others_are_shared() -> None:
    shared = (*gpus("a100", 4, 3), NodeDevices(Device("shard", "a100"), 16, 10, per_gpu=4))
    pools = NodePools([msgspec.structs.replace(LARGE, devices=shared)])
    for gpu_type in ("", "a100"):
        assert pools.for_job(job(gpu_type=gpu_type), LARGE.partitions[0]).pool.of(pools.free)[0, 0] == 1
    assert not pools.mixes_devices(job())


@pytest.mark.parametrize(
    ("changes", "size", "fits"),
    [
        ({}, {"gpus_per_node": 8, "mem_mib_per_node": 400_000}, True),
        ({}, {"nodes": 2, "gpus_per_node": 8}, False),
        ({}, {"nodes": 5, "gpus_per_node": 4}, True),
        ({"gpu_type": "v100"}, {"nodes": 4, "gpus_per_node": 4}, True),
        ({"gpu_type": "v100"}, {"gpus_per_node": 8}, False),
        ({"gpu_type": "v100"}, {"gpus_per_node": 2, "mem_mib_per_node": 131_072}, False),
        ({"gpu_type": "v100"}, {"cpus_per_task": 33}, False),
        ({"excluded_nodes": "n[2-5]"}, {"nodes": 2}, False),
        ({"required_nodes": "n1"}, {"gpus_per_node": 8, "mem_mib_per_node": 400_000}, True),
        ({"required_nodes": "n2"}, {"gpus_per_node": 8, "mem_mib_per_node": 400_000}, False),
        ({"required_nodes": "n9"}, {}, False),
        ({"required_nodes": "n[2-3]"}, {"nodes": 1}, True),
        ({"required_nodes": "n["}, {}, False),
        ({"partition": f"none,{LARGE.partitions[0]}"}, {}, True),
    ],
)
def test_a_size_fits_where_enough_of_them_could_hold_it(
    changes: Mapping[str, str], size: Mapping[str, int], *, fits: bool
) -> None:
    assert (not list(MIXED.unfit(job(**changes), msgspec.structs.replace(ONE, **size)))) is fits


@pytest.mark.parametrize(
    ("constraint", "simple"),
    [
        *((each, True) for each in ("", "a", "a&b", "a,b", "a|b|c")),
        *((each, False) for each in ("a&b|c", "a*2", "[a|b]", "(a|b)&c")),
    ],
)
def test_what_a_simple_constraint_is(constraint: str, *, simple: bool) -> None:
    assert is_simple(constraint) is simple
