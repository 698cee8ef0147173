"""The journal of updates: the store's table ``applications``, and what is known of it while the store fails."""

import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from rlalloc.store import OPEN_STATES, Application, ApplicationState, Store


class Journal:
    """Entries are open until they are marked with an end; those are remembered, too. Methods raise StoreError."""

    def __init__(self, store: Store, counters: Counter[str]) -> None:
        """``counters`` counts entries that have ended as ``applications_<state>``."""
        self._store = store
        self._counters = counters
        self._open = {each.id: each for each in store.open_applications()}
        self._store_answers = True

    @property
    def open_jobs(self) -> frozenset[int]:
        """Ids of jobs with an open entry, known without the store."""
        return frozenset(each.job_id for each in self._open.values())

    @property
    def open_entries(self) -> tuple[Application, ...]:
        """The open entries, known without the store, oldest first."""
        return tuple(self._open.values())

    def take_up(self, applications: Sequence[Application]) -> None:
        """Remember what the store has just said is open."""
        self._open = {application.id: application for application in applications}

    def enter(self, applications: Sequence[Application]) -> tuple[Application, ...]:
        """Write intents before Slurm is touched; returns them with the ids that they got."""
        entered = self._store.journal(applications)
        self._open.update({each.id: each for each in entered})
        return entered

    def mark(self, applications: Sequence[Application], state: ApplicationState, detail: str) -> None:
        """Note how far applications have come; nothing is noted while the journal is left behind."""
        if not self._store_answers:
            return
        self._store.set_applications(applications, state, time.time(), detail)
        if state in OPEN_STATES:
            self._open |= {
                each.id: msgspec.structs.replace(each, state=state, detail=detail) for each in applications
            }
        else:
            for application in applications:
                self._open.pop(application.id, None)
            self._counters[f"applications_{state}"] += len(applications)

    def state_of(self, application: Application) -> ApplicationState:
        """The state of an entry now."""
        entries = self._store.applications(application.decision_id)
        return next(each.state for each in entries if each.id == application.id)

    @contextlib.contextmanager
    def left_behind(self) -> Iterator[None]:
        """Write nothing meanwhile: the store fails, and jobs matter more."""
        self._store_answers = False
        try:
            yield
        finally:
            self._store_answers = True
