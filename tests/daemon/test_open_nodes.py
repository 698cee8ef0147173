"""Which sizes fit on nodes that are not reserved for others meanwhile."""

from collections.abc import Sequence

import msgspec
import pytest

from rlallocd.cluster.node_pools import NodePools
from rlallocd.cluster.open_nodes import OpenNodes
from rlallocd.slurm import NodeRecord, ReservationRecord
from tests.daemon.slurm_in_memory import NODE, gpus
from tests.daemon.test_request_sizes_and_tags import JOB, SIZE

NOW_S = 1000.0
FREE = msgspec.structs.replace(NODE, name="n1")
RESERVED = msgspec.structs.replace(NODE, name="n2")
JOB_OF_ANY_TYPE = msgspec.structs.replace(JOB, gpu_type="", partition=NODE.partitions[0])
ONE = msgspec.structs.replace(SIZE, nodes=1, gpus_per_node=1, tasks_per_node=1, cpus_per_task=1, mem_mib_per_node=1)


def opened_at(nodes: Sequence[NodeRecord], reservations: Sequence[ReservationRecord], now_s: float) -> OpenNodes:
    return OpenNodes(NodePools(nodes), reservations, now_s)


def reservation(name: str, start_s: int, end_s: int, *nodes: str) -> ReservationRecord:
    return ReservationRecord(name=name, nodes=frozenset(nodes), start_s=start_s, end_s=end_s)


@pytest.mark.parametrize(
    ("nodes", "limit_s", "fits"),
    [(2, 500, True), (2, 501, False), (1, 501, True), (1, 2000, False)],
)
def test_a_job_must_end_before_its_nodes_are_reserved(nodes: int, limit_s: int, *, fits: bool) -> None:
    """One node is reserved in 500 s, both in 1,500 s; a reservation that has ended is none."""
    coming = (
        reservation("both", 2500, 3000, "n1", "n2"),
        reservation("past", 0, 1000, "n1"),
        reservation("one", 1500, 1600, "n2"),
    )
    opened = opened_at((FREE, RESERVED), coming, NOW_S)
    size = msgspec.structs.replace(ONE, nodes=nodes, time_limit_s=limit_s)
    assert (opened.why_not(JOB_OF_ANY_TYPE, size) == "") == fits


def test_the_reservations_in_the_way_are_named() -> None:
    coming = (
        reservation("maintenance", 1500, 1600, "n1"),
        reservation("course", 1600, 1700, "n2"),
        reservation("elsewhere", 1500, 1600, "n9"),
        reservation("later", 9000, 9100, "n1"),
    )
    opened = opened_at((FREE, RESERVED), coming, NOW_S)
    size = msgspec.structs.replace(ONE, time_limit_s=1000)
    why = opened.why_not(JOB_OF_ANY_TYPE, size)
    assert why == f"there is no node for it with {size.describe()} outside reservations maintenance, course"
    two = msgspec.structs.replace(size, nodes=2, time_limit_s=550)
    assert opened.why_not(JOB_OF_ANY_TYPE, two).endswith("a node, limit 550 s outside reservation maintenance")
    many = msgspec.structs.replace(size, nodes=3)
    assert opened.why_not(JOB_OF_ANY_TYPE, many) == f"there are no 3 nodes for it with {many.describe()}"


def test_a_node_that_has_not_reported_since_slurmctld_started_is_awaited() -> None:
    unknown = msgspec.structs.replace(FREE, usable=False, awaited=True)
    assert opened_at((unknown,), (), NOW_S).why_not(JOB_OF_ANY_TYPE, ONE) == ""
    assert opened_at((msgspec.structs.replace(unknown, awaited=False),), (), NOW_S).why_not(JOB_OF_ANY_TYPE, ONE)


def test_a_state_stands_for_all_that_an_answer_depends_on() -> None:
    before = opened_at((FREE,), (reservation("r", 1700, 1800, "n1"),), NOW_S).state_for(ONE)
    later = opened_at((FREE,), (reservation("r", 1700, 1800, "n1"),), NOW_S + 1).state_for(ONE)
    assert before == later
    in_use = msgspec.structs.replace(FREE, cpus_used=FREE.cpus, devices=gpus("a100", 8, 8))
    assert opened_at((in_use,), (reservation("r", 1700, 1800, "n1"),), NOW_S).state_for(ONE) == before
    nearer = opened_at((FREE,), (reservation("r", 1700, 1800, "n1"),), 1700.0 - ONE.time_limit_s + 1).state_for(ONE)
    gone = opened_at((msgspec.structs.replace(FREE, usable=False),), (), NOW_S).state_for(ONE)
    assert len({before, nearer, gone}) == 3
