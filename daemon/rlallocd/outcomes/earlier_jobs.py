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
from rlallocd.knowledge.site_predictor import PAST_S
from rlallocd.outcomes.ended_job_collection import wait_s_after
from rlallocd.outcomes.past_job_entry import PastJobEntry
from rlallocd.process.interval import Interval
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
        self._error: Exception | None = RuntimeError("the thread that asks sacct was ended")
        self.ended = False

    def run(self) -> None:
        """Ask, however long it takes."""
        began_s = time.monotonic()
        try:
            found = self._ask(self.since_s, self.until_s)
            self.left, self.characters = list(found.jobs), found.characters
            self._error = None
        except Exception as err:  # noqa: BLE001 (raised again in the loop's thread)
            self._error = err
        finally:
            self.took_s = time.monotonic() - began_s
            self.ended = True

    def check(self) -> None:
        """Raise what has gone wrong."""
        if self._error is not None:
            raise self._error


def _in_thread(run: Callable[[], None]) -> None:
    threading.Thread(target=run, name="earlier-jobs", daemon=True).start()


class EarlierJobs:
    """Reads back from where EndedJobCollection began to ``history.first_days`` ago, or to where an import ended.

    One call at a time, in a thread of its own: no cycle waits for it, nor does a stop. The store knows how far it is.
    ``unread_s`` is how much is left.

    Counts ``past_jobs`` and ``history_errors``.
    """

    def __init__(
        self,
        store: Store,
        counters: Counter[str],
        unread_s: float,
        apart: Callable[[Callable[[], None]], None] = _in_thread,
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
        self._reading: EarlierReading | None = None
        self._taken_up_s = 0.0
        self.unread_s = unread_s

    def collect(self, ask: Ask, config: Config, now_s: float) -> bool:
        """Go on, if it is time. What fails is logged and tried again later. Raises StoreError.

        Returns whether enough older jobs are known now to make estimates anew: each time twice as many days are
        known, and at the end, but not for jobs that ended too long ago to be used.
        """
        if not self._rested.passed(self._wait_s):
            return False
        call = self._call
        if call is None:
            return self._begin(ask, config, now_s)
        if not call.ended:
            return False
        try:
            call.check()
        except AnswerTooLong:
            self._end(shorter_span_s(self._span_s), max(config.daemon.outcomes_every_s, _REST * call.took_s))
            return False
        except (SlurmError, HistoryError) as err:
            self._failed(config, err)
            return False
        except Exception as err:
            self._failed(config, err)
            raise
        return self._add_some(call, config, now_s)

    def _begin(self, ask: Ask, config: Config, now_s: float) -> bool:
        """Ask for the next span, if there is one. Returns as ``collect`` does."""
        reading = earlier_reading(self._store.history, config, now_s)
        self.unread_s = 0.0 if reading is None else reading.unread_s
        if reading is None or not self.unread_s:
            self._end(FIRST_SPAN_S, config.history.every_s)
            return self._is_over(reading, now_s)
        if self._reading is None:
            self._taken_up_s = reading.reached_s
            _log.info("the site's past jobs are read from sacct in the background, %s", reading.describe())
        self._reading = reading
        call = _Call(ask, max(reading.goal_s, reading.reached_s - self._span_s), reading.reached_s)
        try:
            self._apart(call.run)
        except RuntimeError as err:  # no thread can be started
            self._failed(config, err)
        else:
            self._call = call
        return False

    def _is_over(self, reading: EarlierReading | None, now_s: float) -> bool:
        """Nothing is left. Returns as ``collect`` does."""
        last, self._reading = self._reading, None
        if last is None:
            return False
        said = "no more are wanted" if reading is None else reading.describe()
        _log.info("the site's past jobs are in the store, %s", said)
        return last.reached_s < self._taken_up_s and now_s - self._taken_up_s < PAST_S

    def _add_some(self, call: _Call, config: Config, now_s: float) -> bool:
        """Add a batch of a call's answer, and after the last one how far back all is read.

        If the store or the key of the pseudonyms fails, nothing is lost: the call is kept and added later.
        """
        some, rest = call.left[:BATCH], call.left[BATCH:]
        try:
            self._entry.add(some, config.history, {} if rest else {EARLIER: call.since_s})
        except StoreError:
            raise
        except HistoryError as err:
            self._wait_longer(config, err)
            return False
        except Exception as err:
            self._failed(config, err)
            raise
        call.left = rest
        if rest:
            return False
        self._failures = 0
        rest_s = max(config.daemon.outcomes_every_s, _REST * call.took_s)
        self._end(next_span_s(self._span_s, call.characters), rest_s)
        return self._is_worth_it(call.since_s, now_s)

    def _is_worth_it(self, reached_s: float, now_s: float) -> bool:
        """Whether twice as many days are known as were taken up last, of those that count."""
        if self._reading is not None:
            self._reading = self._reading._replace(now_s=now_s, reached_s=reached_s)
            self.unread_s = self._reading.unread_s
        taken_up_s = now_s - self._taken_up_s
        if taken_up_s >= PAST_S or now_s - reached_s < min(2 * taken_up_s, PAST_S):
            return False
        self._taken_up_s = reached_s
        return True

    def _failed(self, config: Config, err: Exception) -> None:
        self._end(shorter_span_s(self._span_s), 0.0)
        self._wait_longer(config, err)

    def _wait_longer(self, config: Config, err: Exception) -> None:
        self._failures += 1
        self._counters["history_errors"] += 1
        self._wait_s = wait_s_after(self._failures, config.history.every_s)
        self._rested.restart()
        _log.warning("cannot read earlier past jobs, trying again in %d s: %s", self._wait_s, err)

    def _end(self, span_s: float, wait_s: float) -> None:
        """The call is over: what to ask for next, and when."""
        self._call = None
        self._span_s = span_s
        self._wait_s = wait_s
        self._rested.restart()
