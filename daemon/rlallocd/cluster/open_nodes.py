"""Whether a size fits nodes that a job may use and that are not reserved for others while it would run."""

from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property

import msgspec

from rlalloc.job import Allocation
from rlallocd.cluster.node_demands import open_to
from rlallocd.cluster.node_pools import NodePools
from rlallocd.slurm import JobRecord, NodeRecord, ReservationRecord


class OpenNodes:
    """The nodes of ``pools`` and the reservations of one moment, ``now_s``.

    Nodes whose state is not known yet count as usable: slurmctld has just started, and they are about to report.
    slurmctld starts no job that may still run when a reservation of its nodes begins. A reservation of a part of a
    node counts as one of the whole node.
    """

    def __init__(self, pools: NodePools, reservations: Sequence[ReservationRecord], now_s: float) -> None:
        if any(node.awaited for node in pools.nodes):
            pools = NodePools(
                [msgspec.structs.replace(node, usable=node.usable or node.awaited) for node in pools.nodes]
            )
        self._pools = pools
        self._now_s = now_s
        self._reservations = sorted((each for each in reservations if each.end_s > now_s), key=_start)
        self._starts = [each.start_s for each in self._reservations]
        self._reserved: dict[int, frozenset[str]] = {}

    def why_not(self, job: JobRecord, size: Allocation) -> str:
        """Why no set of nodes would hold a job that has no reservation, were they idle now; or an empty string."""
        end_s = self._now_s + size.time_limit_s
        why = next(self._pools.unfit(job, size, self.reserved_until(end_s)), "")
        if not why or any(self._pools.unfit(job, size)):
            return why
        return f"{why} outside {self._named_until(end_s, job)}"

    def state_for(self, size: Allocation) -> tuple[int, int]:
        """A value that differs wherever ``why_not`` may give another answer for this size than at another moment."""
        return self._state, bisect_left(self._starts, self._now_s + size.time_limit_s)

    def reserved_until(self, end_s: float) -> frozenset[str]:
        """The nodes that are reserved at some time from now to ``end_s``."""
        number = bisect_left(self._starts, end_s)
        if number not in self._reserved:
            self._reserved[number] = frozenset().union(*(each.nodes for each in self._reservations[:number]))
        return self._reserved[number]

    def _named_until(self, end_s: float, job: JobRecord) -> str:
        """The reservations that hold nodes open to a job at some time from now to ``end_s``, in words."""
        usable = {node.name for node in open_to(job, self._pools.nodes)}
        coming = self._reservations[: bisect_left(self._starts, end_s)]
        names = [each.name for each in coming if not usable.isdisjoint(each.nodes)]
        return f"reservation{'' if len(names) == 1 else 's'} {', '.join(names)}"

    @cached_property
    def _state(self) -> int:
        nodes = tuple(_what_counts(node) for node in self._pools.nodes)
        return hash((nodes, *((each.name, each.start_s, each.nodes) for each in self._reservations)))


def _what_counts(node: NodeRecord) -> tuple[object, ...]:
    """All that ``why_not`` asks of a node: what it has, not what jobs hold of it."""
    devices = tuple([(each.device, each.count, each.per_gpu) for each in node.devices])
    parts = node.sockets, node.cores, node.threads, node.cpus_per_core, node.tmp_disk_mib
    return node.name, node.usable, node.partitions, node.cpus, node.mem_mib, devices, node.features, parts


def _start(reservation: ReservationRecord) -> int:
    return reservation.start_s
