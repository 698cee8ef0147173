"""A /run for one site alone.

With auth/slurm, slurmctld, slurmdbd and slurmd have sockets at fixed places below /run, where commands look for them.
So the site's daemons and commands see a /run of their own, in a mount namespace that a file of the site keeps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .external_commands import run_command
from .requirements import search_path

if TYPE_CHECKING:
    import pwd
    from collections.abc import Sequence
    from pathlib import Path

    from .layout import Layout

COMMAND_TIMEOUT_S = 20.0


def make(layout: Layout) -> None:
    """Make the namespace; it goes when its file is unmounted (shares.unmount_below). Raises CommandFailedError."""
    directory, namespace = layout.own_run.parent, layout.own_run
    directory.mkdir(mode=0o755)
    namespace.touch()
    for command in (
        ("mount", "--bind", directory, directory),
        ("mount", "--make-private", directory),  # else the namespace would keep its own file
        ("unshare", f"--mount={namespace}", "mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"),
    ):
        run_command(command, timeout_s=COMMAND_TIMEOUT_S, environment={"PATH": search_path()})


def inside(
    layout: Layout,
    command: Sequence[str | Path],
    directory: Path | None = None,
    user: pwd.struct_passwd | None = None,
) -> list[str | Path]:
    """Return what runs a command with that /run, in a directory and as a user if these are given; root starts it."""
    enter: list[str | Path] = ["nsenter", f"--mount={layout.own_run}"]
    if user is not None:
        enter += [f"--setuid={user.pw_uid}", f"--setgid={user.pw_gid}"]
    if directory is not None:
        enter += ["env", f"--chdir={directory}"]
    return [*enter, *command]
