"""Ends of jobs that were our doing: killed, or out of a GPU's memory, in a size smaller than their users asked for.

Whether such a job would have lived as submitted is never known; it counts as ours. Pure functions.
"""

import re
from typing import Final

from rlalloc.job import Allocation
from rlalloc.store import Decision
from rlalloc.usage.family_kills import Cause
from rlallocd.slurm import AccountingRecord

GPU_MARKER: Final = "rlalloc:gpu-out-of-memory"
"""What our TaskEpilog writes into a job's comment."""
_KILLED: Final = frozenset({7, 9})
"""SIGBUS: /dev/shm is full. SIGKILL: the kernel's OOM killer, where Slurm did not see it; scancel is CANCELLED."""
_SHELL: Final = 128
"""A shell adds the signal to it."""


def our_doing(decision: Decision, record: AccountingRecord, *, applied: bool) -> Cause | None:
    """What ended a job in a size of ours that its user's may have avoided; None for all other ends."""
    if not applied or decision.allocation is None:
        return None
    return end_of_smaller(decision.request, decision.allocation, record.state, record.exit_code, record.comment)


def end_of_smaller(asked: Allocation, size: Allocation, state: str, exit_code: str, comment: str) -> Cause | None:
    """Likewise of a job that asked for one size and ran in another, from sacct's State, ExitCode and Comment."""
    if state == "TIMEOUT":
        return "timeout" if _is_slower(size, asked) else None
    less_memory = size.mem_mib_per_node < asked.mem_mib_per_node
    if state == "OUT_OF_MEMORY":
        return "out-of-memory" if less_memory else None
    if state != "FAILED":
        return None
    if size.gpus < asked.gpus and GPU_MARKER in comment:
        return "gpu-out-of-memory"
    return "out-of-memory" if less_memory and _was_killed(exit_code) else None


def _is_slower(size: Allocation, asked: Allocation) -> bool:
    return size.gpus < asked.gpus or size.cpus < asked.cpus or size.mem_mib < asked.mem_mib


def _was_killed(exit_code: str) -> bool:
    """Whether Slurm's ``status:signal`` is that of a program that a signal of those ended."""
    match = re.fullmatch(r"(\d{1,9}):(\d{1,9})", exit_code)
    return match is not None and (int(match[2]) in _KILLED or int(match[1]) - _SHELL in _KILLED)
