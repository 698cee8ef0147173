"""What became of decided jobs that left the queue: asked of sacct, and kept."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Final

from rlalloc.config import Config
from rlalloc.errors import PluginError
from rlalloc.store import Position, Store
from rlallocd.outcomes.kills_of_ours import KillsOfOurs
from rlallocd.outcomes.outcomes import outcomes_of
from rlallocd.outcomes.retention import Retention
from rlallocd.process.interval import Interval
from rlallocd.slurm import JOBS_PER_CALL, AccountingRecord

_log = logging.getLogger(__name__)

Accounting = Callable[[Sequence[int], float], Sequence[AccountingRecord]]
"""Sacct's records of these job ids, since an epoch second."""
_WAIT_FOR_OUTCOMES_FOR_S: Final = 90 * 86400.0
"""rlalloc no longer asks for a job that slurmdbd does not report as ended by then (because it was purged, say)."""


class OutcomeCollection:
    """Collects outcomes every ``daemon.outcomes_every_s``, a page of jobs at a time, and forgets old decisions.

    ``kills`` learns what was our doing among them.
    """

    def __init__(self, store: Store, counters: Counter[str], kills: KillsOfOurs) -> None:
        self._store = store
        self._kills = kills
        self._counters = counters
        self._retention = Retention(store, counters)
        self._read = Interval()
        self._after: Position | None = None

    def collect(
        self, queued_now: Callable[[], Collection[tuple[int, int]]], config: Config, accounting: Accounting
    ) -> None:
        """Ask for the next page if that is due. ``queued_now`` says which jobs are pending or running still.

        Raises SlurmError and StoreError.
        """
        if not self._read.passed(config.daemon.outcomes_every_s):
            return
        self._read.restart()
        now_s, queued = time.time(), queued_now()
        self._retention.drop_old(config.store, now_s, queued)
        page = self._store.jobs_without_outcome(now_s - _WAIT_FOR_OUTCOMES_FOR_S, besides=queued, after=self._after)
        self._after = page.after
        histories = self._store.histories(page.jobs)
        if not histories:
            return
        job_ids = sorted({job_id for job_id, _ in histories})
        since_s = min(submitted_s for _, submitted_s in histories)
        records: list[AccountingRecord] = []
        for first in range(0, len(job_ids), JOBS_PER_CALL):
            records += accounting(job_ids[first : first + JOBS_PER_CALL], since_s)
        outcomes = outcomes_of(histories.values(), records, config.objective, self._plugin_failed)
        self._store.add_outcomes(outcomes)
        self._counters.update(f"outcomes_{outcome.state}" for outcome in outcomes)
        self._kills.learn(histories.values(), outcomes)

    def _plugin_failed(self, err: PluginError) -> None:
        self._counters["plugin_errors"] += 1
        _log.error("cannot compute the reward of outcomes: %s", err)
