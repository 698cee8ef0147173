"""Past jobs as they end, ours or not: sacct's answers by time of end, into the store."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from rlalloc.config import Config
from rlalloc.errors import HistoryError
from rlalloc.history.earlier_reading import COLLECTED, EARLIER
from rlalloc.store import Store
from rlallocd.outcomes.past_job_entry import PastJobEntry
from rlallocd.process.interval import Interval
from rlallocd.slurm import FIRST_SPAN_S, EndedJobs, SlurmError, next_span_s, shorter_span_s

_log = logging.getLogger(__name__)

_DAY_S: Final = 86400.0
_AGAIN_S: Final = 600.0
"""An end may reach slurmdbd late: these last seconds are asked for again."""
SETTLED_AFTER_S: Final = 30.0
"""Of a job that has just ended slurmdbd may not know all yet: 22.05 calls it "allocation" at first."""
_LONGEST_WAIT_S: Final = 3600.0
_MOST_DOUBLINGS: Final = 20
"""With more, the longest wait is reached anyway; a number of failures without bound would overflow."""


def wait_s_after(failures: int, every_s: float) -> float:
    """How long to wait after so many failures in a row."""
    return min(_LONGEST_WAIT_S, every_s * 2.0 ** min(failures, _MOST_DOUBLINGS))


class EndedJobCollection:
    """Asks for what ended since it last asked, ``history.every_s`` apart.

    After a downtime it catches up, an hour and later up to a day per call, one every ``daemon.outcomes_every_s``. At
    first it begins a day ago: what is older is left to EarlierJobs. ``caught_up`` says whether the last answer was
    about all that had ended.

    Counts ``past_jobs`` and ``history_errors``.
    """

    def __init__(self, store: Store, counters: Counter[str]) -> None:
        self._store = store
        self._counters = counters
        self._entry = PastJobEntry(store, counters)
        self._asked = Interval()
        self._wait_s = 0.0
        self._failures = 0
        self._span_s = FIRST_SPAN_S
        self.caught_up = False

    def collect(self, ask: Callable[[float, float], EndedJobs], config: Config, now_s: float) -> None:
        """Ask, if it is time. What fails is logged and tried again later. Raises StoreError."""
        if not self._asked.passed(self._wait_s):
            return
        self._asked.restart()
        now_s -= SETTLED_AFTER_S
        reached_s = self._store.history.position(COLLECTED)
        positions: Mapping[str, float] = {}
        if reached_s is not None:
            since_s = min(reached_s, now_s) - _AGAIN_S
        else:
            since_s = now_s - _DAY_S
            positions = {EARLIER: since_s}
        until_s = min(now_s, since_s + _AGAIN_S + self._span_s)
        self.caught_up = False
        self._wait_s = config.history.every_s if until_s == now_s else config.daemon.outcomes_every_s
        try:
            found = ask(since_s, until_s)
            self._entry.add(found.jobs, config.history, {COLLECTED: until_s, **positions})
        except (SlurmError, HistoryError) as err:
            self._failures += 1
            self._wait_s = wait_s_after(self._failures, config.history.every_s)
            self._span_s = shorter_span_s(self._span_s)
            self._counters["history_errors"] += 1
            _log.warning("cannot add past jobs, trying again in %d s: %s", self._wait_s, err)
            return
        self.caught_up = until_s == now_s
        self._failures = 0
        self._span_s = next_span_s(self._span_s, found.characters)
