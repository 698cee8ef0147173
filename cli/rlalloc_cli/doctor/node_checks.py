"""Whether Slurm calls the TaskProlog on compute nodes, asked by a job of a second on each of them.

A node where it does is marked, which rlallocd believes until the node boots again.
"""

import hashlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ClusterShell.NodeSet import NodeSet, NodeSetParseError

from rlalloc.errors import RlallocError
from rlallocd.checks.finding import Finding, failure, good, warning
from rlallocd.checks.slurm_checks import OUR_TASK_PROLOG
from rlallocd.slurm import NodeRecord, SlurmError, UpdateRefused
from rlallocd.slurm.node_probe import NodeAnswer, NodeProbe

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


def node_findings(nodes: Sequence[NodeRecord], named: str, ours: Path, probe: NodeProbe) -> list[Finding]:
    """A line for each node. ``named`` is slurm.conf's TaskProlog, ``ours`` the installed one of this machine."""
    try:
        expected = hashlib.sha256(ours.read_bytes()).hexdigest()
    except OSError:
        expected = ""  # a site may have it elsewhere, as long as Slurm calls it
    return [_node(node, named, expected, probe) for node in nodes]


def _node(node: NodeRecord, named: str, expected: str, probe: NodeProbe) -> Finding:
    what = f"node {node.name}"
    if not node.usable:
        return warning(what, "not checked: it is down or drained", "check it before it is resumed")
    asked_s = time.time()
    try:
        answer = probe.ask(node, OUR_TASK_PROLOG)
    except UpdateRefused as err:
        if (refusal := _refusal(node.name, str(err))) is not None:
            return refusal
        drain = f"scontrol update NodeName={node.name} State=DRAIN Reason=TaskProlog"
        found = failure(what, f"a test job fails there: {err}", f"{_INSTALL}; until then: {drain}")
        return _marked(found, node, None, probe)
    except SlurmError as err:
        return warning(what, f"not checked: srun gave no answer ({err})", f"rlalloc doctor --nodes {node.name} later")
    found = _of_answer(what, answer, named, expected)
    return _marked(found, node, asked_s if answer.fits else None, probe)


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


def _of_answer(what: str, answer: NodeAnswer, named: str, expected: str) -> Finding:
    """What follows from what a task saw on a node."""
    other = answer.digest is not None and expected not in ("", answer.digest)
    if answer.called:
        return _of_call(what, answer, other=other)
    if answer.digest is None:
        return failure(what, "no TaskProlog of rlalloc", _INSTALL if named else f"{_INSTALL} before you name it")
    if named:
        wanted = (
            f"install this version's {OUR_TASK_PROLOG} there"
            if other
            else f"end {named} with: exec {OUR_TASK_PROLOG}"
        )
        return failure(what, f"{named} does not call the TaskProlog of this version", wanted)
    if other:
        return warning(what, "its TaskProlog has another version", _INSTALL)
    return good(what, "TaskProlog as installed here; slurm.conf does not name it yet")


def _of_call(what: str, answer: NodeAnswer, *, other: bool) -> Finding:
    if not answer.fits:
        return failure(what, "Slurm calls a TaskProlog of another version of rlalloc", _INSTALL)
    if other:
        return warning(what, "its TaskProlog differs from the one installed here", _INSTALL)
    return good(what, "Slurm calls the TaskProlog")


def _marked(found: Finding, node: NodeRecord, seen_s: float | None, probe: NodeProbe) -> Finding:
    """The same finding, once the node has its mark, or has none; or that this user cannot give it one."""
    try:
        probe.mark(node, seen_s)
    except SlurmError as err:
        if found.level != "FAIL":
            return warning(found.what, f"{found.found}; not recorded: {err}", "run rlalloc doctor --nodes as root")
    return found
