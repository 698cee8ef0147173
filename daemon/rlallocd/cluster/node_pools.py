"""The nodes of one snapshot as pools: which ones each job may use, with what of it, and whether a size fits there."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Final, NamedTuple

import msgspec
import numpy as np

from rlalloc.bounds import NodeShape
from rlalloc.constraint import has_features, is_simple
from rlalloc.counted import counted
from rlalloc.devices import ANY_GPU, NOWHERE, Device, place_of
from rlalloc.job import Allocation
from rlalloc.pool import CPUS, DEVICES, FURTHER, MEM_MIB, FloatArray, IntArray, Pool, holding
from rlalloc.sockets import Sockets
from rlallocd.cluster.node_demands import names_in, open_to
from rlallocd.slurm import JobRecord, NodeNeeds, NodeRecord

Asked = tuple[bool, str, str, str, NodeNeeds]
"""All that decides which nodes of a partition a job may use: devices, features, excluded nodes and other needs."""
asked_by: Final[Callable[[JobRecord], Asked]] = attrgetter(
    "is_shard", "gpu_type", "features", "excluded_nodes", "needs"
)
"""Jobs of a partition for which this is the same share a pool."""
_Held = tuple[str, Asked, tuple[int, int, int, int], frozenset[str], frozenset[str]]
"""Partitions, what is asked of a node and of how many, and the nodes that are named and those that do not count."""


@dataclass(frozen=True, eq=False)
class NodePool:
    """The usable nodes of a partition that some jobs may use.

    shape      the largest of them in devices of these jobs, CPUs and memory
    gpu_types  the types of GPUs that a job may get; empty where a node has none
    has        devices, CPUs and MiB of each node that these jobs can use, shape (nodes, 3)
    contiguous  whether a job's nodes have to be in a row, in slurmctld's order
    """

    partition: str
    device: Device
    pool: Pool
    has: FloatArray
    shape: NodeShape
    gpu_types: tuple[str, ...]
    contiguous: bool = False

    def holds(self, size: Allocation, named: IntArray, closed: IntArray) -> bool:
        """Whether enough of the nodes would hold a size if they were idle, and those at the places ``named`` do.

        Those at the places ``closed`` do not count.
        """
        fitting = holding(self.has, size)
        if self.device.kind == "shard" and size.gpus_per_node > self.shape.gpus:
            return False
        if len(closed):
            fitting &= ~np.isin(self.pool.places, closed)
        places = self.pool.places[fitting]
        if self.contiguous and size.nodes > 1:
            return not len(named) and _longest_row(places) >= size.nodes  # of named nodes, Slurm's word has to do
        return len(places) >= size.nodes and (not len(named) or bool(np.isin(named, places).all()))


class _Alike(NamedTuple):
    """What decides which jobs may use a node; most nodes of a site share it with many others."""

    partitions: tuple[str, ...]
    features: frozenset[str]
    devices: tuple[Device, ...]
    per_gpu: tuple[int, ...]
    usable: bool
    sockets: Sockets
    cpus_per_core: int
    tmp_disk_mib: int

    def meets(self, needs: NodeNeeds) -> bool:
        """Whether it has the sockets, cores, threads and disk that a job asks for."""
        return self.sockets.meet(needs.parts) and self.tmp_disk_mib >= needs.tmp_disk_mib

    def threads_for(self, needs: NodeNeeds) -> float:
        """How many of its CPUs a job takes for each that it uses: more than one where it leaves threads idle."""
        return self.cpus_per_core / needs.threads if 0 < needs.threads < self.cpus_per_core else 1.0


class NodePools:
    """Each pool is looked up once. What pools are made of is computed when it is first needed."""

    def __init__(self, nodes: Sequence[NodeRecord]) -> None:
        self.nodes = tuple(nodes)
        self._known: dict[tuple[str, Asked], NodePool] = {}
        self._places: dict[frozenset[str], IntArray] = {}
        self._mixed: dict[tuple[str, str, str], bool] = {}
        self._held: dict[_Held, bool] = {}
        self._told: dict[tuple[str, Asked], str] = {}

    @cached_property
    def places(self) -> dict[str, int]:
        """The place of each node in ``nodes``, by its name."""
        return {node.name: place for place, node in enumerate(self.nodes)}

    @cached_property
    def has(self) -> FloatArray:
        """What each node has, in the columns of a stock."""
        return _stock([(node.cpus, node.mem_mib, [each.count for each in node.devices]) for node in self.nodes])

    @cached_property
    def free(self) -> FloatArray:
        """What no job holds of each node, in the same columns."""
        used = [(node.cpus_used, node.mem_mib_used, [each.used for each in node.devices]) for node in self.nodes]
        return self.has - _stock(used)

    @cached_property
    def with_devices(self) -> int:
        """The number of usable nodes with devices."""
        return sum(node.usable and bool(node.devices) for node in self.nodes)

    @cached_property
    def _kinds(self) -> tuple[tuple[_Alike, ...], IntArray]:
        """The different kinds of nodes, and for each node the index of its kind."""
        kinds: dict[_Alike, int] = {}
        kind = [kinds.setdefault(_alike(node), len(kinds)) for node in self.nodes]
        return tuple(kinds), np.array(kind, dtype=np.int64)

    def for_job(self, job: JobRecord, partition: str) -> NodePool:
        """The pool of a job in one of its partitions, by its devices, features, excluded nodes and other needs.

        Nodes with slices of GPUs (MIG) or GPUs of several types are left out where a job names no type. A constraint
        that is not simple, and a host list that cannot be read, leave no nodes.
        """
        key = partition, asked_by(job)
        if key not in self._known:
            self._known[key] = self._pool(partition, job.device, job.features, job.excluded_nodes, job.needs)
        return self._known[key]

    def devices_of(self, pool: NodePool) -> FloatArray:
        """The devices of a pool on each node of the site, kind by kind, in one row; 0 where it has none."""
        found = np.zeros(self.has.shape)
        found[pool.pool.places, DEVICES if pool.pool.column is None else pool.pool.column] = pool.has[:, DEVICES]
        return found.ravel()

    def mixes_devices(self, job: JobRecord) -> bool:
        """Whether Slurm may give the job slices (MIG) or GPUs of several types, for it names none."""
        key = job.partition, job.features, job.excluded_nodes
        if job.device != ANY_GPU:
            return False
        if key not in self._mixed:
            self._mixed[key] = any(node.gpus and not node.has_alike_gpus for node in open_to(job, self.nodes))
        return self._mixed[key]

    def unfit(self, job: JobRecord, size: Allocation, closed: frozenset[str] = frozenset()) -> Iterator[str]:
        """Say why no set of nodes that the job may use would hold ``size``, were they idle.

        ``closed`` are nodes to leave out.
        """
        if names_in(job.required_nodes) is None:
            yield f"rlalloc cannot read the node list {job.required_nodes}"
        elif not self.fits(job, size, closed):
            found = "there is no node" if size.nodes == 1 else f"there are no {size.nodes} nodes"
            yield f"{found}{job.needs.which_nodes} for it with {size.describe()}"

    def fits(self, job: JobRecord, size: Allocation, closed: frozenset[str] = frozenset()) -> bool:
        """Whether ``unfit`` would yield nothing."""
        required = names_in(job.required_nodes)
        if required is None:
            return False
        named = required if size.nodes >= len(required) else frozenset()  # the update clears a longer list
        return self._hold(job, size, named, closed)

    def told_of_sockets(self, job: JobRecord) -> str:
        """What the sockets, cores and threads that a job asks for leave of its nodes; empty if it asks for none."""
        key = job.partition, asked_by(job)
        if key not in self._told:
            self._told[key] = "; ".join(self._effects_of_sockets(job)) if any(job.needs.parts) else ""
        return self._told[key]

    def _effects_of_sockets(self, job: JobRecord) -> Iterator[str]:
        needs = job.needs
        if needs.which_nodes:
            others = msgspec.structs.replace(needs, sockets=0, cores=0, threads=0)
            possible = self._pools_of(msgspec.structs.replace(job, needs=others))
            yield f"only nodes{needs.which_nodes}: {_size_of_all(self._pools_of(job))} of {_size_of_all(possible)}"
        if any(pool.pool.threads is not None for pool in self._pools_of(job)):
            yield f"of each core only {counted(needs.threads, 'thread')}"

    def _pools_of(self, job: JobRecord) -> list[NodePool]:
        return [self.for_job(job, partition) for partition in job.partition.split(",")]

    def _hold(self, job: JobRecord, size: Allocation, named: frozenset[str], closed: frozenset[str]) -> bool:
        """Whether a pool of the job does; kept, for many jobs of a cycle ask for the same."""
        of_node = size.nodes, size.gpus_per_node, size.cpus_per_node, size.mem_mib_per_node
        key = job.partition, asked_by(job), of_node, named, closed
        if key not in self._held:
            places = self._places_of(named), self._places_of(closed)
            self._held[key] = any(pool.holds(size, *places) for pool in self._pools_of(job))
        return self._held[key]

    def _places_of(self, names: frozenset[str]) -> IntArray:
        if names not in self._places:
            self._places[names] = np.array([self.places.get(name, NOWHERE) for name in names], dtype=np.int64)
        return self._places[names]

    def _pool(self, partition: str, device: Device, features: str, excluded_nodes: str, needs: NodeNeeds) -> NodePool:
        kinds, kind = self._kinds
        excluded = names_in(excluded_nodes)
        readable = excluded is not None and is_simple(features)
        # Where the devices of these jobs stand among a node's, -1 where it has none for them.
        of_kind = [
            place_of(alike.devices, device)
            if readable
            and alike.usable
            and partition in alike.partitions
            and has_features(alike.features, features)
            and alike.meets(needs)
            else NOWHERE
            for alike in kinds
        ]
        numbers = np.array(of_kind, dtype=np.int64)[kind]
        for name in excluded or ():
            if name in self.places:
                numbers[self.places[name]] = NOWHERE
        places = np.flatnonzero(numbers >= 0)
        columns = np.where(numbers[places] > 0, FURTHER - 1 + numbers[places], DEVICES)
        threads = np.array([alike.threads_for(needs) for alike in kinds], dtype=np.float64)[kind[places]]
        pool = Pool(places, columns if columns.any() else None, threads=threads if (threads > 1.0).any() else None)
        has = pool.of(self.has)
        gpus, cpus, mem_mib = has[np.lexsort(has.T[::-1])[-1]].astype(int).tolist() if len(places) else (0, 0, 0)
        pairs = set(zip(kind[places].tolist(), numbers[places].tolist(), strict=True))
        if device.kind == "shard":  # Slurm gives a job shards of one GPU of a node
            gpus = max((kinds[each].per_gpu[number] for each, number in pairs), default=0)
        types = {kinds[each].devices[number].type for each, number in pairs}
        # Where a type is unknown, its GPUs may be the smallest.
        gpu_types = () if "" in types else tuple(sorted(types))
        return NodePool(partition, device, pool, has, NodeShape(gpus, cpus, mem_mib), gpu_types, needs.contiguous)


def free_parts(nodes: Sequence[NodeRecord]) -> NodePools:
    """Pools of nodes that are as large as what no job holds of them."""
    return NodePools([_free_part(node) for node in nodes])


def _free_part(node: NodeRecord) -> NodeRecord:
    devices = (msgspec.structs.replace(each, count=each.count - each.used, used=0) for each in node.devices)
    return msgspec.structs.replace(
        node,
        cpus=node.cpus - node.cpus_used,
        cpus_used=0,
        mem_mib=node.mem_mib - node.mem_mib_used,
        mem_mib_used=0,
        devices=tuple(devices),
    )


def _stock(rows: Sequence[tuple[int, int, list[int]]]) -> FloatArray:
    """CPUs, MiB and devices of nodes, in the columns of a stock."""
    kinds = max((len(devices) for *_, devices in rows), default=0)
    stock = np.zeros((len(rows), max(FURTHER, FURTHER - 1 + kinds)))
    stock[:, CPUS] = [cpus for cpus, _, _ in rows]
    stock[:, MEM_MIB] = [mem_mib for _, mem_mib, _ in rows]
    for number in range(kinds):
        stock[:, column_of(number)] = [devices[number] if number < len(devices) else 0 for *_, devices in rows]
    return stock


def column_of(number: int) -> int:
    """The column of a stock that has a node's devices of its first kind, its second, and so on."""
    return FURTHER - 1 + number if number else DEVICES


def _alike(node: NodeRecord) -> _Alike:
    devices = tuple(each.device for each in node.devices)
    per_gpu = tuple(each.per_gpu for each in node.devices)
    sockets = Sockets(node.sockets, node.cores, node.threads)
    parts = sockets, node.cpus_per_core, node.tmp_disk_mib
    return _Alike(node.partitions, node.features, devices, per_gpu, node.usable, *parts)


def _size_of_all(pools: Sequence[NodePool]) -> int:
    """How many nodes they have together; they may overlap."""
    return len(np.unique(np.concatenate([pool.pool.places for pool in pools])))


def _longest_row(places: IntArray) -> int:
    """The most places that follow each other without a gap."""
    if not len(places):
        return 0
    gaps = np.flatnonzero(np.diff(places) != 1)
    ends = np.concatenate(([-1], gaps, [len(places) - 1]))
    return int(np.diff(ends).max())
