"""Whether a reason to wait that slurmctld gives can be our doing. Pure functions."""

import re
from collections.abc import Callable
from typing import Final

from rlalloc.job import Allocation
from rlallocd.limits.size_change import needs_more_of_a_node

_OF_A_LIMIT: Final = re.compile(r"(?:QOS|Assoc|Max)(?P<least>Min(?!utes))?.*")
_COUNTS: Final[tuple[tuple[re.Pattern[str], Callable[[Allocation], int]], ...]] = (
    (re.compile("GRES"), lambda size: size.gpus),
    (re.compile("CPU|Cpu"), lambda size: size.cpus),
    (re.compile("Mem"), lambda size: size.mem_mib),
    (re.compile("Node"), lambda size: size.nodes),
    (re.compile("Billing"), lambda size: size.gpus + size.cpus + size.mem_mib + size.nodes),
)
_SHARED_NODES: Final = re.compile("(?:QOS|Assoc)GrpNodeLimit|QOSMaxNodePerUserLimit|MaxNodePerAccount")
_TIMES_MINUTES: Final = re.compile("Minutes|RunMin")
_WALL: Final = re.compile("Wall|TimeLimit")
_UNFIT: Final = ("BadConstraints", "PartitionNodeLimit", "PartitionTimeLimit")


def is_of_a_size(reason: str) -> bool:
    """Whether a job may wait for this reason because of its size."""
    return reason.startswith(_UNFIT) or _OF_A_LIMIT.fullmatch(reason) is not None


def may_be_ours(reason: str, original: Allocation, intended: Allocation) -> bool:
    """Whether a job of the ``intended`` size may wait for what one of the ``original`` size would not.

    A limit stands in a job's way by our doing only where we made what it counts grow, or shrink for a least one: a
    smaller job that waits for GPUs would wait with its request, too, and no size changes how many jobs may run. For a
    limit on the nodes of several jobs, a job that needs more of a node counts as grown.
    """
    if reason.startswith(_UNFIT):
        return True
    match = _OF_A_LIMIT.fullmatch(reason)
    if match is None:
        return False
    if _SHARED_NODES.fullmatch(reason):
        return needs_more_of_a_node(original, intended)
    if _WALL.search(reason):
        return intended.time_limit_s > original.time_limit_s
    for word, count in _COUNTS:
        if word.search(reason):
            before, after = count(original), count(intended)
            if _TIMES_MINUTES.search(reason):
                before, after = before * original.time_limit_s, after * intended.time_limit_s
            return after < before if match["least"] else after > before
    return False
