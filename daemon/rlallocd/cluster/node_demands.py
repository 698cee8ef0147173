"""What a job asks of nodes beside their size: features, excluded and named nodes, a type of GPU. Pure functions."""

import functools
import re
from collections.abc import Sequence
from typing import Final

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from rlalloc.constraint import has_features, is_simple
from rlallocd.slurm import JobRecord, NodeRecord

_PLAIN_NAME: Final = re.compile(r"[\w.-]+")


@functools.lru_cache(maxsize=8192)
def names_in(host_list: str) -> frozenset[str] | None:
    """The names in a host list such as ``n[1-3,7]``; None where it cannot be read."""
    if _PLAIN_NAME.fullmatch(host_list):
        return frozenset((host_list,))
    try:
        return frozenset(NodeSet(host_list, resolver=RESOLVER_NOGROUP)) if host_list else frozenset()
    except NodeSetException:
        return None


def host_list(nodes: Sequence[NodeRecord]) -> str:
    """The names of nodes, as in ``n[1-3]``."""
    return str(NodeSet.fromlist([node.name for node in nodes], resolver=RESOLVER_NOGROUP))


def open_to(job: JobRecord, nodes: Sequence[NodeRecord]) -> tuple[NodeRecord, ...]:
    """Those of some nodes on which a job may start, whatever its size; what cannot be read excludes none."""
    excluded = names_in(job.excluded_nodes) or ()
    return tuple(
        node
        for node in nodes
        if not set(job.partition.split(",")).isdisjoint(node.partitions)
        and node.name not in excluded
        and (not job.gpu_type or job.gpu_type in node.gpu_types)
        and (not is_simple(job.features) or has_features(node.features, job.features))
    )
