"""Reading and writing the store."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import msgspec
import sqlalchemy as sa

from rlalloc.errors import StoreError
from rlalloc.observation import FEATURES, SCHEMA_ID
from rlalloc.store.database import Database
from rlalloc.store.decided_jobs import DecidedJobs
from rlalloc.store.encoding import to_row
from rlalloc.store.journal_access import ENTRIES, JournalAccess
from rlalloc.store.journal_seal import JournalSeal
from rlalloc.store.lease_access import LeaseAccess
from rlalloc.store.migrate import is_current, migrate, refuse_to_migrate
from rlalloc.store.outcome_access import OutcomeAccess
from rlalloc.store.past_jobs_access import History
from rlalloc.store.row_access import JobKey, Position, later_than, parts
from rlalloc.store.rows import OPEN_STATES, Application, Decision, JobHistory, PolicyRow
from rlalloc.store.submissions import submission_of
from rlalloc.store.tables import APPLICATIONS, DECISIONS, FEATURE_SETS, OUTCOMES, PAST_JOBS, POLICIES
from rlalloc.store.unreadable_rows import UnreadableRows


class OldDecision(NamedTuple):
    """What is asked about a decision before it is deleted."""

    id: str
    job: JobKey
    decided_s: float
    is_experience: bool
    is_open: bool


class Store(JournalAccess, OutcomeAccess):
    """The store at ``url``. Every method raises StoreError if the database fails.

    A program that writes creates the store, or migrates it. Without ``create`` it raises StoreMissing where SQLite's
    file is missing. One that reads (``read_only``) neither creates nor migrates: it raises StoreMissing where there
    is no store yet, and StoreError for one of another rlalloc.

    ``history`` has the jobs of the site that have ended, whoever decided their sizes. ``sizes`` has what was
    asked, decided and applied, for reports, ``lease`` which of several rlallocd acts.

    A row that cannot be read raises UnreadableRow. With ``skip_unreadable`` it is left out: ``unreadable`` counts
    such rows, and the log has one line for each fault. With ``seal`` this program seals the entries that it writes
    into the journal, and a row of the journal that does not have its seal counts as one that cannot be read.
    """

    def __init__(
        self,
        url: str,
        *,
        read_only: bool = False,
        create: bool = True,
        skip_unreadable: bool = False,
        seal: JournalSeal | None = None,
    ) -> None:
        database = Database(url, read_only=read_only, create=create)
        super().__init__(database, UnreadableRows(database.name, skip=skip_unreadable), seal)
        self.history = History(self._database, self._unreadable)
        self.lease = LeaseAccess(self._database, "" if seal is None else seal.fingerprint)
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

    def decisions_of(self, job_id: int) -> tuple[Decision, ...]:
        """All decisions for a job id, oldest first; Slurm may have used the id for several jobs."""
        query = sa.select(DECISIONS).where(DECISIONS.c.job_id == job_id).order_by(DECISIONS.c.decided_s)
        return self._rows(query, Decision)

    def recent_decisions(self, limit: int) -> tuple[Decision, ...]:
        """The latest decisions, newest first."""
        return self._rows(sa.select(DECISIONS).order_by(DECISIONS.c.decided_s.desc()).limit(limit), Decision)

    def decided_jobs(self, since_s: float) -> dict[JobKey, str]:
        """The users of all decided jobs that were submitted since ``since_s`` or are not known to have ended."""
        read = sa.select(DECISIONS.c.job_id, DECISIONS.c.submitted_s, DECISIONS.c.user)
        query = sa.union(
            read.where(DECISIONS.c.decided_s >= since_s, DECISIONS.c.submitted_s >= since_s),
            read.where(DECISIONS.c.awaits_outcome == 1),
        )
        with self._database.reading() as connection:
            return {(job_id, int(submitted_s)): user for job_id, submitted_s, user in connection.execute(query)}

    def histories(self, jobs: Collection[JobKey]) -> dict[JobKey, JobHistory]:
        """What was decided and done for these jobs; nothing for one never decided, or with a row left out."""
        all_of = self._histories_of_ids({job_id for job_id, _ in jobs})
        return {job: all_of[job] for job in jobs if job in all_of}

    def histories_of_runs(self, runs: Mapping[JobKey, str | None]) -> dict[JobKey, JobHistory]:
        """The same for the jobs of these runs, also where a run followed a requeue (``submission_of``).

        ``runs`` are their users, None where they are not known, by job id and submit second of the run.
        """
        all_of = self._histories_of_ids({job_id for job_id, _ in runs})
        users: defaultdict[int, dict[int, str]] = defaultdict(dict)
        for (job_id, submitted_s), history in all_of.items():
            users[job_id][submitted_s] = history.decisions[0].user
        found = {}
        for (job_id, run_s), user in runs.items():
            if (decided_s := submission_of(run_s, user, users[job_id])) is not None:
                found[job_id, run_s] = all_of[job_id, decided_s]
        return found

    def _histories_of_ids(self, job_ids: Collection[int]) -> dict[JobKey, JobHistory]:
        decisions: defaultdict[JobKey, list[Decision]] = defaultdict(list)
        applications: defaultdict[str, list[Application]] = defaultdict(list)
        unreadable: set[JobKey | str] = set()
        for some in parts(sorted(job_ids)):
            decided = sa.select(DECISIONS).where(DECISIONS.c.job_id.in_(some)).order_by(DECISIONS.c.decided_s)
            applied = ENTRIES.where(APPLICATIONS.c.job_id.in_(some)).order_by(APPLICATIONS.c.id)
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
        for job, mine in decisions.items():
            if unreadable.isdisjoint({job, *(decision.id for decision in mine)}):
                journal = (each for decision in mine for each in applications[decision.id])
                history = JobHistory(
                    decisions=tuple(mine), applications=tuple(sorted(journal, key=lambda each: each.id))
                )
                if self._seal is None or _has_sealed_request(history):
                    found[job] = history
        return found

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
            .where(DECISIONS.c.decided_s < before_s, later_than(after))
            .order_by(DECISIONS.c.decided_s, DECISIONS.c.id)
            .limit(limit)
        )
        with self._database.reading() as connection:
            return tuple(
                OldDecision(name, (job_id, int(submitted_s)), decided_s, bool(is_experience), bool(is_open))
                for name, job_id, submitted_s, decided_s, is_experience, is_open in connection.execute(query)
            )

    def has_decided(self, since_s: float, until_s: float) -> bool:
        """Whether there is a decision of ``since_s`` or later and before ``until_s``."""
        query = sa.select(DECISIONS.c.id).where(DECISIONS.c.decided_s >= since_s, DECISIONS.c.decided_s < until_s)
        with self._database.reading() as connection:
            return connection.scalar(query.limit(1)) is not None

    def delete_decisions(self, decision_ids: Sequence[str]) -> None:
        """Delete decisions, with their entries in the journal and their outcomes, all or none."""
        if not decision_ids:
            return
        with self._database.writing() as connection:
            for some in parts(decision_ids):
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


def _has_sealed_request(history: JobHistory) -> bool:
    """Whether the request of a job that was changed is that of the changes, whose seals are checked."""
    requests = {decision.id: decision.request for decision in history.decisions}
    return all(requests[each.decision_id] == history.request for each in history.applications)


def _name_features(connection: sa.Connection) -> None:
    if connection.execute(sa.select(FEATURE_SETS.c.id).where(FEATURE_SETS.c.id == SCHEMA_ID)).first() is None:
        connection.execute(sa.insert(FEATURE_SETS).values(id=SCHEMA_ID, names=msgspec.json.encode(FEATURES).decode()))
