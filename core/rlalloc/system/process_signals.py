"""What signals asked a process for, and a file descriptor by which they end its waits.

Python and pyzmq resume a poll that a signal has interrupted (PEP 475). So each poll also watches a socket, which
a signal makes readable.
"""

import contextlib
import signal
import socket
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class ProcessSignals:
    """What SIGTERM and SIGINT (``stop``) and SIGHUP (``reload``) asked for. Only the main thread may make one."""

    def __init__(self) -> None:
        self.stop = False
        self.reload = False
        self._bell, self._hammer = socket.socketpair()
        for end in (self._bell, self._hammer):
            end.settimeout(0)
        self._previous_fd = signal.set_wakeup_fd(self._hammer.fileno(), warn_on_full_buffer=False)
        self._previous = {number: signal.signal(number, self._note) for number in _SIGNALS}

    @property
    def wake(self) -> int:
        """The file descriptor that a poll has to watch: readable after a signal, until ``heard`` is called."""
        return self._bell.fileno()

    def heard(self) -> None:
        """Make ``wake`` unreadable until the next signal."""
        with contextlib.suppress(BlockingIOError):
            while self._bell.recv(64):
                pass

    def close(self) -> None:
        """Give the signals back to whoever had them."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._previous_fd)
        self._bell.close()
        self._hammer.close()

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            self.reload = True
        else:
            self.stop = True
