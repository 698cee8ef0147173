"""The two small files between rlalloc.lua in slurmctld and this daemon.

``intercept`` tells the plugin what to look for. It expires: when the daemon is dead or cannot do its work, the file
grows stale and the plugin leaves jobs alone. It says twice when that is: in seconds of uptime, which no step of the
clock moves, and as a time, which no restart of the machine moves. The plugin goes by whichever comes first.
``wake`` is touched by the plugin when it has deferred a job.
"""

import contextlib
import errno
import os
import re
import stat
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

import inotify_simple

from rlalloc.config import Config
from rlalloc.errors import RlallocError
from rlalloc.system.shared_files import read_regular_file, replace_file
from rlallocd.process.uptime import uptime_s

INTERCEPT_FILE: Final = "intercept"
INTERCEPT_HEADER: Final = "rlalloc-intercept 5"
"""Its number is counted up when rlalloc.lua of before could misread the file."""
WAKE_FILE: Final = "wake"
_LIVES_FOR_HEARTBEATS: Final = 3


class RuntimeDirectoryError(RlallocError):
    """The runtime directory, or a file in it, cannot be written."""


def intercept_text(config: Config, now_s: float, uptime_s: float, skipped_forms: Collection[str] = ()) -> str:
    """The text of the intercept file, valid for three heartbeats from ``now_s`` and ``uptime_s`` on.

    The plugin does not defer ``skipped_forms``: forms of submission that an update breaks in this site's Slurm.
    """
    return "\n".join([*_lines(config, now_s, uptime_s, skipped_forms), ""])


def write_intercept(config: Config, skipped_forms: Collection[str] = ()) -> None:
    """Renew the intercept file, atomically. Raises RuntimeDirectoryError."""
    _write(config, intercept_text(config, time.time(), uptime_s(), skipped_forms))


def withdraw_intercept(config: Config) -> None:
    """Tell the plugin to leave all jobs alone from now on, by a file long expired. Raises RuntimeDirectoryError.

    The file is not removed, so that nothing that slurmctld would block on (a FIFO) can take its place.
    """
    _write(config, intercept_text(config, 0, 0))


def stamp_in_force(config: Config) -> str | None:
    """The stamp of the table of words that the plugin reads now; None where there is none, or it cannot be read."""
    return _value_of(config, "table")


def expires_s(config: Config) -> float | None:
    """Until when the plugin goes by the intercept file; None where there is none, or it cannot be read."""
    value = _value_of(config, "expires")
    return float(value) if value is not None and value.isdigit() else None


def _value_of(config: Config, key: str) -> str | None:
    """The rest of the line in the intercept file that begins with ``key``."""
    try:
        text = read_regular_file(config.runtime_directory / INTERCEPT_FILE).decode(errors="replace")
    except OSError:
        return None
    match = re.search(rf"^{key} (.*)$", text, re.MULTILINE)
    return None if match is None else match[1]


def _write(config: Config, text: str) -> None:
    path = config.runtime_directory / INTERCEPT_FILE
    try:
        replace_file(path, text.encode(), 0o644)
    except OSError as err:
        raise RuntimeDirectoryError(f"cannot write {path}: {err.strerror or err}") from err


class WakeFile:
    """A file descriptor that becomes readable when the plugin has touched the wake file.

    Raises RuntimeDirectoryError if that file cannot be made or watched.
    """

    def __init__(self, runtime_directory: Path) -> None:
        self._path = runtime_directory / WAKE_FILE
        flags = inotify_simple.flags
        self._touched = flags.MODIFY | flags.ATTRIB | flags.CLOSE_WRITE
        try:
            self._inotify = inotify_simple.INotify(nonblocking=True)
            self._watched = self._watch()
        except OSError as err:
            raise RuntimeDirectoryError(f"cannot watch {self._path}: {err.strerror or err}") from err

    def renew(self) -> None:
        """Watch the file that is in its place now, made again if somebody has removed it. Raises as above."""
        try:
            found = self._path.lstat() if os.path.lexists(self._path) else None
            if found is None or (found.st_dev, found.st_ino) != self._watched:
                self._watched = self._watch()
        except OSError as err:
            raise RuntimeDirectoryError(f"cannot watch {self._path}: {err.strerror or err}") from err

    def _watch(self) -> tuple[int, int]:
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o664))
        self._inotify.add_watch(self._path, self._touched | inotify_simple.flags.DONT_FOLLOW)
        found = self._path.lstat()
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file: remove it")
        return found.st_dev, found.st_ino

    def fileno(self) -> int:
        """The descriptor to poll."""
        return int(self._inotify.fileno())

    def clear(self) -> None:
        """Forget the touches so far."""
        try:
            self._inotify.read(timeout=0)
        except OSError as err:
            if err.errno not in (errno.EAGAIN, errno.EINTR):
                raise

    def close(self) -> None:
        """Stop watching."""
        self._inotify.close()


def _lines(config: Config, now_s: float, uptime_s: float, skipped_forms: Collection[str]) -> Iterator[str]:
    lives_s = _LIVES_FOR_HEARTBEATS * config.daemon.heartbeat_s + 1
    yield INTERCEPT_HEADER
    yield f"expires {int(now_s + lives_s)}"
    yield f"uptime {int(uptime_s + lives_s)}"
    yield f"grace {config.grace_s}"
    for form in sorted(skipped_forms):
        yield f"skip {form}"
    for kind, commands in config.commands.items():
        for command in commands:
            yield f"class {kind} {command}"
    table = config.word_table
    yield f"table {table.stamp}"
    yield f"words {'|'.join(table.words)}"
    yield f"launchers {'|'.join(table.launchers)}"
    for rule in config.rules:
        yield (
            f"rule {rule.name} {config.mode_of(rule)} partitions={','.join(rule.partitions)} "
            f"accounts={','.join(rule.accounts)} classes={','.join(rule.classes)}"
        )
