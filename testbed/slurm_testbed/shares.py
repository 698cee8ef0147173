"""Make directory trees reachable for a site's unprivileged users, and undo it."""

from __future__ import annotations

import re
import stat
from pathlib import Path

from .external_commands import run_command
from .requirements import search_path
from .testbed_errors import CommandFailedError, InvalidSpecError, NotPermittedError, TestbedError

MOUNT_TIMEOUT_S = 20.0


def share(source: Path, target: Path) -> Path:
    """Let `target` show the tree `source`: a symbolic link where others can reach it, else a bind mount.

    What lies in the tree needs its own read permission for others: only the way to it is opened.
    Raises InvalidSpecError, NotPermittedError.
    """
    source = source.resolve()
    if not source.is_dir():
        raise InvalidSpecError(f"{source}: no such directory to share")
    if target.exists() or target.is_symlink():
        raise InvalidSpecError(f"{target} exists: choose another name for {source}")
    if reachable_by_others(source):
        target.symlink_to(source)
        return target
    target.mkdir(mode=0o755)
    try:
        _run(["mount", "--bind", str(source), str(target)])
    except CommandFailedError as error:
        target.rmdir()
        raise NotPermittedError(
            f"{source} is not reachable for other users, and a bind mount is refused ({error}); "
            "copy the tree to a place that all can reach and share that"
        ) from error
    return target


def reachable_by_others(directory: Path) -> bool:
    """Tell whether any user can enter and list `directory`."""
    if not all(parent.stat().st_mode & stat.S_IXOTH for parent in directory.parents):
        return False
    needed = stat.S_IXOTH | stat.S_IROTH
    return directory.stat().st_mode & needed == needed


def unmount_below(directory: Path) -> None:
    """Undo every mount below `directory`; raises TestbedError when one remains."""
    for point in reversed(mounts_below(directory)):
        _run(["umount", "--lazy", str(point)])
    remaining = mounts_below(directory)
    if remaining:
        raise TestbedError(f"still mounted: {', '.join(map(str, remaining))}; unmount by hand, then repeat")


def mounts_below(directory: Path) -> list[Path]:
    """Mount points below `directory` in this mount namespace, in the order they were made."""
    points = []
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        escaped = line.split()[4]
        point = Path(re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), escaped))
        if point.is_relative_to(directory):
            points.append(point)
    return points


def _run(arguments: list[str]) -> None:
    run_command(arguments, timeout_s=MOUNT_TIMEOUT_S, environment={"PATH": search_path()})
