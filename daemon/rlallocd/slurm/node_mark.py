"""The mark of a node on which Slurm calls rlalloc's TaskProlog: a word in the node's field Extra. Pure functions.

Only root and administrators of Slurm can write that field, slurmctld keeps it when it restarts, and each reading of
the nodes has it. The mark says when the node was checked, by slurmctld's clock, and which version of the TaskProlog
was seen; a later boot makes it void. slurm_plugin/mark_node writes it too.
"""

import re
from typing import Final

TASK_PROLOG_VERSION: Final = 4
"""What slurm_plugin/task_prolog says of itself. It is counted up when a resized job needs what an older one lacks."""
_MARK: Final = re.compile(r"(?:^|(?<=\s))rlalloc-task-prolog@([0-9]{1,12})(?:/([0-9]{1,4}))?(?=\s|$)")


def is_marked(extra: str, booted_s: int) -> bool:
    """Whether the field has a mark of this version that was made after the node's last boot.

    A boot that is unknown (0) voids it.
    """
    return booted_s > 0 and any(
        int(seen_s) >= booted_s and version == str(TASK_PROLOG_VERSION) for seen_s, version in _MARK.findall(extra)
    )


def with_mark(extra: str, seen_s: float | None) -> str:
    """The field with a mark of that time, or without one for None; everything else in it stays."""
    mark = [] if seen_s is None else [f"rlalloc-task-prolog@{int(seen_s)}/{TASK_PROLOG_VERSION}"]
    return " ".join([*_MARK.sub("", extra).split(), *mark])
