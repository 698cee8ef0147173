"""Jobs and nodes through pyslurm, where slurm.backend asks for it: no command and no JSON for each snapshot.

pyslurm runs in a process of its own (pyslurm_process.py says why), which is started with the first question and again
after each that was not answered in slurm.command_timeout_s.
"""

import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from rlallocd.slurm.pyslurm_answers import LENGTH_BYTES, PyslurmAnswer, decode
from rlallocd.slurm.slurm_commands import Commands
from rlallocd.slurm.slurm_errors import SlurmUnavailable, UnexpectedAnswer
from rlallocd.slurm.slurm_records import JobRecord, NodeRecord, with_splits
from rlallocd.slurm.squeue_reader import SqueueReader

_AT_ONCE: Final = 1 << 20
_LEAST_S: Final = 0.001  # 0 would mean not to wait at all
_LEFT_OPEN: Final = ("mem_mib", "is_scrontab", "array_tasks", "needs")
"""Fields that SqueueReader does not read of pending jobs that cannot be ours."""
_PROCESS: Final = "rlallocd.slurm.pyslurm_process"


class PyslurmReader:
    """Reads through libslurm; ``squeue_reader`` reads what pyslurm leaves out."""

    name = "pyslurm"

    def __init__(self, commands: Commands, squeue_reader: SqueueReader) -> None:
        """``commands`` has the time limit and the environment."""
        self._process = _Process(commands)
        self._squeue_reader = squeue_reader

    def jobs(self) -> tuple[JobRecord, ...]:
        """Every job that slurmctld knows: ended ones too, for MinJobAge seconds. Raises SlurmError."""
        answer = self._process.ask("jobs")
        if all(answer.complete):
            return with_splits(answer.jobs)
        read = {record.job_id: record for record in self._squeue_reader.jobs()}
        return with_splits(
            record if complete else _completed(record, read.get(record.job_id))
            for record, complete in zip(answer.jobs, answer.complete, strict=True)
        )

    def read_back(self, job_ids: Sequence[int]) -> dict[int, JobRecord]:
        """As SqueueReader does: pyslurm has no attribute for the maximum of nodes or the CPUs of a node."""
        return self._squeue_reader.read_back(job_ids)

    def nodes(self) -> tuple[NodeRecord, ...]:
        """Every node. Raises SlurmError."""
        return self._process.ask("nodes").nodes

    def close(self) -> None:
        """End the process with pyslurm."""
        self._process.end()


def _completed(record: JobRecord, read: JobRecord | None) -> JobRecord:
    """A record of pyslurm, and what squeue's columns say of the same job, if it is still there."""
    if read is None:
        return record
    if read.admin_comment or not read.pending:
        return read
    return msgspec.structs.replace(read, **{name: getattr(record, name) for name in _LEFT_OPEN})


class _Running(NamedTuple):
    """The process with pyslurm, and our end of its standard input and output."""

    process: subprocess.Popen[bytes]
    line: socket.socket


class _Process:
    """Asks the process with pyslurm, which ends with this object or, if that is killed, with the program."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._running: _Running | None = None
        self._end: Callable[[], object]

    def ask(self, what: Literal["jobs", "nodes"]) -> PyslurmAnswer:
        """Raises SlurmUnavailable or UnexpectedAnswer."""
        try:
            answer = decode(self._answer(what))
        except TimeoutError as err:
            self.end()
            raise SlurmUnavailable(
                f"pyslurm gave no answer in {self._commands.timeout_s:g} s; is slurmctld busy?"
            ) from err
        except OSError as err:
            self.end()
            raise SlurmUnavailable(f"pyslurm: {err}") from err
        except msgspec.DecodeError as err:
            self.end()
            raise UnexpectedAnswer(f"pyslurm: {err}; set slurm.backend to cli") from err
        if answer.unavailable:
            raise SlurmUnavailable(answer.unavailable)
        if answer.unreadable:
            raise UnexpectedAnswer(f"{answer.unreadable}; set slurm.backend to cli")
        return answer

    def _answer(self, what: str) -> bytes:
        if self._running is None:
            self._running = self._start()
        line, deadline_s = self._running.line, time.monotonic() + self._commands.timeout_s
        line.settimeout(self._commands.timeout_s)
        line.sendall(f"{what}\n".encode())
        return _received(line, int.from_bytes(_received(line, LENGTH_BYTES, deadline_s)), deadline_s)

    def _start(self) -> _Running:
        ours, theirs = socket.socketpair()
        with theirs:
            words = (sys.executable, "-m", _PROCESS)
            process = subprocess.Popen(
                words, stdin=theirs.fileno(), stdout=theirs.fileno(), env=self._commands.environment
            )
        running = _Running(process, ours)
        self._end = weakref.finalize(self, _end, running)
        return running

    def end(self) -> None:
        """End it; the next question starts another one."""
        if self._running is not None:
            self._end()
            self._running = None


def _end(running: _Running) -> None:
    running.line.close()
    with running.process as process:
        process.kill()


def _received(line: socket.socket, length: int, deadline_s: float) -> bytes:
    """So many bytes. Raises TimeoutError, or ConnectionError where the process has ended."""
    parts = []
    while length:
        line.settimeout(max(_LEAST_S, deadline_s - time.monotonic()))
        part = line.recv(min(length, _AT_ONCE))
        if not part:
            raise ConnectionError("its process has ended; the log has what it said")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)
