"""Running Slurm's commands: argument lists, never a shell; each with a time limit."""

import copy
import os
import re
import selectors
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any, Final

from rlallocd.slurm.slurm_errors import (
    AnswerTooLong,
    CommandDied,
    JobChanged,
    SlurmUnavailable,
    UnknownJob,
    UpdateRefused,
)

_UNREACHABLE = (
    "Unable to contact slurm controller",
    "Connection refused",
    "Socket timed out",
    "Unable to contact slurm",
    "Zero Bytes were transmitted",
    "Problem talking to the database",
    "connect failure",
)
_OF_SLURMDBD = ("Problem talking to the database", "PersistInit")
_UNKNOWN_JOB = "Invalid job id"  # ESLURM_INVALID_JOB_ID in slurm_errno.c
_JOB_CHANGED: Final = re.compile(r"Stale file handle for job \d|(?:^| )\d[\d_,\[\]-]*: Stale file handle")
"""ESTALE of slurmctld: only rlalloc.lua refuses an update with it. Not that of a file on this machine."""


_FORMATS: Final = {"LC_ALL": "C", "SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "4096"}
"""Slurm cuts a list of array tasks after 64 bytes by default; 4,096 is the highest limit."""
_LOCAL: Final = ("SACCT_LOCAL", "SCONTROL_LOCAL", "SINFO_LOCAL", "SPRIO_LOCAL", "SQUEUE_LOCAL")
"""With them a command shows this cluster alone, also where slurm.conf has FederationParameters=fed_display."""
_DEFAULTS_OF_PEOPLE: Final = ("SACCT_", "SCONTROL_", "SINFO_", "SPRIO_", "SQUEUE_")
_UPDATE: Final = "scontrol update"
_PIPE_BYTES: Final = 2**16
OTHER_CLUSTERS: Final = "SLURM_CLUSTERS"
"""With it a command speaks to another cluster than that of slurm.conf."""


class Commands:
    """Runs Slurm's commands with one time limit, and counts calls and failures by command.

    ``timeout_s`` may be set anew: it holds from the next command on. ``environment`` is what the commands get.
    """

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.environment = _environment(os.environ)
        self.calls: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.took: Callable[[str, float], None] = lambda _command, _seconds: None
        """Called after each command with its name and its seconds, however it ended."""

    def apart(self) -> "Commands":
        """Commands with a time limit and an environment of their own. They count with these."""
        return copy.copy(self)

    def in_zone(self, zone: str) -> "Commands":
        """Commands for which this is the local time zone (a value of TZ). They count with these."""
        elsewhere = self.apart()
        elsewhere.environment = self.environment | {"TZ": zone}
        return elsewhere

    def within(self, timeout_s: float) -> "Commands":
        """Commands with this time limit. They count with these."""
        patient = self.apart()
        patient.timeout_s = timeout_s
        return patient

    def printed(self, *words: str) -> str:
        """Return what a command printed, however it ended. Raises SlurmUnavailable."""
        with self._counted(words):
            return self._run(words).stdout

    def run(self, *words: str) -> str:
        """Return what the command printed. Raises SlurmUnavailable, or UpdateRefused with Slurm's own words."""
        return self._done(words).stdout

    def run_up_to(self, most_bytes: int, *words: str) -> str:
        """The same; where the command prints more than ``most_bytes``, it is ended, and this raises AnswerTooLong."""
        return self._done(words, most_bytes=most_bytes).stdout

    def run_verbosely(self, *words: str) -> str:
        """Return what the command wrote to standard error. Raises SlurmUnavailable or UpdateRefused."""
        return self._done(words).stderr

    def converse(self, *words: str, lines: Sequence[str]) -> str:
        """Return what a command prints that reads ``lines`` from standard input; nothing for a line that it refuses.

        Raises SlurmUnavailable.
        """
        with self._counted((*words, *lines[0].split()[:1])):
            return self._run(words, "\n".join((*lines, ""))).stdout

    def answered(self, words: Sequence[str], ask: Callable[[], str]) -> None:
        """Count a command that a process under way carries out; ``ask`` returns what it complains of.

        Raises as ``run`` does.
        """
        with self._counted(words):
            said = ask()
            if any(sign in said for sign in _UNREACHABLE):
                raise _unreachable(words, said)
            if said:
                raise _refusal(words, said)

    def _done(self, words: Sequence[str], *, most_bytes: int | None = None) -> subprocess.CompletedProcess[str]:
        with self._counted(words):
            done = self._run(words, most_bytes=most_bytes)
            if done.returncode < 0 and _name(words) == _UPDATE:
                raise CommandDied(f"{_UPDATE} was ended by signal {-done.returncode}")
            if done.returncode:
                raise _refusal(words, _said(done))
            return done

    @contextmanager
    def _counted(self, words: Sequence[str]) -> Iterator[None]:
        command = _name(words)
        self.calls[command] += 1
        called_s = time.monotonic()
        try:
            yield
        except (SlurmUnavailable, UpdateRefused):
            self.errors[command] += 1
            raise
        finally:
            self.took(command, time.monotonic() - called_s)

    def _run(
        self, words: Sequence[str], standard_input: str = "", most_bytes: int | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command, however it ends. Raises SlurmUnavailable."""
        done = self._start(words, standard_input, most_bytes)
        if done.returncode and any(sign in _said(done) for sign in _UNREACHABLE):
            raise _unreachable(words, done.stderr or done.stdout)
        return done

    def _start(
        self, words: Sequence[str], standard_input: str, most_bytes: int | None
    ) -> subprocess.CompletedProcess[str]:
        try:
            if most_bytes is None:
                return self._whole(words, standard_input)
            return self._bounded(words, most_bytes)
        except subprocess.TimeoutExpired as err:
            raise SlurmUnavailable(f"{words[0]} gave no answer in {self.timeout_s:g} s; is slurmctld busy?") from err
        except FileNotFoundError as err:
            raise SlurmUnavailable(f"{words[0]} is not installed or not in PATH (Debian: slurm-client)") from err
        except OSError as err:
            raise SlurmUnavailable(f"{words[0]} cannot be run: {err.strerror or err}") from err

    def _whole(self, words: Sequence[str], standard_input: str) -> subprocess.CompletedProcess[str]:
        """Run a command of which everything is kept. Raises TimeoutExpired."""
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        with _group(words, self.environment, text=True, errors="replace", **pipes) as process:
            printed, said = process.communicate(standard_input, self.timeout_s)
        return subprocess.CompletedProcess(words, process.returncode, printed, said)

    def _bounded(self, words: Sequence[str], most_bytes: int) -> subprocess.CompletedProcess[str]:
        """Run a command of which no more than ``most_bytes`` are kept. Raises AnswerTooLong, TimeoutExpired."""
        ends_s = time.monotonic() + self.timeout_s
        with tempfile.TemporaryFile() as complaint:
            pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": complaint}
            with _group(words, self.environment, **pipes) as process:
                printed = b"" if process.stdout is None else _printed(words[0], process.stdout, most_bytes, ends_s)
                process.wait(max(0.0, ends_s - time.monotonic()))
            complaint.seek(0)
            said = complaint.read(most_bytes)
        return subprocess.CompletedProcess(
            words, process.returncode, printed.decode(errors="replace"), said.decode(errors="replace")
        )


@contextmanager
def _group(words: Sequence[str], environment: Mapping[str, str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A command and all that it starts: they are ended if the block raises.

    The processes of a wrapper hold the pipes, and could still carry out what is taken for failed.
    """
    with subprocess.Popen(words, env=environment, start_new_session=True, **options) as process:
        try:
            yield process
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise


def _printed(command: str, pipe: IO[bytes], most_bytes: int, ends_s: float) -> bytes:
    """All that comes from a command's pipe until ``ends_s``. Raises AnswerTooLong, TimeoutExpired."""
    printed = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while len(printed) <= most_bytes:
            if not selector.select(max(0.0, ends_s - time.monotonic())):
                raise subprocess.TimeoutExpired(command, 0.0)
            some = os.read(pipe.fileno(), _PIPE_BYTES)
            if not some:
                return bytes(printed)
            printed += some
    raise AnswerTooLong(f"{command} printed more than {most_bytes >> 20} MiB")


def _environment(ours: Mapping[str, str]) -> dict[str, str]:
    """Our environment without what would have a command show other jobs, other columns or another cluster."""
    kept = {
        name: value
        for name, value in ours.items()
        if name != OTHER_CLUSTERS and not name.startswith(_DEFAULTS_OF_PEOPLE)
    }
    return kept | dict.fromkeys(_LOCAL, "1") | _FORMATS


def _said(done: subprocess.CompletedProcess[str]) -> str:
    return " ".join((done.stderr or done.stdout).split())


def _unreachable(words: Sequence[str], text: str) -> SlurmUnavailable:
    """The error with the last line only: sacct and sacctmgr try several times, and say each time why they fail."""
    complaints = [line for line in text.splitlines() if any(sign in line for sign in _UNREACHABLE)]
    last = " ".join((complaints or [text])[-1].rpartition("error: ")[2].split())
    daemon = "slurmdbd" if any(sign in text for sign in _OF_SLURMDBD) else "Slurm"
    return SlurmUnavailable(f"{words[0]}: {last}; is {daemon} up?")


def _refusal(words: Sequence[str], said: str) -> UpdateRefused:
    refusal = UpdateRefused
    if _UNKNOWN_JOB in said:
        refusal = UnknownJob
    elif _JOB_CHANGED.search(said):
        refusal = JobChanged
    return refusal(f"{' '.join(words)}: {said}", said)


def _name(words: Sequence[str]) -> str:
    """The name under which a call is counted; scontrol counts by its verb: ``scontrol update``, ``scontrol show``."""
    if words[0] != "scontrol":
        return words[0]
    return " ".join([word for word in words if not word.startswith("-")][:2])
