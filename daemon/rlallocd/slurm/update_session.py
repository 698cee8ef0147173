"""Several updates by one scontrol, which reads them from its standard input.

To start scontrol takes some milliseconds, an update less than one. scontrol prints nothing for an update that it
carries out, so a word that it does not know follows each: its complaint about that word ends the answer. The next
update is sent after that only. So each has its own answer and its own time limit, as with a scontrol of its own.

A line that Slurm's libraries log ("scontrol: error: …") counts as a refusal, too: 24.11 logs one for a node count
that it does not even send. Where the update was carried out all the same, the read-back shows it.

scontrol takes what it reads as it stands: a blank ends a word, and quotes stay. Where it was built with readline,
other signs edit the line. So an update of other than plain words goes by a scontrol of its own.
"""

import contextlib
import logging
import os
import re
import secrets
import select
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from rlallocd.slurm.slurm_commands import Commands
from rlallocd.slurm.slurm_errors import CommandDied, SlurmUnavailable

_log = logging.getLogger(__name__)

_COMMAND: Final = ("scontrol", "update")
_PLAIN: Final = re.compile(r"[!#-&(-\[\]-~]+")
"""Printable ASCII without blanks, quotes and backslashes."""
_LONGEST_LINE: Final = 4000  # a scontrol without readline cuts a line at 4,096 bytes
_READY_WITHIN_S: Final = 10.0
_ONE_BY_ONE_FOR_S: Final = 600.0
_MOST_DEATHS: Final = 2
"""After so many processes that ended without an answer in between, a single update is not the cause."""
_READ_BYTES: Final = 65_536


class UpdateSession:
    """Runs ``scontrol update``. Those inside ``together`` share a process as far as they can."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._together = False
        self._is_first = True
        self._process: _InteractiveScontrol | None = None
        self._deaths = 0
        self._one_by_one_until_s = 0.0

    @contextmanager
    def together(self) -> Iterator[None]:
        """Let the updates inside share a process. The first has one of its own: mostly there is no second."""
        self._together = self._is_first = True
        try:
            yield
        finally:
            self._together = False
            self._end()

    def update(self, *words: str) -> None:
        """Run ``scontrol update`` with these words.

        Raises UpdateRefused or SlurmUnavailable. After CommandDied, other updates may be sent at once: they get a new
        process.
        """
        alone, self._is_first = not self._together or self._is_first, False
        process = None if alone or not _is_plain(words) else self._interactive()
        if process is None:
            self._commands.run(*_COMMAND, *words)
        else:
            self._commands.answered((*_COMMAND, *words), lambda: self._ask(process, words))

    def _ask(self, process: "_InteractiveScontrol", words: Sequence[str]) -> str:
        try:
            said = process.answer(" ".join(("update", *words)), self._commands.timeout_s)
        except SlurmUnavailable as err:
            self._end()
            if isinstance(err, CommandDied):
                self._count_death(err)
            raise
        self._deaths = 0
        return _in_a_line(said)

    def _count_death(self, err: CommandDied) -> None:
        self._deaths += 1
        if self._deaths >= _MOST_DEATHS:
            self._go_one_by_one(err)

    def _interactive(self) -> "_InteractiveScontrol | None":
        """A process that takes updates, started where there is none; None if scontrol cannot be used in this way."""
        if self._process is None and time.monotonic() >= self._one_by_one_until_s:
            try:
                self._process = _InteractiveScontrol(self._commands.environment)
                self._process.answer("", min(_READY_WITHIN_S, self._commands.timeout_s))
            except SlurmUnavailable as err:
                self._end()
                self._go_one_by_one(err)
        return self._process

    def _go_one_by_one(self, err: SlurmUnavailable) -> None:
        self._deaths = 0
        self._one_by_one_until_s = time.monotonic() + _ONE_BY_ONE_FOR_S
        _log.warning("each update takes a scontrol of its own for %.0f s: %s", _ONE_BY_ONE_FOR_S, err)

    def _end(self) -> None:
        if self._process is not None:
            self._process.end()
            self._process = None


class _InteractiveScontrol:
    """A scontrol that waits for commands. Raises SlurmUnavailable if it cannot be run."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._mark = f"rlalloc-{secrets.token_hex(8)}"
        # Without INPUTRC a file of somebody's could give signs other meanings.
        with_terminal = {**environment, "INPUTRC": "/dev/null", "TERM": "dumb"}
        try:
            commands, self._commands = os.pipe()
        except OSError as err:
            raise SlurmUnavailable(f"scontrol cannot be run: {err.strerror or err}") from err
        try:
            self._complaints, complaints = os.pipe()
        except OSError as err:  # too few descriptors: leak none
            os.close(commands)
            os.close(self._commands)
            raise SlurmUnavailable(f"scontrol cannot be run: {err.strerror or err}") from err
        try:
            self._process = subprocess.Popen(
                ("scontrol",), env=with_terminal, stdin=commands, stdout=subprocess.DEVNULL, stderr=complaints
            )
        except OSError as err:
            self._close()
            raise SlurmUnavailable(f"scontrol cannot be run: {err.strerror or err}") from err
        finally:
            os.close(commands)
            os.close(complaints)
        self._poll = select.poll()
        self._poll.register(self._complaints, select.POLLIN)

    def answer(self, line: str, timeout_s: float) -> str:
        """The lines that scontrol prints about a command. Raises SlurmUnavailable; CommandDied if scontrol ends."""
        deadline_s = time.monotonic() + timeout_s
        with contextlib.suppress(BrokenPipeError):  # what it said before it ended is still to be read
            os.write(self._commands, "\n".join((line, self._mark, "")).lstrip().encode())
        said, end = b"", f"{self._mark}\n".encode()
        while not said.endswith(end):
            if not self._poll.poll(max(0.0, 1000 * (deadline_s - time.monotonic()))):
                raise SlurmUnavailable(f"scontrol gave no answer in {timeout_s:g} s; is slurmctld busy?")
            more = os.read(self._complaints, _READ_BYTES)
            if not more:
                why = _in_a_line(_text(said)) or "it said nothing"
                raise CommandDied(f"scontrol ended before it answered: {why}")
            said += more
        return _text(said.removesuffix(end).rpartition(b"\n")[0])

    def end(self) -> None:
        """End it at once: it has nothing left to do, or is past its time."""
        self._process.kill()
        self._process.wait()
        self._close()

    def _close(self) -> None:
        os.close(self._commands)
        os.close(self._complaints)


def _in_a_line(said: str) -> str:
    return " ".join(said.split())


def _text(said: bytes) -> str:
    return said.decode(errors="replace")


def _is_plain(words: Sequence[str]) -> bool:
    return sum(len(word) + 1 for word in words) <= _LONGEST_LINE and all(map(_PLAIN.fullmatch, words))
