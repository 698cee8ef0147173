"""Compute nodes without a slurm.conf of their own: each slurmd asks slurmctld for it.

Each node is this machine with another /run, where slurmd shows commands what it was sent, and another etc, where the
node has its TaskProlog and nothing else.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from .slurm_configuration import ADDRESS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .layout import Layout, Ports
    from .releases import Release

# Before it has slurm.conf, with AuthInfo in it, slurmd looks for munge where Debian's munged is.
USUAL_MUNGE_SOCKET = "/run/munge/munge.socket.2"


def configure(layout: Layout, nodes: Sequence[str]) -> None:
    """Make the etc of each node: a copy of the site's TaskProlog, where there is one."""
    for node in nodes:
        etc = layout.node_etc(node)
        etc.mkdir(mode=0o755, parents=True)
        if layout.task_prolog.exists():
            shutil.copy(layout.task_prolog, etc)


def slurmd_command(
    layout: Layout, ports: Ports, node: str, slurmd: Sequence[str | Path], release: Release | None
) -> list[str | Path]:
    """Return what starts slurmd on such a node; ``slurmd`` is the command up to the node's name."""
    binds = [f"mount --bind {layout.node_etc(node)} {layout.etc}"]
    if release:
        binds.append(f"mount --bind {release.plugins.resolve()} {release.built_in_plugins}")
    own_files = " && ".join(
        (
            "unset SLURM_CONF",
            "mount -t tmpfs -o mode=755 tmpfs /run",
            "mkdir /run/munge",
            f"ln -s {layout.munge_socket} {USUAL_MUNGE_SOCKET}",
            *binds,
            'exec "$0" "$@"',
        )
    )
    server = f"{ADDRESS}:{ports.slurmctld}"
    return ["unshare", "--mount", "sh", "-c", own_files, *slurmd, "--conf-server", server, "-N", node]


def on_node(slurmd_pid: int, command: Sequence[str | Path]) -> list[str | Path]:
    """Return what runs a command where that slurmd runs, with the slurm.conf that it was sent."""
    return ["nsenter", f"--target={slurmd_pid}", "--mount", "env", "--unset=SLURM_CONF", *command]
