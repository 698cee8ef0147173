"""``rlalloc off --all`` and ``rlalloc on`` in the daemon.

A thread of ``users.user_service`` writes the switch, and waits until the loop has taken it up. The loop looks at the
switch in each cycle.
"""

import contextlib
import logging
import os
import queue
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TooLate
from pathlib import Path
from typing import Final

from rlalloc.site_switch import SiteSwitch, SwitchError, read_switch, write_switch
from rlalloc.user_messages import AskSwitch, UserServiceError

_log = logging.getLogger(__name__)

SWITCHED_OFF: Final = "switched-off"
"""The name of the reason for which a job that waited for rlallocd is let go."""


class SiteSwitchInUse:
    """The switch as the loop has taken it up."""

    def __init__(self, directory: Path, slurm_user: str) -> None:
        self._directory = directory
        self._slurm_user = slurm_user
        self._waiting: queue.SimpleQueue[Future[str]] = queue.SimpleQueue()
        self._answering: list[Future[str]] = []
        self._let_go = 0
        self._now: SiteSwitch | None = None
        self._unrecorded: SiteSwitch | None = None

    @property
    def off(self) -> bool:
        """Whether rlalloc is switched off."""
        return self._now is not None and self._now.off

    @property
    def reason(self) -> str:
        """Who switched rlalloc off and why; empty where it is on."""
        return f"switched off {self._now.by}" if self._now is not None and self._now.off else ""

    @property
    def skip_reason(self) -> str:
        """Why a job that waited for a decision is left as submitted."""
        return f"{SWITCHED_OFF}: rlalloc was {self.reason}"

    def ask(self, question: AskSwitch, uid: int, user: str, within_s: float, wake: Callable[[], object]) -> str:
        """Switch, and say what the loop did. Raises UserServiceError or SwitchError.

        Root may say for whom it acts (sudo); the kernel says who everybody is.
        """
        if uid not in (0, os.geteuid()) and not (user and user == self._slurm_user):
            raise UserServiceError("only root and SlurmUser may switch rlalloc off or on for the whole site")
        who = f"{user or 'a user without a name'} (uid {uid})"
        if uid == 0 and question.for_user not in ("", "root"):
            who = f"{printable(question.for_user)} as {who}"
        switch = SiteSwitch(off=question.off, since_s=time.time(), who=who, why=printable(question.reason))
        recorded = self._record(switch)
        answer: Future[str] = Future()
        self._waiting.put(answer)
        wake()
        done = f"rlalloc is switched {'off' if question.off else 'on'} for the whole site{recorded}"
        try:
            return f"{done}; {answer.result(within_s)}"
        except TooLate:
            return f"{done}; rlallocd is busy and follows in its next cycle"

    def look(self) -> bool:
        """Look at the switch, at the begin of a cycle; return whether it was used since."""
        while not self._waiting.empty():
            self._answering.append(self._waiting.get())
        before, self._now = self._now, self._read()
        self._let_go = 0
        if self._now is None or self._now == before or (before is None and not self._now.off):
            return False
        _log.info("switched %s for the whole site %s", "off" if self.off else "on", self._now.by)
        return True

    def _record(self, switch: SiteSwitch) -> str:
        """Write a switch. One that switches off is in force though it cannot be written; then say so.

        Raises SwitchError.
        """
        try:
            write_switch(self._directory, switch)
        except SwitchError as err:
            if not switch.off:
                raise
            self._unrecorded = switch
            return f" until rlallocd is restarted, as {err}; rlallocd tries again in each cycle"
        self._unrecorded = None
        return ""

    def _read(self) -> SiteSwitch | None:
        """The switch in force; one that could not be written is written as soon as that is possible."""
        if (waiting := self._unrecorded) is None:
            return read_switch(self._directory)
        with contextlib.suppress(SwitchError):
            write_switch(self._directory, waiting)
            self._unrecorded = None
        return waiting

    def let_go(self, number: int) -> None:
        """Note jobs that were let go because of the switch."""
        self._let_go += number

    def cycled(self, mode: str, grace_s: int, *, failed: bool) -> None:
        """Answer those who wait for this cycle."""
        if not self._answering:
            return
        if not self.off:
            said = f"mode {mode} is in force"
        elif failed:
            said = f"but a cycle of rlallocd failed: jobs that wait for it begin by themselves within {grace_s} s"
        else:
            waited = f"{self._let_go} that waited for rlallocd run as submitted"
            said = f"no job is deferred or changed any more, and {waited}"
        for answer in self._answering:
            answer.set_result(said)
        self._answering = []


def printable(text: str) -> str:
    """The text without characters that could change a terminal."""
    return "".join(each for each in text if each.isprintable())
