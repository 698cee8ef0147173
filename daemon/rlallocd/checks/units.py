"""What systemd says of rlalloc's units."""

import subprocess
import time
from collections.abc import Mapping

import msgspec

_PROPERTIES = (
    "LoadState",
    "ActiveState",
    "SubState",
    "Result",
    "StateChangeTimestamp",
    "ExecMainStatus",
    "StatusText",
    "User",
    "ActiveEnterTimestampMonotonic",
    "ExecMainStartTimestampMonotonic",
    "NextElapseUSecRealtime",
    "InactiveEnterTimestampMonotonic",
)


class UnitState(msgspec.Struct, frozen=True):
    """A unit's properties, in systemd's words; ``since`` is when it came into its state.

    ``user`` is empty for root. ``up_s`` is how long it has been up,
    None where it is not. ``has_run`` says whether its program was started since the machine was, ``next_run`` when a
    timer elapses next. ``ended_s`` is when it last became inactive (epoch), None where it has not since the boot.
    """

    name: str
    active: str
    sub: str
    result: str
    since: str
    user: str = ""
    up_s: float | None = None
    has_run: bool = False
    next_run: str = ""
    ended_s: float | None = None

    @property
    def runs(self) -> bool:
        """Whether it is up."""
        return self.active == "active"

    @property
    def working(self) -> bool:
        """Whether a unit of Type=oneshot is at its work now."""
        return self.active == "activating"


def unit_state(name: str) -> UnitState | None:
    """The state of a unit; None where there is no systemd, or no such unit."""
    try:
        done = subprocess.run(
            ["systemctl", "show", f"--property={','.join(_PROPERTIES)}", "--", name],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    values = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    if values.get("LoadState") != "loaded":
        return None
    return UnitState(
        name,
        values["ActiveState"],
        values["SubState"],
        values["Result"],
        values.get("StateChangeTimestamp", ""),
        values.get("User", ""),
        _up_s(values) if values["ActiveState"] == "active" else None,
        values.get("ExecMainStartTimestampMonotonic", "0") != "0",
        values.get("NextElapseUSecRealtime", ""),
        _ended_s(values),
    )


def _ended_s(values: Mapping[str, str]) -> float | None:
    at = values.get("InactiveEnterTimestampMonotonic", "0")
    return time.time() - (time.monotonic() - int(at) / 1e6) if at.isdigit() and at != "0" else None


def _up_s(values: Mapping[str, str]) -> float | None:
    since = values.get("ActiveEnterTimestampMonotonic", "0")
    return max(0.0, time.monotonic() - int(since) / 1e6) if since.isdigit() and since != "0" else None
