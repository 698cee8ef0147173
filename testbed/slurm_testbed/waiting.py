"""Wait for a condition of the real world, with a time limit."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal, TypeVar

from .testbed_errors import WaitTimedOutError

if TYPE_CHECKING:
    from collections.abc import Callable

Answer = TypeVar("Answer")


def wait_until(
    probe: Callable[[], Answer | Literal[False, 0] | None],
    *,
    what: str,
    timeout_s: float = 30.0,
    interval_s: float = 0.1,
) -> Answer:
    """Call `probe` until its answer is true, and return that answer.

    `what` completes "waited N s for …". The probe is called at least once, however short the limit.
    Raises WaitTimedOutError; what the probe raises passes through.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        answer = probe()
        if answer:
            return answer
        if time.monotonic() >= deadline:
            raise WaitTimedOutError(f"waited {timeout_s:g} s for {what}; last answer: {answer!r}")
        time.sleep(interval_s)
