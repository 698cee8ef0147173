"""What slurmctld lets a user of this machine do to other users' jobs, by its AdminLevel in slurmdbd."""

import os
import pwd
import re
from typing import Final

from rlallocd.slurm.slurm_commands import Commands
from rlallocd.slurm.slurm_errors import UpdateRefused
from rlallocd.slurm.slurm_records import AdminLevel

_LEVELS: Final[dict[str, AdminLevel]] = {"Administrator": "admin", "Operator": "operator"}


def own_admin_level(commands: Commands, slurm_user: str) -> AdminLevel:
    """That of the user of this process, which may have no login name. Raises SlurmUnavailable."""
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        name = ""
    return "slurm" if os.geteuid() == 0 else admin_level_of(commands, name, slurm_user)


def admin_level_of(commands: Commands, user: str, slurm_user: str) -> AdminLevel:
    """That of ``user``, in slurmctld's own copy, so that slurmdbd may be down. Raises SlurmUnavailable."""
    if user in ("root", slurm_user):
        return "slurm"
    try:
        text = commands.run("scontrol", "show", "assoc_mgr", "--oneliner", f"users={user}", "flags=users")
    except UpdateRefused:  # there is no accounting, or PrivateData hides it from ordinary users
        return "none"
    return read_admin_level(text, user)


def read_admin_level(text: str, user: str) -> AdminLevel:
    """The level of ``user`` in what ``scontrol show assoc_mgr --oneliner flags=users`` printed."""
    match = re.search(rf"^UserName={re.escape(user)}\([0-9]+\) .*\bAdminLevel=(\w+)", text, re.MULTILINE)
    return "none" if match is None else _LEVELS.get(match[1], "none")
