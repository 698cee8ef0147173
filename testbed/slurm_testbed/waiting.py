"""Wait for a condition of the real world, with a time limit."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from .testbed_errors import WaitTimedOutError

if TYPE_CHECKING:
    from collections.abc import Callable

Answer = TypeVar("Answer")
MOST_STRETCHED: Final = 5.0


def stretched(limit_s: float) -> float:
    """Return a time limit [s] for this machine as busy as it is now: longer where processes wait for a core."""
    return limit_s * min(MOST_STRETCHED, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))


def wait_until(
    probe: Callable[[], Answer | Literal[False, 0] | None],
    *,
    what: str,
    timeout_s: float = 30.0,
    interval_s: float = 0.1,
) -> Answer:
    """Call `probe` until its answer is true, and return that answer.

    `what` completes "waited N s for …". The probe is called at least once, however short the limit,
    which is stretched on a busy machine. Between two calls it waits `interval_s`, or as long as the
    last one took: on a busy machine looking must not slow down what is waited for.
    Raises WaitTimedOutError; what the probe raises passes through.
    """
    began = time.monotonic()
    while True:
        looked = time.monotonic()
        answer = probe()
        if answer:
            return answer
        took_s, waited_s = time.monotonic() - looked, time.monotonic() - began
        if waited_s >= stretched(timeout_s):
            raise WaitTimedOutError(f"waited {waited_s:.0f} s for {what}; last answer: {answer!r}")
        time.sleep(max(interval_s, took_s))
