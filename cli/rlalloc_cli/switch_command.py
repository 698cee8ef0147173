"""``rlalloc off --all`` and ``rlalloc on``: the whole site at once, also where rlallocd is dead."""

import os
import syslog
import time
from pathlib import Path
from typing import Final

from rlalloc.config import load_config
from rlalloc.errors import ConfigError, RlallocError
from rlalloc.site_switch import SiteSwitch, SwitchError, write_switch
from rlalloc.system.run_as_owner import login_name
from rlalloc.user_messages import AskSwitch, DaemonAway, Done, ask_daemon
from rlalloc_cli.own_jobs import directory_named_in, may_read
from rlallocd.process.daemon_state import read_daemon_state
from rlallocd.submissions.intercept import withdraw_intercept

_NEVER_HERE: Final = (
    ". No rlallocd has run on this machine since it booted: if it runs on another host, do this there"
)


def switch_site(path: Path, reason: str, *, off: bool) -> str:
    """Switch rlalloc off or on for the whole site, and say what was done. Raises ConfigError or RlallocError."""
    why, who = " ".join(reason.split())[:200], login_name()
    try:
        answer = ask_daemon(directory_named_in(path), AskSwitch(off, why, who[:64]))
    except DaemonAway as err:
        if os.geteuid() != 0:
            raise SwitchError(f"{err}; without rlallocd, only root can switch rlalloc off or on") from err
        return _without_daemon(path, SiteSwitch(off=off, since_s=time.time(), who=f"{who} (uid 0)", why=why))
    return (answer.message if isinstance(answer, Done) else "") + _error_in(path)


def _error_in(path: Path) -> str:
    """A sentence on what keeps rlallocd from starting again with this file, or nothing."""
    try:
        if may_read(path):
            load_config(path)
    except ConfigError as err:
        return f". rlallocd would not start again with its configuration file: {err}"
    return ""


def _without_daemon(path: Path, switch: SiteSwitch) -> str:
    """Write the switch for the next start of rlallocd, and tell the plugin. Raises ConfigError, RlallocError."""
    config = load_config(path)
    if switch.off and config.runtime_directory.is_dir():
        withdraw_intercept(config)  # first: it stands though the switch cannot be written
    try:
        write_switch(config.policy.directory, switch)
    except SwitchError as err:
        done = "the plugin defers no job from now on, but this ends when rlallocd starts: " if switch.off else ""
        raise RlallocError(f"{done}{err}") from err
    state = "off" if switch.off else "on"
    elsewhere = "" if read_daemon_state(config.runtime_directory) else _NEVER_HERE
    syslog.openlog("rlalloc")
    syslog.syslog(syslog.LOG_NOTICE, f"rlalloc is switched {state} for the whole site {switch.by}")
    if not switch.off:
        return (
            "rlalloc is switched on for the whole site; rlallocd does not run: systemctl start rlallocd" + elsewhere
        )
    return (
        "rlalloc is switched off for the whole site, and stays so when rlallocd starts. rlallocd does not answer, so "
        "this command told the plugin, which defers no job from now on; jobs that already wait begin by themselves, "
        f"as submitted, within {config.grace_s} s{elsewhere}"
    )
