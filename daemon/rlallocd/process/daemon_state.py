"""How rlallocd is, in a file for ``rlalloc status`` and ``rlalloc doctor``.

The file is the daemon's word on itself, ``state.json`` in the runtime directory, readable by the directory's group.
When it was last written is the last sign of life.
"""

import contextlib
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from rlalloc import __version__
from rlalloc.job import Mode
from rlalloc.system.shared_files import read_regular_file, replace_file

STATE_FILE: Final = "state.json"
WRITE_EVERY_S: Final = 5.0
FAILURES: Final = ("slurm_errors", "store_errors", "runtime_directory_errors", "system_errors", "internal_errors")
"""The controller's counters of cycles that failed."""
_LOGGERS: Final = ("rlalloc", "rlallocd")


class DaemonState(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon at ``written_s``. ``mode`` is in force; ``wanted`` is the file's, and ``mode_reason`` why not that.

    ``cycle_s`` is the end of the last cycle without a failure, ``decision_s`` that of the last with a decision; None:
    none since the start. ``problem`` is the last warning or error in the log, at ``problem_s``. ``waiting`` says what
    it waits for before its first cycle, ``standby`` why another rlallocd is to act. ``stopped`` is true once it was
    told to stop, ``switched_off`` where mode off is in force because of ``rlalloc off --all``.
    """

    version: str = __version__
    pid: int
    started_s: float
    written_s: float
    mode: Mode
    wanted: Mode
    mode_reason: str = ""
    cycle_s: float | None = None
    decision_s: float | None = None
    problem: str = ""
    problem_s: float | None = None
    waiting: str = ""
    standby: str = ""
    stopped: bool = False
    switched_off: bool = False

    @property
    def has_open_problem(self) -> bool:
        """Whether nothing has gone well since the last problem."""
        return bool(self.problem) and (self.problem_s or 0.0) >= (self.cycle_s or 0.0)


class LastProblem(logging.Handler):
    """Remembers the last warning or error of this program."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""
        self.at_s: float | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message and its time."""
        self.text, self.at_s = record.getMessage(), record.created


class StateFile:
    """The file of one running daemon. Close it, or its handler stays in the loggers."""

    def __init__(self, runtime_directory: Path, mode: Mode) -> None:
        self._path = runtime_directory / STATE_FILE
        now_s = time.time()
        self._state = DaemonState(pid=os.getpid(), started_s=now_s, written_s=now_s, mode=mode, wanted=mode)
        self._problem = LastProblem()
        self._failures = 0
        self._written_s = float("-inf")
        for name in _LOGGERS:
            logging.getLogger(name).addHandler(self._problem)
        self._write()
        self._written_s = float("-inf")  # the first cycle is told at once

    def waits_for(self, what: str) -> None:
        """Note what the daemon waits for before its first cycle."""
        self._change(waiting=what)
        self._write()

    def stands_by(self, why: str) -> None:
        """Note that another rlallocd is to act; the file is written every WRITE_EVERY_S."""
        changed = why != self._state.standby
        self._change(waiting="", standby=why)
        if changed or time.monotonic() - self._written_s >= WRITE_EVERY_S:
            self._write()

    def modes(self, mode: Mode, wanted: Mode, reason: str = "", *, switched_off: bool = False) -> None:
        """Note the mode in force, the file's, and why they differ."""
        self._change(mode=mode, wanted=wanted, mode_reason=reason, switched_off=switched_off)

    def cycled(self, counters: Mapping[str, int], decided: int) -> None:
        """Note a cycle; the file is written every WRITE_EVERY_S."""
        now_s, failures = time.time(), sum(counters.get(name, 0) for name in FAILURES)
        if failures == self._failures:
            self._change(cycle_s=now_s)
        self._failures = failures
        if decided:
            self._change(decision_s=now_s)
        self._change(waiting="", standby="")
        if time.monotonic() - self._written_s >= WRITE_EVERY_S:
            self._write()

    def failed(self, why: str) -> None:
        """Note why the daemon ends by itself."""
        self._problem.text, self._problem.at_s = why, time.time()

    def close(self) -> None:
        """Write for the last time."""
        for name in _LOGGERS:
            logging.getLogger(name).removeHandler(self._problem)
        self._change(stopped=True)
        self._write()

    def _change(self, **fields: object) -> None:
        self._state = msgspec.structs.replace(self._state, **fields)

    def _write(self) -> None:
        """Replace the file; where that fails, the intercept file fails, too, and the log says so."""
        self._change(written_s=time.time(), problem=self._problem.text, problem_s=self._problem.at_s)
        self._written_s = time.monotonic()
        with contextlib.suppress(OSError):
            replace_file(self._path, msgspec.json.encode(self._state), 0o640)


def read_daemon_state(runtime_directory: Path) -> DaemonState | None:
    """What the daemon last said of itself; None where it never ran here, or another version wrote the file."""
    try:
        return parse_daemon_state(read_regular_file(runtime_directory / STATE_FILE))
    except OSError:
        return None


def parse_daemon_state(text: bytes) -> DaemonState | None:
    """The same from the file's text."""
    try:
        return msgspec.json.decode(text, type=DaemonState)
    except msgspec.DecodeError:
        return None
