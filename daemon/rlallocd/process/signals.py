"""Signals to rlallocd, and waiting that a signal ends at once."""

import math

import zmq

from rlalloc.errors import RlallocError
from rlalloc.system.process_signals import ProcessSignals


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


class Signals(ProcessSignals, Waiter):
    """The signals to this process; each ends a wait."""

    def wait(
        self, timeout_s: float, ready: "zmq.Socket[bytes] | int | None" = None, events: int = zmq.POLLIN
    ) -> bool:
        """As ``Waiter.wait``; a signal ends the wait."""
        found = super().wait(timeout_s, ready, events)
        self.heard()
        return found

    def _watch(self, poller: zmq.Poller) -> None:
        poller.register(self.wake, zmq.POLLIN)
