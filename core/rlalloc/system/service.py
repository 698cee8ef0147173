"""What systemd wants to hear from a service of Type=notify; silence where there is no systemd."""

import contextlib
import math
import os
import time
from typing import Final

_FEED_EVERY_S: Final = 1.0


def notify(state: str) -> None:
    """Send ``state`` (READY=1, WATCHDOG=1, STATUS=…) to systemd, if it started this process."""
    if "NOTIFY_SOCKET" not in os.environ:
        return
    try:
        import systemd.daemon
    except ImportError:
        return
    # Where systemd does not take it (it starts itself anew, say), the next word may reach it; none is worth a cycle.
    with contextlib.suppress(OSError):
        systemd.daemon.notify(state)


class Watchdog:
    """systemd's watchdog: it kills a service that it has not heard from for WatchdogSec.

    ``feed`` belongs behind each step of work that ends by itself: a service that makes progress lives, however long
    all its work takes, and one that hangs in a step is noticed.
    """

    def __init__(self) -> None:
        self._least_s = self._limit_s = int(os.environ.get("WATCHDOG_USEC", "0")) / 1e6
        self._fed_s = -math.inf

    def feed(self) -> None:
        """Note progress. Cheap: systemd hears of it at most once a second."""
        now_s = time.monotonic()
        if now_s - self._fed_s >= _FEED_EVERY_S:
            self._fed_s = now_s
            notify("WATCHDOG=1")

    def silent_s(self) -> float:
        """Seconds since progress was noted; infinite before the first note. For any thread."""
        return time.monotonic() - self._fed_s

    def allow_steps_of(self, longest_s: float) -> None:
        """Have systemd wait for twice the longest step that is to come, but never less than WatchdogSec."""
        limit_s = max(self._least_s, 2 * longest_s)
        if self._least_s and limit_s != self._limit_s:
            self._limit_s = limit_s
            notify(f"WATCHDOG_USEC={round(limit_s * 1e6)}")
