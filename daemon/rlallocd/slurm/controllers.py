"""The slurmctld of a cluster, in the order of slurm.conf: which of them answer, and which is in control."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

_PING: Final = re.compile(r"^Slurmctld\([a-z0-9]+\) at (\S+) is (UP|DOWN)$", re.MULTILINE)
_HOST: Final = re.compile(r"^SlurmctldHost\[[0-9]+\]\s*= ([^\s(]+)", re.MULTILINE)

IN_CONTROL: Final = "is in control"
"""How a reason ends that is none to worry about."""


class ControllerPing(NamedTuple):
    """One slurmctld: its host, as slurm.conf calls it, and whether it answered a ping."""

    host: str
    up: bool


def controllers_in(text: str) -> tuple[str, ...]:
    """The hosts of all slurmctld in what ``scontrol show config`` printed."""
    return tuple(_HOST.findall(text))


def read_pings(text: str) -> tuple[ControllerPing, ...]:
    """What ``scontrol ping`` printed."""
    return tuple(ControllerPing(host, state == "UP") for host, state in _PING.findall(text))


def host_of_this_machine(controllers: Sequence[str], host_name: str) -> str:
    """By which of their names the slurmctld of this machine goes; empty where it is none of them."""
    short = host_name.partition(".")[0]
    return next((host for host in controllers if host in (host_name, short) or host.partition(".")[0] == short), "")


def why_not_in_control(pings: Sequence[ControllerPing], host: str) -> str:
    """Why the slurmctld on ``host`` is not in control, or an empty string.

    A backup answers pings while it stands by, and a returning primary takes control back. So the first that answers
    is in control, or about to be: that Slurm's commands work has to be seen beside.
    """
    first = next((ping.host for ping in pings if ping.up), "")
    if first == host:
        return ""
    own = next((ping.up for ping in pings if ping.host == host), False)
    if not own:
        return f"slurmctld on {host} does not answer"
    return f"slurmctld on {first} {IN_CONTROL}"
