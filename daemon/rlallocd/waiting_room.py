"""Looking at the jobs that wait, now and then, and remembering in which situation each was last asked about."""

import logging
import time
from collections import Counter
from collections.abc import Callable

from rlalloc.config import Config
from rlalloc.store import Decision, Store
from rlallocd.agent_client import AgentClient, AgentUnavailable
from rlallocd.candidates import Candidate, find_waiting
from rlallocd.decide import Snapshot
from rlallocd.decide_again import JobKey, decide_again
from rlallocd.interval import Interval
from rlallocd.waiting import Situation

_log = logging.getLogger(__name__)


class WaitingRoom:
    """The jobs that were decided and let go, and wait for resources.

    What is remembered only saves questions: how often a job was updated, and in which sizes, is in the store.
    """

    def __init__(
        self,
        store: Store,
        agent: AgentClient,
        counters: Counter[str],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``clock`` [s] paces the looks."""
        self._store = store
        self._agent = agent
        self._counters = counters
        self._looked = Interval(clock)
        self._asked: dict[JobKey, Situation] = {}

    def decide(self, snapshot: Snapshot, config: Config) -> tuple[tuple[Candidate, Decision], ...]:
        """Decisions for waiting jobs that another size serves better, every ``waiting.every_s``. Raises StoreError.

        Without the agent they stay as they are.
        """
        section = config.waiting
        if not section.max_updates or not self._looked.passed(section.every_s):
            return ()
        self._looked.restart()
        waiting = find_waiting(snapshot.jobs, config, snapshot.taken_s)
        keys = {candidate.key for candidate in waiting}
        self._asked = {key: situation for key, situation in self._asked.items() if key in keys}
        if not waiting:
            return ()
        histories = self._store.histories(keys)
        try:
            again = decide_again(waiting, histories, self._asked, snapshot, config, self._agent)
        except AgentUnavailable as err:
            self._counters["waiting_unanswered"] += 1
            _log.warning("waiting jobs stay as they are: %s", err)
            return ()
        self._asked.update(again.asked)
        self._counters["waiting_asked"] += len(again.asked)
        self._counters["waiting_updated"] += len(again.decided)
        return again.decided
