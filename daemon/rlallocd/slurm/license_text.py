"""Reading what Slurm's commands print of licences. Pure functions."""

import re
from typing import Final

from rlallocd.slurm.limit_records import Counts, LicenseRecord
from rlallocd.slurm.slurm_errors import UnexpectedAnswer

_COUNT: Final = re.compile(r"([^:=(]+)(?:[:=](\d+))?")
_WORD: Final = re.compile(r"(\w+)=(\S*)")


def read_licenses(text: str) -> dict[str, LicenseRecord]:
    """The licences in ``scontrol show licenses --oneliner``, by name. Raises UnexpectedAnswer.

    Those of some nodes (hierarchical resources, 25.11) are left out: Slurm looks at them when it chooses nodes.
    """
    lines = [dict(_WORD.findall(line)) for line in text.splitlines() if line.startswith("LicenseName=")]
    try:
        return {
            words["LicenseName"]: LicenseRecord(
                total=int(words["Total"]), used=int(words["Used"]), deficit=int(words.get("LastDeficit", 0))
            )
            for words in lines
            if "Nodes" not in words
        }
    except (KeyError, ValueError) as err:
        raise UnexpectedAnswer(f"cannot read licences ({err!r}), in what begins {text[:80]!r}") from err


def license_counts(text: str) -> Counts:
    """The licences that a job or a reservation names: ``solver:2,cad@server``.

    What is no plain count is left out (licences of some nodes, and Slurm's variables).
    """
    counts: dict[str, int] = {}
    for part in re.split("[,;|]", text):
        if match := _COUNT.fullmatch(part):
            counts[match[1]] = counts.get(match[1], 0) + int(match[2] or 1)
    return counts
