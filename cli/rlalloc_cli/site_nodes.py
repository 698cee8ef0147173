"""How many GPUs a node has where a script's job may run: what Slurm says, or what is assumed."""

import re
from typing import Final, NamedTuple

from rlalloc.counted import counted
from rlallocd.slurm import Commands, NodeRecord, Slurm, SlurmError

_ASSUMED_GPUS: Final = 8
_WITHIN_S: Final = 10.0
_PARTITION: Final = re.compile(r"(?:^|\s)(?:-p\s*|--partition[= ])([^\s,]+)", re.MULTILINE)


class NodeGpus(NamedTuple):
    """GPUs of the largest node, and where the number is from."""

    gpus: int
    source: str

    def describe(self) -> str:
        """For people."""
        return f"{counted(self.gpus, 'GPU')} a node: {self.source}"


def node_gpus(sbatch_lines: str, given: int | None) -> NodeGpus:
    """The GPUs of a node for a script with these #SBATCH lines; ``given`` is what its user says."""
    if given is not None:
        return NodeGpus(given, "as --gpus-per-node says")
    try:
        nodes = Slurm(Commands(_WITHIN_S), "cli").nodes()
    except SlurmError:
        return NodeGpus(_ASSUMED_GPUS, "assumed, since Slurm does not answer here; --gpus-per-node says better")
    return largest_of(nodes, sbatch_lines)


def largest_of(nodes: tuple[NodeRecord, ...], sbatch_lines: str) -> NodeGpus:
    """The largest node of the partition that the script names, or of the site."""
    named = _PARTITION.search(sbatch_lines)
    where = f"partition {named[1]}" if named is not None else "the site"
    gpus = max((node.gpus for node in nodes if named is None or named[1] in node.partitions), default=0)
    if not gpus:
        return NodeGpus(_ASSUMED_GPUS, f"assumed, since {where} has no node with GPUs; --gpus-per-node says better")
    return NodeGpus(gpus, f"the largest of {where}")
