"""What Slurm says of the site, and how large a node is where a script's job may run."""

import re
from collections.abc import Callable
from functools import cached_property
from typing import Final, NamedTuple, TypeVar

import msgspec

from rlalloc.bounds import NodeShape
from rlalloc.devices import ANY_GPU, Device, NodeDevices
from rlallocd.slurm import Commands, NodeRecord, PartitionRecord, Slurm, SlurmError

_Answer = TypeVar("_Answer")
_ASSUMED_GPUS: Final = 8
_WITHIN_S: Final = 10.0
_PARTITION: Final = re.compile(r"(?:^|\s)(?:-p\s*|--partition[= ])([^\s,]+)", re.MULTILINE)


class NodeGpus(NamedTuple):
    """GPUs of the largest node, and where the number is from; all that it has if Slurm says so, else None."""

    gpus: int
    source: str
    device: Device = ANY_GPU
    shape: NodeShape | None = None

    def describe(self) -> str:
        """For people."""
        return f"{self.device.describe(self.gpus)} a node: {self.source}"


class SiteSlurm:
    """Slurm, for a user who waits: reached when it is first needed, and not tried again if it does not answer."""

    def nodes(self) -> tuple[NodeRecord, ...] | None:
        """Every node; None if Slurm does not answer, or hides its nodes from this user (PrivateData)."""
        return self._asked(Slurm.nodes, None)

    def partitions(self) -> dict[str, PartitionRecord]:
        """All partitions by name; none if Slurm does not answer, or hides them."""
        return self._asked(Slurm.partitions, {})

    def skipped_forms(self) -> frozenset[str]:
        """The forms that an update breaks in its version; none if Slurm does not answer."""
        return self._asked(lambda slurm: slurm.capabilities.skipped_forms, frozenset())

    @cached_property
    def _slurm(self) -> Slurm | None:
        try:
            return Slurm(Commands(_WITHIN_S), "cli")
        except SlurmError:
            return None

    def _asked(self, ask: Callable[[Slurm], _Answer], without: _Answer) -> _Answer:
        try:
            return without if self._slurm is None else ask(self._slurm)
        except SlurmError:
            return without


def node_gpus(site: SiteSlurm, sbatch_lines: str, given: int | None, device: Device = ANY_GPU) -> NodeGpus:
    """The GPUs of a node for a script with these #SBATCH lines; ``given`` is what its user says.

    ``device`` is what the script asks for: GPUs, slices or shards.
    """
    if given is not None:
        return NodeGpus(given, "as --gpus-per-node says")
    nodes = site.nodes()
    if nodes is None:
        return NodeGpus(
            _ASSUMED_GPUS, "assumed, since Slurm shows no nodes here; set the real number with --gpus-per-node"
        )
    return largest_of(nodes, sbatch_lines, device)


def largest_of(nodes: tuple[NodeRecord, ...], sbatch_lines: str, device: Device = ANY_GPU) -> NodeGpus:
    """The largest node of the partition that the script names, or of the site."""
    named = _PARTITION.search(sbatch_lines)
    where = f"partition {named[1]}" if named is not None else "the site"
    mine = (node for node in nodes if named is None or named[1] in node.partitions)
    shapes = (NodeShape(_at_most(each, device), node.cpus, node.mem_mib) for node in mine for each in node.devices)
    largest = max(shapes, key=msgspec.structs.astuple, default=None)
    if largest is None or not largest.gpus:
        return NodeGpus(
            _ASSUMED_GPUS, f"assumed, since {where} has no such node; set the real number with --gpus-per-node"
        )
    return NodeGpus(largest.gpus, f"the largest of {where}", device, largest)


def _at_most(devices: NodeDevices, asked: Device) -> int:
    """How many a job may have of a node's devices that asks for ``asked``: of shards those of one GPU."""
    if devices.device.kind != asked.kind or asked.type not in ("", devices.device.type):
        return 0
    return devices.per_gpu if asked.kind == "shard" else devices.count
