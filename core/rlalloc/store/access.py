"""Reading and writing the store."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import sqlalchemy as sa

from rlalloc.errors import StoreError
from rlalloc.observation import FEATURES, SCHEMA_ID
from rlalloc.store.database import Database
from rlalloc.store.decided_jobs import DecidedJobs
from rlalloc.store.encoding import Row, UnreadableRow, from_row, to_row
from rlalloc.store.migrate import is_current, migrate, refuse_to_migrate
from rlalloc.store.past_jobs_access import History
from rlalloc.store.rows import (
    OPEN_STATES,
    Application,
    ApplicationState,
    Decision,
    Experience,
    JobHistory,
    Outcome,
    PolicyRow,
)
from rlalloc.store.tables import APPLICATIONS, DECISIONS, FEATURE_SETS, OUTCOMES, PAST_JOBS, POLICIES
from rlalloc.store.unreadable_rows import UnreadableRows

Each = TypeVar("Each")

_IDS_PER_QUERY: Final = 500

JobKey = tuple[int, int]
"""Job id and submit second: Slurm may use an id for several jobs."""
Position = tuple[float, str]
"""A decision in the order of time: when it was taken, and its id."""


class JobsPage(NamedTuple):
    """Some jobs, and after which decision the next page begins; None: there are no more."""

    jobs: tuple[JobKey, ...]
    after: Position | None


class OldDecision(NamedTuple):
    """What is asked about a decision before it is deleted."""

    id: str
    job: JobKey
    decided_s: float
    is_experience: bool
    is_open: bool


class Store:
    """The store at ``url``. Every method raises StoreError if the database fails.

    A program that writes creates the store, or migrates it. One that reads (``read_only``) does neither: it raises
    StoreMissing where there is none yet, and StoreError for one of another rlalloc.

    ``history`` has the jobs of the site that have ended, whoever decided their sizes. ``sizes`` has what was
    asked, decided and applied, for reports.

    A row that cannot be read raises UnreadableRow. With ``skip_unreadable`` it is left out: ``unreadable`` counts
    such rows, and the log has one line for each fault.
    """

    def __init__(self, url: str, *, read_only: bool = False, skip_unreadable: bool = False) -> None:
        self._database = Database(url, read_only=read_only)
        self._unreadable = UnreadableRows(self._database.name, skip=skip_unreadable)
        self.history = History(self._database, self._unreadable)
        self.sizes = DecidedJobs(self._database, self._unreadable)
        try:
            with self._database.reading() as connection:
                current = is_current(connection, self._database.name)
                if read_only and not current:
                    refuse_to_migrate(connection, self._database.name)
            if not current:
                with self._database.alone(), self._database.writing() as connection:
                    migrate(connection, self._database.name)
        except StoreError:
            self.close()
            raise

    def close(self) -> None:
        """Close all connections."""
        self._database.close()

    @property
    def unreadable(self) -> int:
        """How many rows were left out since they cannot be read, each counted once."""
        return self._unreadable.number

    def add_decisions(self, decisions: Sequence[Decision]) -> None:
        """Write decisions, all or none, and the names of their features if those are new here."""
        if not decisions:
            return
        with self._database.writing() as connection:
            _name_features(connection)
            connection.execute(sa.insert(DECISIONS), [to_row(decision) for decision in decisions])

    def feature_names(self) -> dict[int, tuple[str, ...]]:
        """What the features of decisions are called, by ``Decision.observation_schema``."""
        with self._database.reading() as connection:
            return {
                number: msgspec.json.decode(names, type=tuple[str, ...])
                for number, names in connection.execute(sa.select(FEATURE_SETS.c.id, FEATURE_SETS.c.names))
            }

    def journal(self, applications: Sequence[Application]) -> tuple[Application, ...]:
        """Write intents before Slurm is touched; returns them with the ids that they got."""
        with self._database.writing() as connection:
            return tuple(self._insert_application(connection, application) for application in applications)

    def set_applications(
        self, applications: Sequence[Application], state: ApplicationState, now_s: float, detail: str
    ) -> None:
        """Note how far applications have come.

        One that is ``restored`` and names a decision that was begun before has taken back all that was decided for
        its job: those applications are noted as restored with it, in one transaction.
        """
        if not applications:
            return
        ids = [application.id for application in applications]
        with self._database.writing() as connection:
            reached = sa.update(APPLICATIONS).values(state=state, changed_s=now_s, detail=detail)
            connection.execute(reached.where(APPLICATIONS.c.id.in_(ids)))
            if state == "restored":
                for application in applications:
                    connection.execute(reached.where(_taken_back_by(connection, application)))

    def open_applications(self) -> tuple[Application, ...]:
        """Applications that were begun and not ended, oldest first: what a restarted daemon has to finish."""
        query = sa.select(APPLICATIONS).where(APPLICATIONS.c.state.in_(OPEN_STATES)).order_by(APPLICATIONS.c.id)
        return self._rows(query, Application)

    def begun_since(self, since_s: float) -> tuple[Application, ...]:
        """Applications that were let go with the decided size since ``since_s``."""
        query = sa.select(APPLICATIONS).where(APPLICATIONS.c.state == "begun", APPLICATIONS.c.changed_s >= since_s)
        return self._rows(query, Application)

    def applications(self, decision_id: str) -> tuple[Application, ...]:
        """All applications of a decision, oldest first."""
        query = sa.select(APPLICATIONS).where(APPLICATIONS.c.decision_id == decision_id).order_by(APPLICATIONS.c.id)
        return self._rows(query, Application)

    def decisions_of(self, job_id: int) -> tuple[Decision, ...]:
        """All decisions for a job id, oldest first; Slurm may have used the id for several jobs."""
        query = sa.select(DECISIONS).where(DECISIONS.c.job_id == job_id).order_by(DECISIONS.c.decided_s)
        return self._rows(query, Decision)

    def recent_decisions(self, limit: int) -> tuple[Decision, ...]:
        """The latest decisions, newest first."""
        return self._rows(sa.select(DECISIONS).order_by(DECISIONS.c.decided_s.desc()).limit(limit), Decision)

    def decided_jobs(self, since_s: float) -> frozenset[JobKey]:
        """(job id, submit second) of all jobs submitted since ``since_s`` that have a decision."""
        query = sa.select(DECISIONS.c.job_id, DECISIONS.c.submitted_s).where(
            DECISIONS.c.decided_s >= since_s, DECISIONS.c.submitted_s >= since_s
        )
        with self._database.reading() as connection:
            return frozenset((job_id, int(submitted_s)) for job_id, submitted_s in connection.execute(query))

    def histories(self, jobs: Collection[JobKey]) -> dict[JobKey, JobHistory]:
        """What was decided and done for these jobs; nothing for one never decided, or with a row left out."""
        decisions: defaultdict[JobKey, list[Decision]] = defaultdict(list)
        applications: defaultdict[str, list[Application]] = defaultdict(list)
        unreadable: set[JobKey | str] = set()
        job_ids = sorted({job_id for job_id, _ in jobs})
        for first in range(0, len(job_ids), _IDS_PER_QUERY):
            some = job_ids[first : first + _IDS_PER_QUERY]
            decided = sa.select(DECISIONS).where(DECISIONS.c.job_id.in_(some)).order_by(DECISIONS.c.decided_s)
            applied = sa.select(APPLICATIONS).where(APPLICATIONS.c.job_id.in_(some)).order_by(APPLICATIONS.c.id)
            with self._database.reading() as connection:
                for row in connection.execute(decided).mappings():
                    key = row["job_id"], int(row["submitted_s"])
                    if (decision := self._from_row(row, Decision)) is None:
                        unreadable.add(key)
                    else:
                        decisions[key].append(decision)
                for row in connection.execute(applied).mappings():
                    if (application := self._from_row(row, Application)) is None:
                        unreadable.add(row["decision_id"])
                    else:
                        applications[application.decision_id].append(application)
        found = {}
        for job in jobs:
            mine = decisions.get(job, [])
            if mine and unreadable.isdisjoint({job, *(decision.id for decision in mine)}):
                journal = (each for decision in mine for each in applications[decision.id])
                found[job] = JobHistory(
                    decisions=tuple(mine), applications=tuple(sorted(journal, key=lambda each: each.id))
                )
        return found

    def jobs_without_outcome(
        self, since_s: float, *, besides: Collection[JobKey] = (), after: Position | None = None, limit: int = 1000
    ) -> JobsPage:
        """At most ``limit`` jobs decided since ``since_s`` that are not known to have ended, oldest decision first.

        ``besides`` are jobs that are known not to have ended. ``after`` is where the page before this one ended.
        """
        read = sa.select(DECISIONS.c.job_id, DECISIONS.c.submitted_s, DECISIONS.c.decided_s, DECISIONS.c.id)
        query = (
            read.where(DECISIONS.c.awaits_outcome == 1, DECISIONS.c.decided_s >= since_s, _later_than(after))
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
            for some in _parts(outcomes):
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
        queries = (sa.select(OUTCOMES).where(OUTCOMES.c.decision_id.in_(some)) for some in _parts(decision_ids))
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

    def old_decisions(self, before_s: float, *, after: Position | None, limit: int) -> tuple[OldDecision, ...]:
        """At most ``limit`` decisions of before ``before_s``, oldest first, from the one after ``after`` on."""
        unfinished = sa.select(sa.literal(1)).where(
            APPLICATIONS.c.decision_id == DECISIONS.c.id, APPLICATIONS.c.state.in_(OPEN_STATES)
        )
        query = (
            sa.select(
                DECISIONS.c.id,
                DECISIONS.c.job_id,
                DECISIONS.c.submitted_s,
                DECISIONS.c.decided_s,
                sa.and_(DECISIONS.c.observation.is_not(None), OUTCOMES.c.reward.is_not(None)),
                unfinished.exists(),
            )
            .outerjoin(OUTCOMES, OUTCOMES.c.decision_id == DECISIONS.c.id)
            .where(DECISIONS.c.decided_s < before_s, _later_than(after))
            .order_by(DECISIONS.c.decided_s, DECISIONS.c.id)
            .limit(limit)
        )
        with self._database.reading() as connection:
            return tuple(
                OldDecision(name, (job_id, int(submitted_s)), decided_s, bool(is_experience), bool(is_open))
                for name, job_id, submitted_s, decided_s, is_experience, is_open in connection.execute(query)
            )

    def delete_decisions(self, decision_ids: Sequence[str]) -> None:
        """Delete decisions, with their entries in the journal and their outcomes, all or none."""
        if not decision_ids:
            return
        with self._database.writing() as connection:
            for some in _parts(decision_ids):
                connection.execute(sa.delete(APPLICATIONS).where(APPLICATIONS.c.decision_id.in_(some)))
                connection.execute(sa.delete(OUTCOMES).where(OUTCOMES.c.decision_id.in_(some)))
                connection.execute(sa.delete(DECISIONS).where(DECISIONS.c.id.in_(some)))

    def add_policy(self, policy: PolicyRow) -> None:
        """Write what the gate said of a version."""
        with self.adding_policy(policy):
            pass

    @contextmanager
    def adding_policy(self, policy: PolicyRow) -> Iterator[None]:
        """Write what the gate said of a version; nothing is written where the block raises.

        The block runs once the row is accepted; other writers wait meanwhile.
        """
        with self._database.writing() as connection:
            connection.execute(sa.insert(POLICIES), [to_row(policy)])
            yield

    def policies(self) -> tuple[PolicyRow, ...]:
        """All versions that the trainer made here, oldest first."""
        return self._rows(sa.select(POLICIES).order_by(POLICIES.c.created_s), PolicyRow)

    def counts(self, limit: int) -> dict[str, int]:
        """Rows by table, not counted beyond ``limit``."""
        with self._database.reading() as connection:
            return {
                table.name: connection.execute(
                    sa.select(sa.func.count()).select_from(
                        sa.select(sa.literal(1)).select_from(table).limit(limit).subquery()
                    )
                ).scalar_one()
                for table in (APPLICATIONS, DECISIONS, OUTCOMES, PAST_JOBS, POLICIES)
            }

    def _insert_application(self, connection: sa.Connection, application: Application) -> Application:
        row = to_row(application)
        del row["id"]
        result = connection.execute(sa.insert(APPLICATIONS).values(row))
        key = result.inserted_primary_key
        if key is None:
            raise StoreError("the database did not say which id an application got: is its driver supported?")
        return msgspec.structs.replace(application, id=int(key[0]))

    def _pairs(self, query: sa.Select[Any]) -> tuple[Experience, ...]:
        with self._database.reading() as connection:
            rows = connection.execute(query).mappings()
            pairs = ((self._from_row(row, Decision), self._from_row(row, Outcome)) for row in rows)
            return tuple(
                Experience(decision=decision, outcome=outcome)
                for decision, outcome in pairs
                if decision is not None and outcome is not None
            )

    def _rows(self, query: sa.Select[Any], kind: type[Row]) -> tuple[Row, ...]:
        with self._database.reading() as connection:
            rows = (self._from_row(row, kind) for row in connection.execute(query).mappings())
            return tuple(row for row in rows if row is not None)

    def _from_row(self, row: sa.RowMapping, kind: type[Row]) -> Row | None:
        """The struct of a row, or None where it is left out. Raises UnreadableRow."""
        try:
            return from_row(row, kind)
        except UnreadableRow as err:
            table, key = _NAMES[kind]
            self._unreadable.found(table, key, row[key], err)
            return None


def _name_features(connection: sa.Connection) -> None:
    if connection.execute(sa.select(FEATURE_SETS.c.id).where(FEATURE_SETS.c.id == SCHEMA_ID)).first() is None:
        connection.execute(sa.insert(FEATURE_SETS).values(id=SCHEMA_ID, names=msgspec.json.encode(FEATURES).decode()))


_EXPERIENCE: Final = (
    sa.select(DECISIONS, OUTCOMES)
    .join(OUTCOMES, OUTCOMES.c.decision_id == DECISIONS.c.id)
    .where(DECISIONS.c.observation.is_not(None), OUTCOMES.c.reward.is_not(None))
)
_NAMES: Final[dict[type[msgspec.Struct], tuple[str, str]]] = {
    Decision: ("decisions", "id"),
    Application: ("applications", "id"),
    Outcome: ("outcomes", "decision_id"),
    PolicyRow: ("policies", "version"),
}
"""What a kind of row is kept in, and by which column it is found there."""


def _taken_back_by(connection: sa.Connection, application: Application) -> sa.ColumnElement[bool]:
    """The begun applications of its job that an application takes back: none, unless it names a begun decision."""
    begun_before = sa.and_(APPLICATIONS.c.id < application.id, APPLICATIONS.c.state == "begun")
    same = sa.select(APPLICATIONS.c.id).where(begun_before, APPLICATIONS.c.decision_id == application.decision_id)
    if connection.execute(same).first() is None:
        return sa.false()
    job = sa.select(DECISIONS.c.job_id, DECISIONS.c.submitted_s).where(DECISIONS.c.id == application.decision_id)
    job_id, submitted_s = connection.execute(job).one()
    of_job = sa.select(DECISIONS.c.id).where(DECISIONS.c.job_id == job_id, DECISIONS.c.submitted_s == submitted_s)
    return sa.and_(begun_before, APPLICATIONS.c.decision_id.in_(of_job))


def _later_than(position: Position | None) -> sa.ColumnElement[bool]:
    """Decisions after one in the order of time; written so that every database finds them by an index."""
    if position is None:
        return sa.true()
    decided_s, decision_id = position
    tie = sa.and_(DECISIONS.c.decided_s == decided_s, DECISIONS.c.id > decision_id)
    return sa.and_(DECISIONS.c.decided_s >= decided_s, sa.or_(DECISIONS.c.decided_s > decided_s, tie))


def _parts(all_of: Sequence[Each]) -> list[Sequence[Each]]:
    """What a query is about, in portions that it can take."""
    return [all_of[first : first + _IDS_PER_QUERY] for first in range(0, len(all_of), _IDS_PER_QUERY)]
