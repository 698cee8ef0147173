"""Adds past jobs to the store: in the sizes that their users asked for, under the names that the site wants."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from rlalloc.config import HistorySection
from rlalloc.history import Pseudonyms
from rlalloc.history.as_requested import as_requested
from rlalloc.past_job import PastJob
from rlalloc.store import Store


class PastJobEntry:
    """Adds past jobs to the store, each once. Counts ``past_jobs``."""

    def __init__(self, store: Store, counters: Counter[str]) -> None:
        self._store = store
        self._counters = counters
        self._key: tuple[Path, Pseudonyms] | None = None

    def add(self, jobs: Sequence[PastJob], section: HistorySection, positions: Mapping[str, float]) -> None:
        """Add jobs, and with them how far sources have been read. Raises HistoryError, StoreError."""
        named = self._disguised(as_requested(jobs, self._store), section)
        self._counters["past_jobs"] += self._store.history.add(named, positions)

    def _disguised(self, jobs: Sequence[PastJob], section: HistorySection) -> Sequence[PastJob]:
        """The jobs as the site wants them stored. Raises HistoryError."""
        if not section.pseudonymize:
            return jobs
        if self._key is None or self._key[0] != section.key_file:
            self._key = section.key_file, Pseudonyms(section.key_file)
        return [self._key[1].of(job) for job in jobs]
