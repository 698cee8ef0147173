"""What systemd says of rlalloc's units."""

import subprocess

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
    "PrivateNetwork",
)


class UnitState(msgspec.Struct, frozen=True):
    """A unit's properties, in systemd's words; ``since`` is when it came into its state.

    ``user`` is empty for root. ``has_network`` is false with PrivateNetwork.
    """

    name: str
    active: str
    sub: str
    result: str
    since: str
    user: str = ""
    has_network: bool = True

    @property
    def runs(self) -> bool:
        """Whether it is up."""
        return self.active == "active"


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
        values.get("PrivateNetwork") != "yes",
    )
