"""What slurmctld counted of the calls that it got, by ``sdiag``."""

import re
from typing import Final

from slurm_testbed import Site

_NOT_OURS: Final = frozenset(
    {
        "REQUEST_STATS_INFO",  # sdiag itself
        *("REQUEST_SUBMIT_BATCH_JOB", "MESSAGE_NODE_REGISTRATION_STATUS", "MESSAGE_EPILOG_COMPLETE"),
        *("REQUEST_COMPLETE_BATCH_SCRIPT", "REQUEST_STEP_COMPLETE", "REQUEST_COMPLETE_PROLOG"),
        *("ACCOUNTING_UPDATE_MSG", "ACCOUNTING_REGISTER_CTLD"),
    }
)
"""Messages of slurmd, slurmdbd, users' sbatch and the benchmark; nobody but rlallocd sends the others here."""


def reset(site: Site) -> None:
    """Reset slurmctld's counters."""
    site.run(["sdiag", "--reset"])


def calls(site: Site) -> dict[str, tuple[int, float]]:
    """Calls since the last reset that rlallocd made: by message type how many, and slurmctld's mean time in s."""
    text = site.run(["sdiag"]).partition("by message type")[2].partition("by user")[0]
    rows = re.findall(r"^\s+(\w+)\s+\(\s*\d+\) count:(\d+)\s+ave_time:(\d+)", text, re.MULTILINE)
    return {name: (int(count), int(mean) / 1e6) for name, count, mean in rows if name not in _NOT_OURS}
