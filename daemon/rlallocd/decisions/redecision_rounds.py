"""When pending jobs are decided again: after resources were freed, and every ``redecision.every_s``."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from rlalloc.config import Config
from rlalloc.store import Decision, Store
from rlallocd.decisions.agent_client import AgentClient, AgentUnavailable
from rlallocd.decisions.decisions import Snapshot
from rlallocd.decisions.redecision import JobKey, redecide
from rlallocd.decisions.redecision_rules import Situation
from rlallocd.process.interval import Interval
from rlallocd.slurm import JobRecord
from rlallocd.submissions.candidates import Candidate, find_redecision_candidates

_log = logging.getLogger(__name__)

_PART_OF_CORE: Final = 0.02
"""The largest part of a core that rounds take."""


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
        complete: Callable[[Sequence[Candidate], Config], Sequence[Candidate]] = lambda candidates, _: candidates,
        *,
        progress: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        processor_clock: Callable[[], float] = time.process_time,
    ) -> None:
        """``complete`` adds what the tags lack. ``progress`` is called after each question. Clocks tell seconds."""
        self._store = store
        self._complete = complete
        self._agent = agent
        self._progress = progress
        self._counters = counters
        self._last_round = Interval(clock)
        self._processor_clock = processor_clock
        self._freed = False
        self._rest_s = 0.0
        self._held: frozenset[int] = frozenset()
        self._usable: frozenset[str] = frozenset()
        self._asked: dict[JobKey, Situation] = {}

    def decide(self, snapshot: Snapshot, config: Config) -> tuple[tuple[Candidate, Decision], ...]:
        """Decisions for pending jobs that another size serves better, once resources were freed.

        They are freed when a job ends or a node comes back between two snapshots; without that a round is due after
        ``redecision.every_s``. After a round that took much processor time, as on a large site, the next one waits,
        but no longer than that. Without the agent, and until all nodes have reported to a slurmctld that has just
        started, all jobs keep their sizes. Raises StoreError.
        """
        section = config.redecision
        self._freed |= self._resources_freed(snapshot)
        wait_s = min(self._rest_s, section.every_s) if self._freed else section.every_s
        if not section.max_updates or not self._last_round.passed(wait_s):
            return ()
        if snapshot.awaited:  # sizes would be chosen for the nodes that have reported first
            return ()
        self._last_round.restart()
        self._freed = False
        began_s = self._processor_clock()
        try:
            return self._round(snapshot, config)
        finally:
            self._rest_s = (self._processor_clock() - began_s) / _PART_OF_CORE

    def _round(self, snapshot: Snapshot, config: Config) -> tuple[tuple[Candidate, Decision], ...]:
        def reaches(job: JobRecord) -> bool:  # found out only where a job of ours waits
            return snapshot.views(config).backfill.reaches(job)

        pending = find_redecision_candidates(snapshot.jobs, config, snapshot.taken_s, reaches)
        keys = {candidate.key for candidate in pending}
        self._asked = {key: situation for key, situation in self._asked.items() if key in keys}
        if not pending:
            return ()
        pending = tuple(self._complete(pending, config))
        histories = self._store.histories(keys)
        before = dict(self._asked)
        try:
            decided = redecide(pending, histories, self._asked, snapshot, config, self._agent, self._progress)
        except AgentUnavailable as err:
            self._counters["redecision_unanswered"] += 1
            _log.warning("pending jobs keep their sizes: %s", err)
            self._asked = before
            return ()
        self._counters["redecision_asked"] += sum(before.get(key) != now for key, now in self._asked.items())
        self._counters["redecision_updated"] += len(decided)
        return tuple(decided)

    def _resources_freed(self, snapshot: Snapshot) -> bool:
        """Whether a job has ended or a node has come back since the last snapshot."""
        held = frozenset(job.job_id for job in snapshot.jobs if job.running)
        usable = frozenset(node.name for node in snapshot.nodes if node.usable)
        freed = bool(self._held - held or usable - self._usable)
        self._held, self._usable = held, usable
        return freed
