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
        self._unwritten: dict[int, tuple[Application, ApplicationState, float, str]] = {}
        """What was noted last of entries while the store failed."""

    @property
    def open_jobs(self) -> frozenset[int]:
        """Ids of jobs with an open entry, known without the store."""
        return frozenset(each.job_id for each in self._open.values())

    @property
    def open_entries(self) -> tuple[Application, ...]:
        """The open entries, known without the store, oldest first."""
        return tuple(self._open.values())

    def take_up(self, applications: Sequence[Application]) -> tuple[Application, ...]:
        """Remember what the store has just said is open; returns those that still are. Tells it what it missed."""
        if not self._store_answers:
            return self.open_entries
        self._open = {application.id: application for application in applications}
        # Another controller may have ended some meanwhile.
        self._unwritten = {number: note for number, note in self._unwritten.items() if number in self._open}
        for application, state, _, detail in self._unwritten.values():
            self._remember([application], state, detail)
        for number, (application, state, at_s, detail) in tuple(self._unwritten.items()):
            self._store.set_applications([application], state, at_s, detail)
            del self._unwritten[number]
        return self.open_entries

    def enter(self, applications: Sequence[Application]) -> tuple[Application, ...]:
        """Write intents before Slurm is touched; returns them with the ids that they got."""
        entered = self._store.journal(applications)
        self._open.update({each.id: each for each in entered})
        return entered

    def mark(self, applications: Sequence[Application], state: ApplicationState, detail: str) -> None:
        """Note how far applications have come. While the journal is left behind, the store is told later."""
        now_s = time.time()
        if self._store_answers:
            self._store.set_applications(applications, state, now_s, detail)
        else:
            self._unwritten |= {each.id: (each, state, now_s, detail) for each in applications}
        self._remember(applications, state, detail)
        if state not in OPEN_STATES:
            self._counters[f"applications_{state}"] += len(applications)

    def _remember(self, applications: Sequence[Application], state: ApplicationState, detail: str) -> None:
        if state in OPEN_STATES:
            self._open |= {
                each.id: msgspec.structs.replace(each, state=state, detail=detail) for each in applications
            }
        else:
            for application in applications:
                self._open.pop(application.id, None)

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
