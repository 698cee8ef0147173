"""Past jobs as they end, ours or not: sacct's answers by time of end, into the store."""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from rlalloc.config import Config
from rlalloc.errors import HistoryError
from rlalloc.history import Pseudonyms
from rlalloc.history.as_requested import as_requested
from rlalloc.past_job import PastJob
from rlalloc.store import Store
from rlallocd.interval import Interval
from rlallocd.slurm import FIRST_SPAN_S, EndedJobs, SlurmError, next_span_s, shorter_span_s

_log = logging.getLogger(__name__)

_SOURCE: Final = "rlallocd"
_DAY_S: Final = 86400.0
_AGAIN_S: Final = 600.0
"""An end may reach slurmdbd late: these last seconds are asked for again."""
SETTLED_AFTER_S: Final = 30.0
"""Of a job that has just ended slurmdbd may not know all yet: 22.05 calls it "allocation" at first."""
_LONGEST_WAIT_S: Final = 3600.0


class EndedJobCollection:
    """Asks for what ended since it last asked, ``history.every_s`` apart.

    After a downtime it catches up, an hour and later up to a day a call, one every ``daemon.outcomes_every_s``. At
    first it begins a day ago: ``rlalloc history import`` brings what is older.

    Counts ``past_jobs`` and ``history_errors``.
    """

    def __init__(self, store: Store, counters: Counter[str]) -> None:
        self._store = store
        self._counters = counters
        self._asked = Interval()
        self._wait_s = 0.0
        self._failures = 0
        self._span_s = FIRST_SPAN_S
        self._key: tuple[Path, Pseudonyms] | None = None

    def collect(self, ask: Callable[[float, float], EndedJobs], config: Config, now_s: float) -> None:
        """Ask, if it is time. What fails is logged and tried again later. Raises StoreError."""
        if not self._asked.passed(self._wait_s):
            return
        self._asked.restart()
        now_s -= SETTLED_AFTER_S
        reached_s = self._store.history.position(_SOURCE)
        since_s = now_s - _DAY_S if reached_s is None else min(reached_s, now_s) - _AGAIN_S
        until_s = min(now_s, since_s + _AGAIN_S + self._span_s)
        self._wait_s = config.history.every_s if until_s == now_s else config.daemon.outcomes_every_s
        try:
            found = ask(since_s, until_s)
            jobs = self._disguised(as_requested(found.jobs, self._store), config)
        except (SlurmError, HistoryError) as err:
            self._failures += 1
            self._wait_s = min(_LONGEST_WAIT_S, config.history.every_s * 2**self._failures)
            self._span_s = shorter_span_s(self._span_s)
            self._counters["history_errors"] += 1
            _log.warning("cannot add past jobs, trying again in %d s: %s", self._wait_s, err)
            return
        self._failures = 0
        self._span_s = next_span_s(self._span_s, found.characters)
        self._counters["past_jobs"] += self._store.history.add(jobs, {_SOURCE: until_s})

    def _disguised(self, jobs: Sequence[PastJob], config: Config) -> Sequence[PastJob]:
        """The jobs as the site wants them stored. Raises HistoryError."""
        section = config.history
        if not section.pseudonymize:
            return jobs
        if self._key is None or self._key[0] != section.key_file:
            self._key = section.key_file, Pseudonyms(section.key_file)
        return [self._key[1].of(job) for job in jobs]
