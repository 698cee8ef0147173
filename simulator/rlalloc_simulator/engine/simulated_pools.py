"""Which nodes of a simulated site a job may use, with which of their devices.

The rules are the daemon's (``rlalloc.devices``, ``rlalloc.constraint``, ``rlalloc.sockets``), and
``rlallocd.cluster.node_pools`` applies them to Slurm's snapshot; a test holds both together.

Whole GPUs and the shards of them are the same hardware, so they have one stock: it is counted in shards, and a whole
GPU takes as many as a GPU has. Shards are packed onto as few GPUs as possible.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from rlalloc.bounds import NodeShape
from rlalloc.constraint import has_features
from rlalloc.devices import ANY_GPU, NOWHERE, Device, NodeDevices, place_of
from rlalloc.sockets import Sockets
from rlalloc_simulator.engine.engine_records import NOBODY, POOL, Numbers, Records
from rlalloc_simulator.engine.site_parameters import NodeKind, SimulatedSite


class Asked(NamedTuple):
    """All that decides which nodes a job may use: the place of its partition, devices (None: none), a constraint.

    And the ``sockets`` that its nodes have at least.
    """

    partition: int
    device: Device | None = ANY_GPU
    constraint: str = ""
    sockets: Sockets = Sockets()


class _Stock(NamedTuple):
    """Where a node's devices of one kind are counted, and how many units each of them is there."""

    column: int
    units: int


_NOT_THERE: Final = (0, 1, NOBODY, 0)


def pools_of(site: SimulatedSite, asked: Sequence[Asked]) -> Records:
    """Return a row for each pool (pools, nodes), as ``engine_records.POOL`` has it."""
    rows = np.array(
        [[_in_kind(kind, site.partitions[each.partition].name, each) for kind in site.nodes] for each in asked],
        dtype=POOL,
    )
    return np.repeat(rows, [kind.count for kind in site.nodes], axis=1)


def devices_of(site: SimulatedSite) -> Numbers:
    """Return the units of each stock of each node, shape (nodes, stocks)."""
    kinds = [_units(kind.devices) for kind in site.nodes]
    widest = max(1, *map(len, kinds))
    rows = np.array([units + [0] * (widest - len(units)) for units in kinds], dtype=np.int64)
    return np.repeat(rows, [kind.count for kind in site.nodes], axis=0)


def shape_for(site: SimulatedSite, asked: Asked) -> NodeShape:
    """The shape for which bounds are made: the largest kind of node that the job may use, as in the daemon.

    That of the partition, where no kind of node will do.
    """
    name = site.partitions[asked.partition].name
    whole = [(kind.shape, kind.shape.gpus) for kind in site.nodes if name in kind.partitions]
    usable = [
        (NodeShape(count, kind.shape.cpus, kind.shape.mem_mib), most)
        for kind in site.nodes
        for _, _, most, count in (_in_kind(kind, name, asked),)
        if most != NOBODY
    ]
    found = whole if asked.device is None else usable or whole
    largest, _ = max(found, key=lambda each: (each[0].gpus, each[0].cpus, each[0].mem_mib))
    return NodeShape(max(most for _, most in found), largest.cpus, largest.mem_mib)


def gpu_types_in(site: SimulatedSite, asked: Asked) -> tuple[str, ...]:
    """The types of the devices that a job may get, sorted; empty where one has none."""
    name = site.partitions[asked.partition].name
    types = {
        kind.devices[place].device.type
        for kind in site.nodes
        if asked.device is not None and _in_kind(kind, name, asked)[2] > 0
        if (place := place_of(tuple(each.device for each in kind.devices), asked.device)) != NOWHERE
    }
    return () if "" in types else tuple(sorted(types))


def _in_kind(kind: NodeKind, partition: str, asked: Asked) -> tuple[int, int, int, int]:
    """A node of that kind in the pool, as ``POOL`` has it."""
    if partition not in kind.partitions or not has_features(frozenset(kind.features), asked.constraint):
        return _NOT_THERE
    if not kind.sockets.meet(asked.sockets):
        return _NOT_THERE
    if not kind.devices:
        return (0, 1, 0, 0) if asked.device in (None, ANY_GPU) else _NOT_THERE
    place = 0 if asked.device is None else place_of(tuple(each.device for each in kind.devices), asked.device)
    if place == NOWHERE:
        return _NOT_THERE
    its = kind.devices[place]
    # Slurm gives a job shards of one GPU of a node.
    most = its.per_gpu if its.device.kind == "shard" else its.count
    return (*_stock(kind.devices, its), most, its.count)


def _units(devices: Sequence[NodeDevices]) -> list[int]:
    """The units of each stock of a node."""
    return [each.count * _stock(devices, each).units for each in devices if _shared(devices, each) is None]


def _stock(devices: Sequence[NodeDevices], its: NodeDevices) -> _Stock:
    shared = _shared(devices, its)
    stocks = [each for each in devices if _shared(devices, each) is None]
    shards = [each.per_gpu for each in devices if _shared(devices, each) is its]
    return _Stock(stocks.index(shared or its), max([1, *shards]))


def _shared(devices: Sequence[NodeDevices], its: NodeDevices) -> NodeDevices | None:
    """The whole GPUs that shards are shards of; None for other devices, and where the node has none."""
    if its.device.kind != "shard":
        return None
    return next((each for each in devices if each.device.whole and its.device.type in ("", each.device.type)), None)
