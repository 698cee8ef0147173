"""Deleting decisions and past jobs that the store is to keep no longer, some at a time.

A clock that is years ahead would make every row look too old. So rows are deleted only while the store also has rows
that are some days to some weeks old: only time that really passes brings those.
"""

import logging
from collections import Counter
from collections.abc import Collection
from typing import Final

from rlalloc.config import StoreSection
from rlalloc.store import JobKey, OldDecision, Position, Store

_log = logging.getLogger(__name__)

_DAY_S: Final = 86400.0
_KNOWN_FROM_DAYS: Final = 30
_KNOWN_TO_DAYS: Final = 7
"""Something must have happened in this span before now. A clock that is further ahead deletes nothing until it has
been ahead for a week."""
BATCH: Final = 500


class Retention:
    """Goes through old decisions in the order of time, BATCH a call, and then again from the first.

    Counts ``dropped_decisions`` and ``dropped_past_jobs``. With a decision go its entries in the journal and its
    outcome.
    """

    def __init__(self, store: Store, counters: Counter[str]) -> None:
        self._store = store
        self._counters = counters
        self._after: Position | None = None
        self._told = False

    def drop_old(self, section: StoreSection, now_s: float, queued: Collection[JobKey]) -> None:
        """Delete those of the next batches that may go; ``queued`` jobs wait or run. Raises StoreError."""
        since_s, until_s = now_s - _DAY_S * _KNOWN_FROM_DAYS, now_s - _DAY_S * _KNOWN_TO_DAYS
        if self._store.has_decided(since_s, until_s) or self._store.history.has_ended(since_s, until_s):
            self._told = False
            self._drop(section, now_s, queued)
        elif not self._told and self._has_old(section, now_s):
            self._told = True
            _log.warning(
                "no old rows are deleted: the store has none from %d to %d days ago; is this machine's clock right?",
                _KNOWN_TO_DAYS,
                _KNOWN_FROM_DAYS,
            )

    def _has_old(self, section: StoreSection, now_s: float) -> bool:
        decided_s = now_s - _DAY_S * min(section.keep_days, section.keep_experience_days)
        ended_s = now_s - _DAY_S * section.keep_history_days
        return self._store.has_decided(0.0, decided_s) or self._store.history.has_ended(0.0, ended_s)

    def _drop(self, section: StoreSection, now_s: float, queued: Collection[JobKey]) -> None:
        oldest_kept_s = now_s - _DAY_S * min(section.keep_days, section.keep_experience_days)
        found = self._store.old_decisions(oldest_kept_s, after=self._after, limit=BATCH)
        gone = [each.id for each in found if may_go(each, section, now_s, queued)]
        self._store.delete_decisions(gone)
        self._counters["dropped_decisions"] += len(gone)
        self._counters["dropped_past_jobs"] += self._store.history.drop_before(
            now_s - _DAY_S * section.keep_history_days, limit=BATCH
        )
        self._after = (found[-1].decided_s, found[-1].id) if len(found) == BATCH else None


def may_go(decision: OldDecision, section: StoreSection, now_s: float, queued: Collection[JobKey]) -> bool:
    """Whether nobody needs a decision: it is older than the site keeps it, and nothing is open for its job."""
    days = section.keep_experience_days if decision.is_experience else section.keep_days
    return decision.decided_s < now_s - days * _DAY_S and not decision.is_open and decision.job not in queued
