"""How much each user may have the daemon do: a request takes its price from an allowance that fills up again."""

import threading
import time
from collections.abc import Callable
from typing import Final

ALLOWANCE: Final = 30.0
"""What a user may ask for at once."""
PER_S: Final = 0.5
"""What comes back of it each second."""


class UserPace:
    """The allowances of all users, by user id; for several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` in seconds."""
        self._clock = clock
        self._changing = threading.Lock()
        self._left: dict[int, tuple[float, float]] = {}

    def wait_s(self, uid: int, price: float) -> float:
        """Take ``price`` from a user's allowance and return 0; or take nothing, and return when to come again [s]."""
        now_s = self._clock()
        with self._changing:
            self._left = {each: kept for each, kept in self._left.items() if _left(kept, now_s) < ALLOWANCE}
            left = _left(self._left.get(uid, (ALLOWANCE, now_s)), now_s)
            if left < price:
                return (price - left) / PER_S
            self._left[uid] = left - price, now_s
            return 0.0


def _left(kept: tuple[float, float], now_s: float) -> float:
    amount, at_s = kept
    return min(ALLOWANCE, amount + PER_S * (now_s - at_s))
