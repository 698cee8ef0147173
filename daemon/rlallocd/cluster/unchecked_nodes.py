"""Nodes on which Slurm is not known to call the TaskProlog: no resized job may start there."""

import logging
from collections.abc import Sequence
from typing import Final

from rlalloc.config import Config
from rlallocd.cluster.node_demands import host_list, open_to
from rlallocd.slurm import JobRecord, NodeRecord
from rlallocd.submissions.request_sizes import Skipped

_log = logging.getLogger(__name__)

CHECK: Final = "run rlalloc doctor --nodes {nodes} as root (docs/admin/enforce.md)"
"""What makes nodes checked ones."""


def unchecked_nodes(nodes: Sequence[NodeRecord], config: Config) -> tuple[NodeRecord, ...]:
    """The usable nodes with GPUs on which no check has seen the TaskProlog since they booted."""
    if config.nodes.task_prolog == "trusted":
        return ()
    return tuple(node for node in nodes if node.usable and node.gpus and not node.has_task_prolog)


class NodesToAvoid:
    """Unchecked nodes of one snapshot, by what jobs ask of nodes: each set of demands is looked up once."""

    def __init__(self, nodes: Sequence[NodeRecord] = ()) -> None:
        self._nodes = nodes
        self._known: dict[tuple[str, str, str, str], str] = {}

    def named_for(self, job: JobRecord) -> str:
        """Those on which a job may start, as in ``n[1-3]``; empty if there are none."""
        if not self._nodes:
            return ""
        key = job.partition, job.gpu_type, job.features, job.excluded_nodes
        if key not in self._known:
            self._known[key] = host_list(open_to(job, self._nodes))
        return self._known[key]


def require_checked(job: JobRecord, unchecked: NodesToAvoid) -> None:
    """Raise Skipped if the job may start on one of these nodes."""
    if found := unchecked.named_for(job):
        raise Skipped(f"no check has seen the TaskProlog on {found}, where it may start", "task-prolog")


class UncheckedNodes:
    """Those of each snapshot while jobs are enforced; a node that becomes one is told in the log."""

    def __init__(self) -> None:
        self._told: frozenset[str] = frozenset()

    def among(self, nodes: Sequence[NodeRecord], config: Config) -> NodesToAvoid:
        """The unchecked nodes of a snapshot; none in shadow mode, which needs no TaskProlog."""
        found = unchecked_nodes(nodes, config) if config.mode == "enforce" else ()
        names = frozenset(node.name for node in found)
        if names - self._told:
            named = host_list(found)
            _log.warning("jobs that may start on %s stay as submitted: %s", named, CHECK.format(nodes=named))
        self._told = names
        return NodesToAvoid(found)
