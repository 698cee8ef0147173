"""Reading and writing what became of decided jobs, and the experience that decisions and outcomes make."""

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from rlalloc.store.encoding import to_row
from rlalloc.store.row_access import JobKey, Position, RowAccess, later_than, parts
from rlalloc.store.rows import Decision, Experience, Outcome
from rlalloc.store.tables import DECISIONS, OUTCOMES

_EXPERIENCE: Final = (
    sa.select(DECISIONS, OUTCOMES)
    .join(OUTCOMES, OUTCOMES.c.decision_id == DECISIONS.c.id)
    .where(DECISIONS.c.observation.is_not(None), OUTCOMES.c.reward.is_not(None))
)


class JobsPage(NamedTuple):
    """Some jobs, and after which decision the next page begins; None: there are no more."""

    jobs: tuple[JobKey, ...]
    after: Position | None


class OutcomeAccess(RowAccess):
    """Which decided jobs have ended, and how. Raises StoreError."""

    def jobs_without_outcome(
        self, since_s: float, *, besides: Collection[JobKey] = (), after: Position | None = None, limit: int = 1000
    ) -> JobsPage:
        """At most ``limit`` jobs decided since ``since_s`` that are not known to have ended, oldest decision first.

        ``besides`` are jobs that are known not to have ended. ``after`` is where the page before this one ended.
        """
        read = sa.select(DECISIONS.c.job_id, DECISIONS.c.submitted_s, DECISIONS.c.decided_s, DECISIONS.c.id)
        query = (
            read.where(DECISIONS.c.awaits_outcome == 1, DECISIONS.c.decided_s >= since_s, later_than(after))
            .order_by(DECISIONS.c.decided_s, DECISIONS.c.id)
            .limit(rows := limit + len(besides))
        )
        with self._database.reading() as connection:
            found = connection.execute(query).all()
        jobs: dict[JobKey, None] = {}
        for job_id, submitted_s, decided_s, decision_id in found:
            if (job_id, int(submitted_s)) not in besides:
                jobs[job_id, int(submitted_s)] = None
            if len(jobs) == limit:
                return JobsPage(tuple(jobs), (decided_s, decision_id))
        return JobsPage(tuple(jobs), (found[-1].decided_s, found[-1].id) if len(found) == rows else None)

    def add_outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """Write outcomes, all or none; one that is there already stays (an older rlalloc may have written it)."""
        if not outcomes:
            return
        jobs = sa.select(DECISIONS.c.job_id, DECISIONS.c.submitted_s)
        ended = sa.update(DECISIONS).where(
            DECISIONS.c.job_id == sa.bindparam("of_job"), DECISIONS.c.submitted_s == sa.bindparam("of_submission")
        )
        with self._database.writing() as connection:
            for some in parts(outcomes):
                ids = [outcome.decision_id for outcome in some]
                there = set(
                    connection.scalars(sa.select(OUTCOMES.c.decision_id).where(OUTCOMES.c.decision_id.in_(ids)))
                )
                if new := [to_row(outcome) for outcome in some if outcome.decision_id not in there]:
                    connection.execute(sa.insert(OUTCOMES), new)
                of = [
                    {"of_job": job_id, "of_submission": submitted_s}
                    for job_id, submitted_s in connection.execute(jobs.where(DECISIONS.c.id.in_(ids)))
                ]
                connection.execute(ended.values(awaits_outcome=0), of)

    def outcome(self, decision_id: str) -> Outcome | None:
        """The outcome of a decision, or None while there is none."""
        return self.outcomes([decision_id]).get(decision_id)

    def outcomes(self, decision_ids: Sequence[str]) -> dict[str, Outcome]:
        """The outcomes of decisions, by decision; nothing for one that has none."""
        queries = (sa.select(OUTCOMES).where(OUTCOMES.c.decision_id.in_(some)) for some in parts(decision_ids))
        return {outcome.decision_id: outcome for query in queries for outcome in self._rows(query, Outcome)}

    def experience(self) -> tuple[Experience, ...]:
        """All decisions with an observation whose outcome has a reward, in the order of decision."""
        return self._pairs(_EXPERIENCE.order_by(DECISIONS.c.decided_s))

    def experience_between(self, since_s: float, until_s: float, *, limit: int) -> tuple[Experience, ...]:
        """Likewise of jobs decided from ``since_s`` to before ``until_s``: the last ``limit`` of them."""
        between = _EXPERIENCE.where(DECISIONS.c.decided_s >= since_s, DECISIONS.c.decided_s < until_s)
        return self._pairs(between.order_by(DECISIONS.c.decided_s.desc()).limit(limit))[::-1]

    def ends_of_our_doing(self, since_s: float) -> tuple[Experience, ...]:
        """Decisions with outcomes that were our doing, of jobs that ended since ``since_s``, oldest first."""
        query = (
            sa.select(DECISIONS, OUTCOMES)
            .join(OUTCOMES, OUTCOMES.c.decision_id == DECISIONS.c.id)
            .where(OUTCOMES.c.our_doing.is_not(None), OUTCOMES.c.ended_s >= since_s)
            .order_by(OUTCOMES.c.ended_s)
        )
        return self._pairs(query)

    def _pairs(self, query: sa.Select[Any]) -> tuple[Experience, ...]:
        with self._database.reading() as connection:
            rows = connection.execute(query).mappings()
            pairs = ((self._from_row(row, Decision), self._from_row(row, Outcome)) for row in rows)
            return tuple(
                Experience(decision=decision, outcome=outcome)
                for decision, outcome in pairs
                if decision is not None and outcome is not None
            )
