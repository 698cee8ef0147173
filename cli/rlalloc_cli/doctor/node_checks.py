"""Whether compute nodes have the TaskProlog, asked by a job of a second on each of them."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from ClusterShell.NodeSet import NodeSet, NodeSetParseError

from rlalloc.errors import RlallocError
from rlalloc_cli.doctor.finding import Finding, failure, good, warning
from rlalloc_cli.doctor.slurm_checks import OUR_TASK_PROLOG
from rlallocd.slurm import NodeRecord, SlurmError, UpdateRefused

ALL: Final = "all"
_INSTALL: Final = f"install {OUR_TASK_PROLOG} there"
_NOT_STARTED: Final = ("Unable to allocate", "allocation failure")
"""In srun's words: it got no allocation, so the node was not asked."""


class WrongNodes(RlallocError):
    """A host list that cannot be read, or that names nodes which the site does not have."""


def named_nodes(text: str, nodes: Sequence[NodeRecord]) -> tuple[NodeRecord, ...]:
    """The nodes of a host list, or all with GPUs for ``all``. Raises WrongNodes."""
    if text == ALL:
        return tuple(node for node in nodes if node.gpus)
    try:
        names = set(NodeSet(text))
    except NodeSetParseError as err:
        raise WrongNodes(f"--nodes {text}: {err}; write a host list such as n[1-4], or {ALL}") from err
    if unknown := names - {node.name for node in nodes}:
        raise WrongNodes(f"--nodes {text}: the site has no {', '.join(sorted(unknown))}")
    return tuple(node for node in nodes if node.name in names)


def node_findings(
    nodes: Sequence[NodeRecord], named: str, ours: Path, digest_on: Callable[[str, str], str | None]
) -> list[Finding]:
    """A line for each node. ``named`` is slurm.conf's TaskProlog, ``ours`` the installed one of this machine.

    ``digest_on`` asks a node for the SHA-256 of a file.
    """
    try:
        expected = hashlib.sha256(ours.read_bytes()).hexdigest()
    except OSError as err:
        return [failure("nodes", f"{ours}: {err.strerror}", "scripts/install-site.sh")]
    return [_node(node, named, expected, digest_on) for node in nodes]


def _node(node: NodeRecord, named: str, expected: str, digest_on: Callable[[str, str], str | None]) -> Finding:
    what = f"node {node.name}"
    if not node.usable:
        return warning(what, "not tested: it is down or drained", "test it before it is resumed")
    try:
        return _of_digest(what, digest_on(node.name, OUR_TASK_PROLOG), named, expected)
    except UpdateRefused as err:
        if any(sign in str(err) for sign in _NOT_STARTED):
            return warning(what, f"not tested: {err}", "test it when it has a free CPU, as a user with an account")
        drain = f"scontrol update NodeName={node.name} State=DRAIN Reason=TaskProlog"
        return failure(what, f"a test job fails there: {err}", f"{_INSTALL}; until then: {drain}")
    except SlurmError as err:
        return warning(what, f"not tested: {err}", "test it when it has a free CPU")


def _of_digest(what: str, digest: str | None, named: str, expected: str) -> Finding:
    """What follows from what a node has at the path."""
    if digest is None and named:
        return failure(what, "no TaskProlog of rlalloc", _INSTALL)
    if digest is None:
        return failure(what, "no TaskProlog; slurm.conf does not name it yet", f"{_INSTALL} before you name it")
    if digest != expected:
        return warning(what, "its TaskProlog has another version", _INSTALL)
    return good(what, "TaskProlog as installed here")
