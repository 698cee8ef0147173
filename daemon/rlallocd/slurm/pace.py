"""How much slurmctld may be asked: a budget of calls, longer waits while it does not answer, and jobs per command.

Only readings of rlallocd's own are paced. Updates, their verification, begins and restorations are never delayed,
because a job waits for them.
"""

import random
from collections.abc import Callable
from typing import Final

_FIRST_WAIT_S: Final = 1.0
_FACTOR: Final = 2.0
_MOST_JOBS: Final = 100
_FIRST_JOBS: Final = 10
"""Of the first command: nothing is known yet of how fast slurmctld answers."""
PART_OF_LIMIT: Final = 0.25


class Budget:
    """A token bucket: ``calls_per_minute`` on average, at most one minute's worth at once.

    Times are seconds of one monotonic clock.
    """

    def __init__(self, calls_per_minute: float, now_s: float) -> None:
        self._per_s = calls_per_minute / 60.0
        self._most = calls_per_minute
        self._left = calls_per_minute
        self._counted_s = now_s

    def spend(self, calls: int, now_s: float) -> None:
        """Count calls that were made. Calls beyond the budget have to wait."""
        self._left = min(self._most, self._left + (now_s - self._counted_s) * self._per_s) - calls
        self._counted_s = now_s

    def free_at_s(self) -> float:
        """When the next call may be made; in the past if at once."""
        return self._counted_s + (1.0 - self._left) / self._per_s


class BackOff:
    """How long to wait after each failure in a row: ``first_s``, doubled each time, with jitter, up to ``longest_s``.

    Jitter: several daemons that wait for the same slurmctld must not all come back in the same moment.
    """

    def __init__(
        self,
        longest_s: float,
        uniform: Callable[[float, float], float] = random.uniform,
        first_s: float = _FIRST_WAIT_S,
    ) -> None:
        self._longest_s = longest_s
        self._first_s = first_s
        self._uniform = uniform
        self._failures = 0

    def failed(self) -> float:
        """Note a failure; returns the seconds to wait."""
        longest_s = min(self._longest_s, self._first_s * _FACTOR**self._failures)
        self._failures += 1
        return self._uniform(longest_s / 2, longest_s)

    def succeeded(self) -> None:
        """Note an answer: the next failure counts as the first."""
        self._failures = 0


class JobsPerCommand:
    """How many jobs a scontrol may change or show that sends a message for each: all of them have one time limit.

    By how long the last one took: as many as would take a quarter of the time limit.
    """

    def __init__(self) -> None:
        self.most = _FIRST_JOBS

    def took(self, jobs: int, seconds: float, timeout_s: float) -> None:
        """Note how long a command took, or after how long it was ended."""
        self.most = max(1, min(_MOST_JOBS, int(jobs * PART_OF_LIMIT * timeout_s / max(seconds, 1e-3))))
