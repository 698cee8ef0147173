"""Past jobs from before rlallocd's first start: read from sacct into the store, span by span, the latest first."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from rlalloc.config import Config
from rlalloc.errors import HistoryError, StoreError
from rlalloc.history.earlier_reading import EARLIER, EarlierReading, earlier_reading
from rlalloc.past_job import PastJob
from rlalloc.store import Store
from rlallocd.ended_job_collection import LONGEST_WAIT_S
from rlallocd.interval import Interval
from rlallocd.past_job_entry import PastJobEntry
from rlallocd.slurm import FIRST_SPAN_S, AnswerTooLong, EndedJobs, SlurmError, next_span_s, shorter_span_s

_log = logging.getLogger(__name__)

Ask = Callable[[float, float], EndedJobs]
_REST: Final = 10.0
"""Between two calls, slurmdbd rests at least this many times as long as the last one took."""
BATCH: Final = 1000
"""Past jobs that are added in one cycle: adding them takes about a tenth of a second."""


class _Call:
    """One question to sacct, and what became of it once ``ended``."""

    def __init__(self, ask: Ask, since_s: float, until_s: float) -> None:
        self._ask = ask
        self.since_s = since_s
        self.until_s = until_s
        self.left: list[PastJob] = []
        self.characters = 0
        self.took_s = 0.0
        self._error: Exception | None = None
        self.ended = False

    def run(self) -> None:
        """Ask, however long it takes."""
        began_s = time.monotonic()
        try:
            found = self._ask(self.since_s, self.until_s)
            self.left, self.characters = list(found.jobs), found.characters
        except Exception as err:  # noqa: BLE001 (raised again in the loop's thread)
            self._error = err
        self.took_s = time.monotonic() - began_s
        self.ended = True

    def check(self) -> None:
        """Raise what has gone wrong."""
        if self._error is not None:
            raise self._error


def _in_thread(run: Callable[[], None]) -> None:
    threading.Thread(target=run, name="earlier-jobs", daemon=True).start()


class EarlierJobs:
    """Reads back from where EndedJobCollection began to ``history.first_days`` ago.

    One call at a time, in a thread of its own: no cycle waits for it, nor does a stop. The store knows how far it is.
    ``unread_s`` is how much is left.

    Counts ``past_jobs`` and ``history_errors``.
    """

    def __init__(
        self, store: Store, counters: Counter[str], apart: Callable[[Callable[[], None]], None] = _in_thread
    ) -> None:
        self._store = store
        self._counters = counters
        self._apart = apart
        self._entry = PastJobEntry(store, counters)
        self._rested = Interval()
        self._wait_s = 0.0
        self._failures = 0
        self._span_s = FIRST_SPAN_S
        self._call: _Call | None = None
        self._told = False
        self._worth_s = 0.0
        self.unread_s = 0.0

    def collect(self, ask: Ask, config: Config, now_s: float) -> bool:
        """Go on, if it is time. What fails is logged and tried again later. Raises StoreError.

        Returns whether enough older jobs are known now to make estimates anew: each time twice as many days are
        known, and at the end.
        """
        call = self._call
        if call is None:
            if self._rested.passed(self._wait_s):
                self._begin(ask, config, now_s)
            return False
        if not call.ended:
            return False
        try:
            call.check()
            return self._add_some(call, config, now_s)
        except StoreError:
            raise  # what was not added is kept: the next cycle tries again
        except AnswerTooLong:
            self._end(shorter_span_s(self._span_s), max(config.daemon.outcomes_every_s, _REST * call.took_s))
        except (SlurmError, HistoryError) as err:
            self._failed(config)
            _log.warning("cannot read earlier past jobs, trying again in %d s: %s", self._wait_s, err)
        except Exception:
            self._failed(config)
            raise
        return False

    def _failed(self, config: Config) -> None:
        self._failures += 1
        self._counters["history_errors"] += 1
        self._end(shorter_span_s(self._span_s), min(LONGEST_WAIT_S, config.history.every_s * 2**self._failures))

    def _begin(self, ask: Ask, config: Config, now_s: float) -> None:
        """Ask for the next span, if there is one."""
        reading = self._reading(config, now_s)
        if reading is None or not self.unread_s:
            self._end(FIRST_SPAN_S, config.history.every_s)
            return
        self._tell_begin(reading)
        since_s = max(reading.goal_s, reading.reached_s - self._span_s)
        self._call = _Call(ask, since_s, reading.reached_s)
        self._apart(self._call.run)

    def _reading(self, config: Config, now_s: float) -> EarlierReading | None:
        reading = earlier_reading(self._store.history, config, now_s)
        self.unread_s = 0.0 if reading is None else reading.unread_s
        return reading

    def _tell_begin(self, reading: EarlierReading) -> None:
        if not self._told:
            self._told = True
            self._worth_s = 2 * (reading.now_s - reading.reached_s)
            _log.info("the site's past jobs are read from sacct in the background, %s", reading.describe())

    def _add_some(self, call: _Call, config: Config, now_s: float) -> bool:
        """Add a batch of a call's answer, and after the last one how far back all is read."""
        some, rest = call.left[:BATCH], call.left[BATCH:]
        self._entry.add(some, config.history, {} if rest else {EARLIER: call.since_s})
        call.left = rest
        if rest:
            return False
        self._failures = 0
        rest_s = max(config.daemon.outcomes_every_s, _REST * call.took_s)
        self._end(next_span_s(self._span_s, call.characters), rest_s)
        reading = self._reading(config, now_s)
        if reading is None or not self.unread_s:
            self._told = False
            said = "no more are wanted" if reading is None else reading.describe()
            _log.info("the site's past jobs are in the store, %s", said)
            return True
        if now_s - call.since_s < self._worth_s:
            return False
        self._worth_s = 2 * (now_s - call.since_s)
        return True

    def _end(self, span_s: float, wait_s: float) -> None:
        """The call is over: what to ask for next, and when."""
        self._call = None
        self._span_s = span_s
        self._wait_s = wait_s
        self._rested.restart()
