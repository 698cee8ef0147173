"""Which nodes a job may use, and whether a size fits on some of them at all."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from rlalloc.job import Allocation
from rlallocd.slurm import JobRecord, NodeRecord

_NAME: Final = r"[^&|,*()\[\]]+"
_SIMPLE: Final = re.compile(rf"{_NAME}(?:(?:[&,]{_NAME})*|(?:\|{_NAME})*)")
_Demand = tuple[str, str, str, str]
_Shape = tuple[int, int, int]


def is_simple(constraint: str) -> bool:
    """Whether a constraint is features of which a node must have all (``a&b``), or any (``a|b``), or is empty."""
    return not constraint or _SIMPLE.fullmatch(constraint) is not None


class NodeSets:
    """The nodes of one snapshot, by what jobs ask of them; each set of demands is looked up once."""

    def __init__(self, nodes: Sequence[NodeRecord]) -> None:
        self._nodes = nodes
        self._known: dict[_Demand, tuple[NodeRecord, ...]] = {}
        self._shapes: dict[tuple[_Demand, frozenset[str]], Counter[_Shape]] = {}

    def nodes_for(self, job: JobRecord, partition: str) -> tuple[NodeRecord, ...]:
        """The usable GPU nodes of a partition that a job may use, by type of GPU, features and excluded nodes.

        Nodes with slices of GPUs (MIG) or GPUs of several types are left out. A constraint that is not simple, and a
        host list that cannot be read, leave none.
        """
        key = partition, job.gpu_type, job.features, job.excluded_nodes
        if key not in self._known:
            excluded = _names(job.excluded_nodes)
            readable = excluded is not None and is_simple(job.features)
            self._known[key] = tuple(
                node
                for node in self._nodes
                if readable
                and node.usable
                and node.has_alike_gpus
                and partition in node.partitions
                and (not job.gpu_type or job.gpu_type in node.gpu_types)
                and _has(node.features, job.features)
                and node.name not in (excluded or ())
            )
        return self._known[key]

    def mixes_devices(self, job: JobRecord) -> bool:
        """Whether Slurm may give the job slices (MIG) or GPUs of several types, for it names none."""
        return not job.gpu_type and any(node.gpus and not node.has_alike_gpus for node in open_to(job, self._nodes))

    def unfit(self, job: JobRecord, size: Allocation, closed: frozenset[str] = frozenset()) -> Iterator[str]:
        """Say why no set of nodes that the job may use would hold ``size``, were they idle.

        ``closed`` are nodes to leave out.
        """
        required = _names(job.required_nodes)
        if required is None:
            yield f"rlalloc cannot read the node list {job.required_nodes}"
            return
        named = required if size.nodes >= len(required) else frozenset()  # the update clears a longer list
        if not any(self._holds(job, partition, size, named, closed) for partition in job.partition.split(",")):
            yield f"there are no {size.nodes} nodes for it with {size.describe()}"

    def _holds(
        self, job: JobRecord, partition: str, size: Allocation, named: frozenset[str], closed: frozenset[str]
    ) -> bool:
        need = size.gpus_per_node, size.cpus_per_node, size.mem_mib_per_node
        shapes = self._shapes_for(job, partition, closed)
        fitting = {shape for shape in shapes if all(has >= wants for has, wants in zip(shape, need, strict=True))}
        if sum(shapes[shape] for shape in fitting) < size.nodes or not named.isdisjoint(closed):
            return False
        nodes = self.nodes_for(job, partition) if named else ()
        return named <= {node.name for node in nodes if _shape(node) in fitting}

    def _shapes_for(self, job: JobRecord, partition: str, closed: frozenset[str]) -> Counter[_Shape]:
        key = (partition, job.gpu_type, job.features, job.excluded_nodes), closed
        if key not in self._shapes:
            nodes = self.nodes_for(job, partition)
            self._shapes[key] = Counter(_shape(node) for node in nodes if node.name not in closed)
        return self._shapes[key]


def open_to(job: JobRecord, nodes: Sequence[NodeRecord]) -> tuple[NodeRecord, ...]:
    """Those of some nodes on which a job may start, whatever its size; what cannot be read excludes none."""
    excluded = _names(job.excluded_nodes) or ()
    return tuple(
        node
        for node in nodes
        if not set(job.partition.split(",")).isdisjoint(node.partitions)
        and node.name not in excluded
        and (not job.gpu_type or job.gpu_type in node.gpu_types)
        and (not is_simple(job.features) or _has(node.features, job.features))
    )


def _shape(node: NodeRecord) -> _Shape:
    return node.gpus, node.cpus, node.mem_mib


def _has(features: frozenset[str], constraint: str) -> bool:
    if "|" in constraint:
        return any(name.strip() in features for name in constraint.split("|"))
    return all(name.strip() in features for name in re.split("[&,]", constraint) if name)


@lru_cache(maxsize=4096)
def _names(host_list: str) -> frozenset[str] | None:
    """The names in a host list such as ``n[1-3,7]``; None where it cannot be read."""
    try:
        return frozenset(NodeSet(host_list, resolver=RESOLVER_NOGROUP)) if host_list else frozenset()
    except NodeSetException:
        return None
