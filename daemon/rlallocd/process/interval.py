"""How long ago something was done, by a clock that nobody sets."""

import math
import time
from collections.abc import Callable


class Interval:
    """The time since something was last done; at first that is for ever ago."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began_s = -math.inf

    def passed(self, seconds: float) -> bool:
        """Whether it was done so many seconds ago, or longer."""
        return self._clock() - self._began_s >= seconds

    def restart(self) -> None:
        """It has been done now."""
        self._began_s = self._clock()

    def expire(self) -> None:
        """As if it had never been done."""
        self._began_s = -math.inf
