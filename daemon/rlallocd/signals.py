"""Signals to rlallocd, and waiting that a signal ends at once.

Python and pyzmq go on with a poll that a signal has interrupted (PEP 475). So the signal also makes a socket readable
which each of our polls watches.
"""

import contextlib
import math
import signal
import socket
from types import FrameType
from typing import Final

import zmq

from rlalloc.errors import RlallocError

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Stopping(RlallocError):
    """rlallocd was told to stop; the cycle ends where it is."""


class Waiter:
    """Waits for sockets and times. This one knows no signals: for programs that a signal simply ends."""

    stop = False
    """Whether the process was told to stop."""

    def wait(
        self, timeout_s: float, ready: "zmq.Socket[bytes] | int | None" = None, events: int = zmq.POLLIN
    ) -> bool:
        """Wait for a socket or file descriptor, ``timeout_s`` at most; whether it is ready.

        Without one it only waits. It may come back early, and does so at once where ``stop`` is set.
        """
        poller = zmq.Poller()
        if ready is not None:
            poller.register(ready, events)
        self._watch(poller)
        found = dict(poller.poll(0 if self.stop else max(0, math.ceil(timeout_s * 1000))))
        return ready in found

    def _watch(self, poller: zmq.Poller) -> None:
        """Add what else ends a wait."""


class Signals(Waiter):
    """What SIGTERM and SIGINT (``stop``) and SIGHUP (``reload``) asked for. Only the main thread may make one."""

    def __init__(self) -> None:
        self.stop = False
        self.reload = False
        self._bell, self._hammer = socket.socketpair()
        for end in (self._bell, self._hammer):
            end.settimeout(0)
        self._previous_fd = signal.set_wakeup_fd(self._hammer.fileno(), warn_on_full_buffer=False)
        self._previous = {number: signal.signal(number, self._note) for number in _SIGNALS}

    def wait(
        self, timeout_s: float, ready: "zmq.Socket[bytes] | int | None" = None, events: int = zmq.POLLIN
    ) -> bool:
        """As ``Waiter.wait``; a signal ends the wait."""
        found = super().wait(timeout_s, ready, events)
        with contextlib.suppress(BlockingIOError):
            while self._bell.recv(64):
                pass
        return found

    def close(self) -> None:
        """Give the signals back to whoever had them."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._previous_fd)
        self._bell.close()
        self._hammer.close()

    def _watch(self, poller: zmq.Poller) -> None:
        poller.register(self._bell.fileno(), zmq.POLLIN)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            self.reload = True
        else:
            self.stop = True
