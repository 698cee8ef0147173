"""How far back rlallocd has read the site's past: the position in the store, and a line about it for people."""

from datetime import datetime
from typing import Final, NamedTuple

from rlalloc.config import Config
from rlalloc.store import History

IMPORTED: Final = "sacct"
"""Under this name the store keeps until when ``rlalloc history import`` has asked sacct for all there is."""
EARLIER: Final = "rlallocd back to"
"""Under this name the store keeps how far back rlallocd has read."""
COLLECTED: Final = "rlallocd"
"""Under this name the store keeps until when rlallocd has asked for ended jobs."""
_DAY_S: Final = 86400.0
_LATE_S: Final = _DAY_S
"""An end may reach slurmdbd late: of what was imported, the last day is read again."""


class EarlierReading(NamedTuple):
    """All jobs that ended from ``reached_s`` on have been read; rlallocd reads back to ``goal_s``."""

    now_s: float
    reached_s: float
    goal_s: float

    @property
    def unread_s(self) -> float:
        """How much is still to be read; 0 at the end."""
        return max(0.0, self.reached_s - self.goal_s)

    def describe(self) -> str:
        """How far it is, in one line."""
        since = datetime.fromtimestamp(self.reached_s).astimezone()
        read, of = (round((self.now_s - until_s) / _DAY_S) for until_s in (self.reached_s, self.goal_s))
        return f"read back to {since.day} {since:%b %Y}: {min(read, of)} of {of} days"


def earlier_reading(history: History, config: Config, now_s: float) -> EarlierReading | None:
    """How far back rlallocd has read; None where it only adds jobs as they end. Raises StoreError.

    It reads back ``history.first_days``, or to where an import ended.
    """
    days = _days(config)
    if not days or (reached_s := history.position(EARLIER)) is None:
        return None
    goal_s = now_s - days * _DAY_S
    if (imported_s := history.position(IMPORTED)) is not None:
        goal_s = max(goal_s, imported_s - _LATE_S)
    return EarlierReading(now_s, reached_s, goal_s)


def unread_s_at_start(history: History, config: Config, now_s: float) -> float:
    """How much of the site's past is still to be read, also before rlallocd has ever read. Raises StoreError."""
    reading = earlier_reading(history, config, now_s)
    if reading is not None:
        return reading.unread_s
    return 0.0 if history.position(COLLECTED) is not None else _days(config) * _DAY_S


def why_none_yet(config: Config) -> str:
    """What to do where the store has no past jobs, and rlallocd has not begun to read."""
    if days := _days(config):
        return f"once rlallocd runs, it reads the last {days} days from sacct by itself"
    return "run rlalloc history import"


def _days(config: Config) -> int:
    return min(config.history.first_days, config.store.keep_history_days)
