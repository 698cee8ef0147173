"""Families that go back to their requests: the kills in the store, and those that are seen as outcomes come in."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, cast

from rlalloc.errors import RlallocError
from rlalloc.past_job import PastJob
from rlalloc.store import Decision, JobHistory, Outcome, Store
from rlalloc.usage.family_kills import Cause, FamilyKills, Kill

_log = logging.getLogger(__name__)

_REMEMBERED_S: Final = 90 * 86_400.0


class KillsOfOurs:
    """Adds kills to ``kills``, at first those in the store; ``named`` gives names as past jobs have them.

    Counts them as ``our_doing`` by cause.
    """

    def __init__(
        self, store: Store, kills: FamilyKills, counters: Counter[str], named: Callable[[PastJob], PastJob]
    ) -> None:
        self._kills = kills
        self._counters = counters
        self._named = named
        for each in store.ends_of_our_doing(time.time() - _REMEMBERED_S):
            self._add(each.decision, each.outcome)

    def learn(self, jobs: Iterable[JobHistory], outcomes: Iterable[Outcome]) -> None:
        """Take up what was our doing among new outcomes."""
        decisions = {decision.id: decision for job in jobs for decision in job.decisions}
        for outcome in outcomes:
            if outcome.our_doing is None:
                continue
            decision = decisions[outcome.decision_id]
            self._counters[f"our_doing_{outcome.our_doing}"] += 1
            _log.warning(
                "job %d of %s ended by %s in a size that rlalloc chose: jobs of this user and name keep their "
                "requests until some have completed; `rlalloc explain %d` shows what was decided",
                decision.job_id,
                decision.user,
                outcome.our_doing,
                decision.job_id,
            )
            self._add(decision, outcome)

    def _add(self, decision: Decision, outcome: Outcome) -> None:
        kill = Kill(decision.job_id, cast(Cause, outcome.our_doing), outcome.ended_s, outcome.gpus)
        try:
            known_as = self._named(_as_past_job(decision, outcome))
        except RlallocError as err:  # no key for pseudonyms: then nothing is known of any job, and none is trimmed
            _log.warning("cannot remember the end of job %d: %s", decision.job_id, err)
            return
        self._kills.add(known_as.user, known_as.name, kill)


def _as_past_job(decision: Decision, outcome: Outcome) -> PastJob:
    return PastJob(
        job_id=str(decision.job_id),
        user=decision.user,
        account=decision.account,
        name=decision.job_name,
        submitted_s=decision.submitted_s,
        started_s=outcome.started_s or outcome.ended_s,
        ended_s=outcome.ended_s,
        state=outcome.state,
        nodes=outcome.nodes,
        cpus=outcome.cpus,
    )
