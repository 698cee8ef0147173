"""Rounds of pending re-decisions: when they are due, and in which situation the agent was last asked about a job."""

import logging
import time
from collections import Counter
from collections.abc import Callable

from rlalloc.config import Config
from rlalloc.store import Decision, Store
from rlallocd.agent_client import AgentClient, AgentUnavailable
from rlallocd.candidates import Candidate, find_redecision_candidates
from rlallocd.decisions import Snapshot
from rlallocd.interval import Interval
from rlallocd.redecision import JobKey, redecide
from rlallocd.redecision_rules import Situation

_log = logging.getLogger(__name__)


class RedecisionRounds:
    """Decides pending jobs again that were let go and wait for resources.

    The memory of situations only saves questions: how often a job was updated, and which sizes it had, is in the
    store.
    """

    def __init__(
        self,
        store: Store,
        agent: AgentClient,
        counters: Counter[str],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``clock`` [s] paces the rounds."""
        self._store = store
        self._agent = agent
        self._counters = counters
        self._last_round = Interval(clock)
        self._asked: dict[JobKey, Situation] = {}

    def decide(self, snapshot: Snapshot, config: Config) -> tuple[tuple[Candidate, Decision], ...]:
        """Decisions for pending jobs that another size serves better; none before ``redecision.every_s`` has passed.

        Without the agent all jobs keep their sizes. Raises StoreError.
        """
        section = config.redecision
        if not section.max_updates or not self._last_round.passed(section.every_s):
            return ()
        self._last_round.restart()
        pending = find_redecision_candidates(snapshot.jobs, config, snapshot.taken_s)
        keys = {candidate.key for candidate in pending}
        self._asked = {key: situation for key, situation in self._asked.items() if key in keys}
        if not pending:
            return ()
        histories = self._store.histories(keys)
        try:
            again = redecide(pending, histories, self._asked, snapshot, config, self._agent)
        except AgentUnavailable as err:
            self._counters["redecision_unanswered"] += 1
            _log.warning("pending jobs keep their sizes: %s", err)
            return ()
        self._asked.update(again.asked)
        self._counters["redecision_asked"] += len(again.asked)
        self._counters["redecision_updated"] += len(again.decided)
        return again.decided
