"""The states of jobs and nodes, in words that are the same for every version of Slurm and every reader."""

from collections.abc import Collection, Iterable

# The order of Slurm's own job_state_string (src/common/slurm_protocol_defs.c): the first of these flags that is set
# is the state that squeue shows; without one, the base state is.
_FLAGS_IN_ORDER = (
    *("COMPLETING", "STAGE_OUT", "CONFIGURING", "EXPEDITING", "RESIZING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD"),
    *("SPECIAL_EXIT", "STOPPED", "REVOKED", "RESV_DEL_HOLD", "SIGNALING"),
)
_SILENT = ("NOT_RESPONDING", "NO_RESPOND")
_BOOTS = "POWERING_UP"
# Beginnings, as versions and commands abbreviate: DRAIN, DRAINED, DRAINING; MAINT, MAINTENANCE; INVAL, INVALID_REG.
_NOT_USABLE = (
    "DOWN",
    "DRAIN",
    "FAIL",
    "MAINT",
    *_SILENT,
    "ERROR",
    "UNKNOWN",
    "FUTURE",
    "INVAL",
)


_ASLEEP = ("POWERED_DOWN", "POWERING_DOWN", _BOOTS, "POWER_DOWN", "POWER_UP", "REBOOT_ISSUED")
"""Such a node takes a job, and the job starts once the node has booted."""
_WITHOUT_SLURMD = "EXTERNAL"


def job_state(words: Collection[str]) -> str:
    """One state as squeue shows it, from a base state and flags (``["COMPLETED", "COMPLETING"]``)."""
    return next((flag for flag in _FLAGS_IN_ORDER if flag in words), next(iter(words), "UNKNOWN"))


def is_asleep(words: Iterable[str]) -> bool:
    """Whether a node with this base state and these flags boots before a job starts on it."""
    return any(word.upper() in _ASLEEP for word in words)


def is_usable(words: Iterable[str]) -> bool:
    """Whether a node with this base state and these flags takes jobs: also one that boots and cannot respond yet."""
    states = [word.upper() for word in words]
    if _BOOTS in states:
        states = [state for state in states if not state.startswith(_SILENT)]
    return not any(map(_is_bad, states))


def is_awaited(words: Collection[str], booted_s: int) -> bool:
    """Whether a node has yet to report to a slurmctld that has just started, and nothing worse is known of it.

    It is unknown, or slurmctld remembers jobs on it. When it last booted (``booted_s``) is 0 until it reports.
    """
    others = [word.upper() for word in words if not word.upper().startswith("UNKNOWN")]
    if any(map(_is_bad, others)):
        return False
    return len(others) < len(words) or not (booted_s or is_asleep(others) or _WITHOUT_SLURMD in others)


def _is_bad(state: str) -> bool:
    return state.startswith(_NOT_USABLE)
