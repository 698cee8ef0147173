"""Free TCP ports for a site."""

from __future__ import annotations

import secrets
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from .layout import Ports
from .testbed_errors import TestbedError

if TYPE_CHECKING:
    from collections.abc import Collection

# Below the kernel's ephemeral range (32768-60999), out of which srun and clients take theirs.
FIRST_PORT, LAST_PORT = 20_000, 32_000
LISTEN_STATE = "0A"


def listening_ports() -> set[int]:
    """Every TCP port that a process listens on in this network namespace.

    Read from /proc/net instead of connecting: Slurm's daemons log an error for each connection
    that brings no message.
    """
    return {port for _, port in listening()}


def listening() -> set[tuple[str, int]]:
    """Likewise each address and port; an IPv6 address as the kernel writes it, in hexadecimal."""
    found = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        if not table.exists():
            continue
        for line in table.read_text(encoding="ascii").splitlines()[1:]:
            words = line.split()
            if words[3] == LISTEN_STATE:
                address, _, port = words[1].rpartition(":")
                found.add((_dotted(address), int(port, 16)))
    return found


def _dotted(address: str) -> str:
    """Return an IPv4 address in its usual form; the kernel writes its bytes in the machine's order."""
    if len(address) != 8:
        return address
    return socket.inet_ntoa(int(address, 16).to_bytes(4, sys.byteorder))


def choose_ports(nodes: int, reserved: Collection[int]) -> Ports:
    """Take a run of free neighbouring ports, none of them in `reserved`.

    The caller holds the root directory's lock until the choice is recorded. The search begins at
    a random place, since another root (in a chroot, say) keeps another lock. Raises TestbedError.
    """
    needed = 3 + nodes
    taken = listening_ports() | set(reserved)
    span = LAST_PORT - FIRST_PORT - needed
    offset = secrets.randbelow(span)
    for step in range(0, span, needed):
        first = FIRST_PORT + (offset + step) % span
        if taken.isdisjoint(range(first, first + needed)):
            return Ports(mariadbd=first, slurmdbd=first + 1, slurmctld=first + 2, slurmd_first=first + 3)
    raise TestbedError(
        f"no {needed} neighbouring free ports in {FIRST_PORT}-{LAST_PORT}: stop sites that nobody uses, "
        "see `slurm_testbed list`"
    )


def reserved_ports(ports: Ports, nodes: int) -> set[int]:
    """Every port of one site."""
    return {ports.mariadbd, ports.slurmdbd, ports.slurmctld, *range(ports.slurmd_first, ports.slurmd_first + nodes)}
