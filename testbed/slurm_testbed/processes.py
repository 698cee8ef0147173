"""Find and end the processes of one site, whoever started them.

Pid files can be stale, missing or wrong after a crash, so /proc decides. A process belongs to a
site when its initial environment names it (SLURM_CONF or SLURM_TESTBED_SITE: all daemons, jobs and
what was run in the site's environment), when it has files of the site open and is a daemon's
program (slurmstepd overwrites its environment with its title) or a process of a user whom the
testbed created (a job may clear its environment), or when it descends from such a process.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .testbed_errors import TestbedError
from .waiting import stretched

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

SITE_VARIABLE = "SLURM_TESTBED_SITE"
PROGRAMS_VARIABLE = "SLURM_TESTBED_PROGRAMS"  # where another release's Slurm lies; --export=NONE lets SLURM_… through
DAEMON_PROGRAMS = frozenset({"munged", "mariadbd", "slurmdbd", "slurmctld", "slurmd", "slurmstepd"})
END_TIMEOUT_S = 20.0
QUIET_LOOKS = 3
"""In an exec or on a loaded machine a process can escape one look at /proc; it does not escape this many."""


@dataclass(frozen=True)
class Process:
    """One running process; `program` is its executable's name without Debian's -wlm suffix."""

    pid: int
    parent: int
    user_id: int
    program: str


def end_processes(directory: Path, created_users: Collection[int] = ()) -> list[int]:
    """Kill every process of the site in `directory`; returns the pids that were ended.

    SIGKILL at once: the state that a clean end would save is removed next. This process and its
    ancestors are spared. Raises TestbedError when some survive END_TIMEOUT_S.
    """
    return _end(lambda: site_processes(directory, created_users), f"processes of {directory}")


def end_processes_of_users(user_ids: Collection[int]) -> list[int]:
    """Kill every process of these users; returns the pids that were ended. Raises TestbedError."""
    return _end(
        lambda: [
            process for process in _all_processes() if process.user_id in user_ids and _shares_our_root(process.pid)
        ],
        "processes of the testbed's users",
    )


def _end(find: Callable[[], list[Process]], what: str) -> list[int]:
    ended: dict[int, None] = {}
    begin = time.monotonic()
    quiet = 0
    while quiet < QUIET_LOOKS:
        remaining = find()
        quiet = 0 if remaining else quiet + 1
        if remaining and time.monotonic() - begin > stretched(END_TIMEOUT_S):
            pids = ", ".join(f"{process.pid} ({process.program})" for process in remaining)
            raise TestbedError(f"{what} survive SIGKILL: {pids}; look at their state in /proc")
        for process in remaining:
            send_signal(process.pid, signal.SIGKILL)
            ended[process.pid] = None
        time.sleep(0.05)
    return list(ended)


def site_processes(directory: Path, created_users: Collection[int] = ()) -> list[Process]:
    """Every living process of the site in `directory`, this one and its ancestors left out.

    `created_users` are the ids of users that exist only for the testbed.
    """
    table = {process.pid: process for process in _all_processes()}
    spared = set(_ancestors(os.getpid(), table))
    found = {
        pid
        for pid, process in table.items()
        if pid not in spared
        and (
            _environment_names(pid, directory)
            or ((process.program in DAEMON_PROGRAMS or process.user_id in created_users) and _uses(pid, directory))
        )
    }
    grown = True
    while grown:
        below = {pid for pid, process in table.items() if process.parent in found and pid not in found | spared}
        grown = bool(below)
        found |= below
    return [table[pid] for pid in sorted(found)]


def is_alive(pid: int) -> bool:
    """Tell whether the process runs; a zombie does not."""
    return _read_process(Path(f"/proc/{pid}")) is not None


def send_signal(pid: int, number: signal.Signals) -> None:
    """Send a signal; a process that is gone already is no error."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def command_line(pid: int) -> list[str]:
    """Return a process's command line; empty when it is gone."""
    try:
        content = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return content.decode("utf-8", errors="replace").rstrip("\0").split("\0")


def read_pid(pid_file: Path, program: str) -> int | None:
    """Process id in a pid file, None where there is none or it is not (or no longer) `program`'s."""
    try:
        pid = int(pid_file.read_text(encoding="ascii").strip())
    except (FileNotFoundError, ValueError):
        return None
    process = _read_process(Path(f"/proc/{pid}"))
    return pid if process is not None and process.program == program else None


def _all_processes() -> Iterator[Process]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            process = _read_process(entry)
            if process is not None:
                yield process


def _read_process(entry: Path) -> Process | None:
    try:
        text = (entry / "stat").read_text(encoding="utf-8", errors="replace")
        user_id = entry.stat().st_uid
    except (FileNotFoundError, ProcessLookupError):
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    state, parent = rest.split()[:2]
    if state in "ZX":
        return None
    try:
        program = (entry / "exe").readlink().name
    except OSError:  # a kernel thread, or gone
        program = name
    return Process(int(entry.name), int(parent), user_id, program.removesuffix(" (deleted)").removesuffix("-wlm"))


def _ancestors(pid: int, table: dict[int, Process]) -> Iterator[int]:
    while pid in table:
        yield pid
        pid = table[pid].parent
    yield 1


def _environment_names(pid: int, directory: Path) -> bool:
    """Tell whether the process was started in the site's environment, in our own file system."""
    marks = {f"{SITE_VARIABLE}={directory}".encode(), f"SLURM_CONF={directory}/etc/slurm.conf".encode()}
    try:
        content = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return not marks.isdisjoint(content.split(b"\0")) and _shares_our_root(pid)


def _uses(pid: int, directory: Path) -> bool:
    """Tell whether the process works in `directory`: command line, current directory or open files."""
    entry = Path(f"/proc/{pid}")
    try:
        if f"{directory}/".encode() in (entry / "cmdline").read_bytes():
            return _shares_our_root(pid)
        links = [entry / "cwd", *(entry / "fd").iterdir()]
    except OSError:
        return False
    return any(_points_below(link, directory) for link in links) and _shares_our_root(pid)


def _points_below(link: Path, directory: Path) -> bool:
    try:
        return link.readlink().is_relative_to(directory)
    except OSError:
        return False


def _shares_our_root(pid: int) -> bool:
    """Tell whether its / is ours: a chroot may have a site at the same path."""
    try:
        return Path(f"/proc/{pid}/root").samefile("/")
    except OSError:
        return False
