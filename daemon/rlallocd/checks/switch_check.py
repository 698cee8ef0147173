"""Whether somebody has switched rlalloc off for the whole site: what ``doctor`` and ``status`` show first."""

from rlalloc.config import Config
from rlalloc.local_times import local_time
from rlalloc.site_switch import read_switch
from rlallocd.checks.finding import Finding, warning
from rlallocd.process.daemon_state import DaemonState


def switch_findings(config: Config, state: DaemonState | None) -> list[Finding]:
    """A warning where rlalloc is switched off, or where rlallocd is not aware of the switch; else nothing."""
    switch = read_switch(config.policy.directory)
    if switch is None:
        return []
    cycles_since = state is not None and not state.stopped and (state.cycle_s or 0.0) > switch.since_s
    unaware = state is not None and cycles_since and state.switched_off != switch.off
    if not switch.off and not unaware:
        return []
    said = (
        f"switched {'off' if switch.off else 'on'} for the whole site since {local_time(switch.since_s)} {switch.by}"
    )
    if unaware:
        return [warning("switch", f"{said}; rlallocd does not follow it yet", "systemctl restart rlallocd")]
    return [warning("switch", said, "rlalloc on")]
