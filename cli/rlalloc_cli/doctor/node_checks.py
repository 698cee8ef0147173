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
_BUSY: Final = ("nodes are busy", "Immediate execution impossible", "temporarily unavailable", "deadline reached")
_NO_JOB: Final = ("Unable to allocate", "allocation failure")
"""In srun's words: it got no allocation, because of the node's jobs or because of who asked."""


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
        return warning(what, "not checked: it is down or drained", "check it before it is resumed")
    try:
        return _of_digest(what, digest_on(node.name, OUR_TASK_PROLOG), named, expected)
    except UpdateRefused as err:
        if (refusal := _refusal(node.name, str(err))) is not None:
            return refusal
        drain = f"scontrol update NodeName={node.name} State=DRAIN Reason=TaskProlog"
        return failure(what, f"a test job fails there: {err}", f"{_INSTALL}; until then: {drain}")
    except SlurmError as err:
        return warning(what, f"not checked: srun gave no answer ({err})", f"rlalloc doctor --nodes {node.name} later")


def _refusal(node: str, said: str) -> Finding | None:
    """What follows where srun got no allocation, so the node was not asked; None where it got one."""
    what, again = f"node {node}", f"rlalloc doctor --nodes {node}"
    words = f"srun: {said.rpartition('srun: ')[2].removeprefix('error: ')}"
    if any(sign in said for sign in _BUSY):
        return warning(what, f"not checked: its CPUs are all taken ({words})", f"{again} when a job there has ended")
    if any(sign in said for sign in _NO_JOB):
        return warning(
            what, f"not checked: Slurm lets this user run no job there ({words})", f"{again} as another user"
        )
    return None


def _of_digest(what: str, digest: str | None, named: str, expected: str) -> Finding:
    """What follows from what a node has at the path."""
    if digest is None and named:
        return failure(what, "no TaskProlog of rlalloc", _INSTALL)
    if digest is None:
        return failure(what, "no TaskProlog; slurm.conf does not name it yet", f"{_INSTALL} before you name it")
    if digest != expected:
        return warning(what, "its TaskProlog has another version", _INSTALL)
    return good(what, "TaskProlog as installed here")
