"""The clock that rlallocd shares with rlalloc.lua in slurmctld."""

from pathlib import Path
from typing import Final

_UPTIME: Final = Path("/proc/uptime")
"""Read rather than clock_gettime: in a container both may differ, and the plugin has only this one."""


def uptime_s() -> float:
    """Seconds since this machine was started, to the hundredth. Raises OSError."""
    return float(_UPTIME.read_text(encoding="ascii").split()[0])
