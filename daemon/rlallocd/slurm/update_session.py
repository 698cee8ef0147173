"""Several updates by one scontrol, which reads them from its standard input.

To start scontrol takes some milliseconds, an update less than one. scontrol prints nothing for an update that it
carries out, so a word that it does not know follows each: its complaint about that word ends the answer. The next
update is sent after that only. So each has its own answer and its own time limit, as with a scontrol of its own.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from rlallocd.slurm.slurm_commands import Commands
from rlallocd.slurm.slurm_errors import SlurmUnavailable

_log = logging.getLogger(__name__)

_COMMAND: Final = ("scontrol", "update")
_PLAIN: Final = re.compile(r"[!#-&(-\[\]-~]+")
"""Printable ASCII without blanks, quotes and backslashes."""
_LONGEST_LINE: Final = 4000  # a scontrol without readline cuts a line at 4,096 bytes
_READY_WITHIN_S: Final = 10.0
_ONE_BY_ONE_FOR_S: Final = 600.0
_READ_BYTES: Final = 65_536


class UpdateSession:
    """Runs ``scontrol update``. Those inside ``together`` share a process as far as they can.

    ``clock`` returns monotonic seconds.
    """

    def __init__(self, commands: Commands, clock: Callable[[], float] = time.monotonic) -> None:
        self._commands = commands
        self._clock = clock
        self._together = False
        self._is_first = True
        self._process: _InteractiveScontrol | None = None
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
        """Run ``scontrol update`` with these words. Raises UpdateRefused or SlurmUnavailable."""
        alone, self._is_first = not self._together or self._is_first, False
        process = None if alone or not _is_plain(words) else self._interactive()
        if process is None:
            self._commands.run(*_COMMAND, *words)
        else:
            self._commands.answered((*_COMMAND, *words), lambda: self._ask(process, words))

    def _ask(self, process: "_InteractiveScontrol", words: Sequence[str]) -> str:
        try:
            return process.answer(" ".join(("update", *words)), self._commands.timeout_s)
        except SlurmUnavailable:
            self._end()
            raise

    def _interactive(self) -> "_InteractiveScontrol | None":
        """A process that takes updates, started where there is none; None if scontrol cannot be used in this way."""
        if self._process is None and self._clock() >= self._one_by_one_until_s:
            try:
                self._process = _InteractiveScontrol(self._commands.environment)
                self._process.answer("", min(_READY_WITHIN_S, self._commands.timeout_s))
            except SlurmUnavailable as err:
                self._end()
                self._one_by_one_until_s = self._clock() + _ONE_BY_ONE_FOR_S
                _log.warning("each update takes a scontrol of its own for %.0f s: %s", _ONE_BY_ONE_FOR_S, err)
        return self._process

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
            (commands, self._commands), (self._complaints, complaints) = os.pipe(), os.pipe()
        except OSError as err:
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
        """What scontrol says of a command: nothing if it carried it out. Raises SlurmUnavailable."""
        deadline_s = time.monotonic() + timeout_s
        with contextlib.suppress(BrokenPipeError):  # what it said before it ended is still to be read
            os.write(self._commands, "\n".join((line, self._mark, "")).lstrip().encode())
        said, end = b"", f"{self._mark}\n".encode()
        while not said.endswith(end):
            if not self._poll.poll(max(0.0, 1000 * (deadline_s - time.monotonic()))):
                raise SlurmUnavailable(f"scontrol gave no answer in {timeout_s:g} s; is slurmctld busy?")
            more = os.read(self._complaints, _READ_BYTES)
            if not more:
                why = _in_a_line(said) or "it said nothing"
                raise SlurmUnavailable(f"scontrol ended before it answered: {why}")
            said += more
        return _in_a_line(said.removesuffix(end).rpartition(b"\n")[0])

    def end(self) -> None:
        """End it at once: it has nothing left to do, or is past its time."""
        self._process.kill()
        self._process.wait()
        self._close()

    def _close(self) -> None:
        os.close(self._commands)
        os.close(self._complaints)


def _in_a_line(said: bytes) -> str:
    return " ".join(said.decode(errors="replace").split())


def _is_plain(words: Sequence[str]) -> bool:
    return sum(len(word) + 1 for word in words) <= _LONGEST_LINE and all(map(_PLAIN.fullmatch, words))
