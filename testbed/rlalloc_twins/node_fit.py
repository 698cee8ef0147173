"""Whether a size fits what is free on nodes that a job may use: our own count, from what scontrol shows of both."""

import re
from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from rlalloc.job import Allocation
from rlalloc_twins.twin_nodes import FIRST, OTHERS, PARTITIONS
from rlalloc_twins.twin_record import Look, NodeSeen, TwinJob

RESERVED: Final = 8
"""The node of a reservation, for those jobs only that name it, and the only one for them."""
_TYPE: Final = re.compile(r"gpu:([a-z]\w*):\d")
KINDS: Final = dict(enumerate((kind for kind in (FIRST, *OTHERS) for _ in range(kind.nodes)), 1))
"""What a node is by its number."""


def emptied(look: Look) -> Look:
    """The same nodes with nothing on them; those that take no jobs stay so."""
    return msgspec.structs.replace(look, nodes=tuple(map(_emptied, look.nodes)))


def _emptied(node: NodeSeen) -> NodeSeen:
    kind = KINDS[int(node.name[1:])]
    return msgspec.structs.replace(node, gpus=kind.gpus, cpus=kind.cpus, mem_mib=kind.mem_mib)


EMPTY: Final = emptied(Look(0.0, (), tuple(NodeSeen(f"n{number}", "IDLE", 0, 0, 0) for number in KINDS)))
"""A site on which nothing runs."""


def fits(job: TwinJob, size: Allocation, look: Look) -> bool:
    """Whether enough nodes that the job may use had that much free."""
    record = job.records[0] if job.records else {}
    free = [node for node in look.nodes if node.takes_jobs and _may_use(record, node)]
    need = size.gpus_per_node, size.cpus_per_node, size.mem_mib_per_node
    holding = [
        node
        for node in free
        if all(has >= wants for has, wants in zip((node.gpus, node.cpus, node.mem_mib), need, strict=True))
    ]
    named = _numbers(record.get("ReqNodeList", ""))
    if named and not named <= {int(node.name[1:]) for node in holding}:
        return False
    return len(holding) >= size.nodes


def _may_use(record: Mapping[str, str], node: NodeSeen) -> bool:
    number = int(node.name[1:])
    kind = KINDS[number]
    partitions = record.get("Partition", "").split(",")
    open_to = any(
        each.name in partitions and (each.nodes == "ALL" or number in _numbers(each.nodes)) for each in PARTITIONS
    )
    asked = _TYPE.search(" ".join(record.get(name, "") for name in ("TresPerNode", "TresPerJob", "TresPerTask")))
    return (
        open_to
        and number not in _numbers(record.get("ExcNodeList", ""))
        and (asked is None or asked[1] == kind.gpu_type)
        and _has(kind.features, record.get("Features", ""))
        and (number == RESERVED) == ("Reservation" in record)
    )


def _has(features: Collection[str], constraint: str) -> bool:
    if constraint in ("", "(null)"):
        return True
    return any(all(name in features for name in part.split("&")) for part in constraint.split("|"))


def _numbers(names: str) -> frozenset[int]:
    """The numbers of ``n[1-3,7]``; none of "(null)"."""
    spans = re.findall(r"(\d+)(?:-(\d+))?", names)
    return frozenset(number for first, last in spans for number in range(int(first), int(last or first) + 1))
