"""Which nodes a job may use, and which sizes fit on them."""

from typing import Any

import msgspec
import pytest

from rlallocd.node_sets import NodeSets, is_simple
from rlallocd.slurm import JobRecord, NodeRecord
from tests.daemon.slurm_in_memory import NODE, gpus
from tests.daemon.test_request_sizes_and_tags import JOB, SIZE

LARGE = msgspec.structs.replace(
    NODE,
    name="n1",
    cpus=64,
    mem_mib=512_000,
    devices=gpus("a100", 8),
    features=frozenset({"new", "ib"}),
)
SMALL = tuple(
    msgspec.structs.replace(
        LARGE, name=f"n{number}", cpus=32, mem_mib=96_000, devices=gpus("v100", 4),
        features=frozenset({"old", "ib"}),
    )
    for number in range(2, 6)
)  # fmt: skip
MIXED = NodeSets((LARGE, *SMALL))
ONE = msgspec.structs.replace(
    SIZE, nodes=1, gpus_per_node=1, tasks_per_node=1, cpus_per_task=8, mem_mib_per_node=65_536
)


def job(**changes: Any) -> JobRecord:
    return msgspec.structs.replace(JOB, **({"gpu_type": "", "partition": LARGE.partitions[0]} | changes))


def names(nodes: tuple[NodeRecord, ...]) -> str:
    return " ".join(node.name for node in nodes)


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
def test_a_job_may_use_the_nodes_that_it_asks_for(changes: dict[str, str], found: str) -> None:
    assert names(MIXED.nodes_for(job(**changes), LARGE.partitions[0])) == found


def test_only_usable_nodes_with_gpus_of_the_partition_count() -> None:
    nodes = (
        msgspec.structs.replace(LARGE, usable=False),
        msgspec.structs.replace(LARGE, devices=()),
        msgspec.structs.replace(LARGE, partitions=("other",)),
        msgspec.structs.replace(LARGE, devices=gpus("a100", 4) + gpus("1g.10gb", 7)),
        msgspec.structs.replace(LARGE, devices=gpus("1g.10gb", 28)),
    )
    assert NodeSets(nodes).nodes_for(job(), LARGE.partitions[0]) == ()


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
        ({"required_nodes": "n[2-3]"}, {"nodes": 1}, True),
        ({"required_nodes": "n["}, {}, False),
        ({"partition": f"none,{LARGE.partitions[0]}"}, {}, True),
    ],
)
def test_a_size_fits_where_enough_of_them_could_hold_it(
    changes: dict[str, str], size: dict[str, int], *, fits: bool
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
