"""SlurmUser's name, also while slurmctld does not run: from slurm.conf, else from slurmctld."""

import os
import re
from pathlib import Path
from typing import Final

from rlallocd.slurm.slurm_commands import Commands
from rlallocd.slurm.slurm_errors import SlurmError

_CONF: Final = "/etc/slurm/slurm.conf"
_USER: Final = re.compile(r"^\s*SlurmUser\s*=\s*\"?([^\s\"#(]+)", re.IGNORECASE | re.MULTILINE)
_INCLUDE: Final = re.compile(r"^\s*Include\s+(\S+)", re.IGNORECASE | re.MULTILINE)
_DEFAULT: Final = "root"
_ASK_WITHIN_S: Final = 5.0


def slurm_user() -> str | None:
    """The name; None where neither slurm.conf nor slurmctld says it."""
    try:
        conf = Path(os.environ.get("SLURM_CONF") or _CONF)
        text = conf.read_text(errors="replace")
        included = [(conf.parent / name).read_text(errors="replace") for name in _INCLUDE.findall(text)]
        found = [name for each in (text, *included) for name in _USER.findall(each)]
        return found[-1] if found else _DEFAULT
    except OSError:
        return _of_slurmctld()


def _of_slurmctld() -> str | None:
    try:
        found = _USER.search(Commands(_ASK_WITHIN_S).run("scontrol", "show", "config"))
    except SlurmError:
        return None
    return found[1] if found is not None else None
