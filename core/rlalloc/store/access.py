"""Reading and writing the store."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import sqlalchemy as sa

from rlalloc.errors import StoreError
from rlalloc.observation import FEATURES, SCHEMA_ID
from rlalloc.store.database import Database
from rlalloc.store.migrate import is_current, migrate, refuse_to_migrate
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
from rlalloc.store.tables import APPLICATIONS, DECISIONS, FEATURE_SETS, METADATA, OUTCOMES, POLICIES

Row = TypeVar("Row", bound=msgspec.Struct)
_IDS_PER_QUERY = 500
_PLAIN = (str, int, float, bytes, bool, type(None))


class Store:
    """The store at ``url``. Every method raises StoreError if the database fails.

    A program that writes creates the store, or migrates it. One that reads (``read_only``) does neither: it raises
    StoreMissing where there is none yet, and StoreError for one of another rlalloc.
    """

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        self._database = Database(url, read_only=read_only)
        try:
            with self._database.reading() as connection:
                current = is_current(connection, self._database.name)
                if read_only and not current:
                    refuse_to_migrate(connection, self._database.name)
            if not current:
                with self._database.writing() as connection:
                    migrate(connection, self._database.name)
        except StoreError:
            self.close()
            raise

    def close(self) -> None:
        """Close all connections."""
        self._database.close()

    def add_decisions(self, decisions: Sequence[Decision]) -> None:
        """Write decisions, all or none, and the names of their features if those are new here."""
        if not decisions:
            return
        with self._database.writing() as connection:
            _name_features(connection)
            connection.execute(sa.insert(DECISIONS), [_to_row(decision) for decision in decisions])

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
        """Note how far applications have come."""
        if not applications:
            return
        ids = [application.id for application in applications]
        with self._database.writing() as connection:
            connection.execute(
                sa.update(APPLICATIONS)
                .where(APPLICATIONS.c.id.in_(ids))
                .values(state=state, changed_s=now_s, detail=detail)
            )

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

    def decided_jobs(self, since_s: float) -> frozenset[tuple[int, int]]:
        """(job id, submit second) of all jobs submitted since ``since_s`` that have a decision."""
        query = sa.select(DECISIONS.c.job_id, DECISIONS.c.submitted_s).where(DECISIONS.c.submitted_s >= since_s)
        with self._database.reading() as connection:
            return frozenset((job_id, int(submitted_s)) for job_id, submitted_s in connection.execute(query))

    def histories(self, jobs: Collection[tuple[int, int]]) -> dict[tuple[int, int], JobHistory]:
        """What was decided and done for these jobs, by (job id, submit second); nothing for one never decided."""
        decisions: defaultdict[tuple[int, int], list[Decision]] = defaultdict(list)
        applications: defaultdict[str, list[Application]] = defaultdict(list)
        job_ids = sorted({job_id for job_id, _ in jobs})
        for first in range(0, len(job_ids), _IDS_PER_QUERY):
            some = job_ids[first : first + _IDS_PER_QUERY]
            decided = sa.select(DECISIONS).where(DECISIONS.c.job_id.in_(some)).order_by(DECISIONS.c.decided_s)
            for decision in self._rows(decided, Decision):
                decisions[decision.job_id, int(decision.submitted_s)].append(decision)
            applied = sa.select(APPLICATIONS).where(APPLICATIONS.c.job_id.in_(some)).order_by(APPLICATIONS.c.id)
            for application in self._rows(applied, Application):
                applications[application.decision_id].append(application)
        return {
            job: JobHistory(
                decisions=tuple(decisions[job]),
                applications=tuple(
                    sorted(
                        (each for decision in decisions[job] for each in applications[decision.id]),
                        key=lambda each: each.id,
                    )
                ),
            )
            for job in jobs
            if job in decisions
        }

    def decisions_without_outcome(
        self, since_s: float, *, besides: Collection[tuple[int, int]] = ()
    ) -> tuple[Decision, ...]:
        """Decisions since ``since_s`` whose job is not known to have ended, oldest first.

        A job has one outcome, that of the decision in force when it started; its other decisions have none.
        ``besides`` are jobs, by id and submit second, that are known not to have ended.
        """
        other = DECISIONS.alias("other")
        ended = (
            sa.select(OUTCOMES.c.decision_id)
            .join(other, other.c.id == OUTCOMES.c.decision_id)
            .where(other.c.job_id == DECISIONS.c.job_id, other.c.submitted_s == DECISIONS.c.submitted_s)
        )
        query = (
            sa.select(DECISIONS)
            .where(DECISIONS.c.decided_s >= since_s, ~ended.exists())
            .order_by(DECISIONS.c.decided_s)
        )
        with self._database.reading() as connection:
            return tuple(
                _from_row(row, Decision)
                for row in connection.execute(query).mappings()
                if (row["job_id"], int(row["submitted_s"])) not in besides
            )

    def add_outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """Write outcomes, all or none."""
        if not outcomes:
            return
        with self._database.writing() as connection:
            connection.execute(sa.insert(OUTCOMES), [_to_row(outcome) for outcome in outcomes])

    def outcome(self, decision_id: str) -> Outcome | None:
        """The outcome of a decision, or None while there is none."""
        rows = self._rows(sa.select(OUTCOMES).where(OUTCOMES.c.decision_id == decision_id), Outcome)
        return rows[0] if rows else None

    def experience(self) -> tuple[Experience, ...]:
        """All decisions with an observation whose outcome has a reward, in the order of decision."""
        outcomes = {row.decision_id: row for row in self._rows(sa.select(OUTCOMES), Outcome)}
        query = sa.select(DECISIONS).where(DECISIONS.c.observation.is_not(None)).order_by(DECISIONS.c.decided_s)
        return tuple(
            Experience(decision=decision, outcome=outcomes[decision.id])
            for decision in self._rows(query, Decision)
            if decision.id in outcomes and outcomes[decision.id].reward is not None
        )

    def add_policy(self, policy: PolicyRow) -> None:
        """Write what the gate said of a version."""
        with self._database.writing() as connection:
            connection.execute(sa.insert(POLICIES), [_to_row(policy)])

    def policies(self) -> tuple[PolicyRow, ...]:
        """All versions that the trainer made here, oldest first."""
        return self._rows(sa.select(POLICIES).order_by(POLICIES.c.created_s), PolicyRow)

    def counts(self) -> dict[str, int]:
        """Rows by table."""
        with self._database.reading() as connection:
            return {
                table.name: connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
                for table in METADATA.sorted_tables
            }

    def _insert_application(self, connection: sa.Connection, application: Application) -> Application:
        row = _to_row(application)
        del row["id"]
        result = connection.execute(sa.insert(APPLICATIONS).values(row))
        key = result.inserted_primary_key
        if key is None:
            raise StoreError("the database did not say which id an application got: is its driver supported?")
        return msgspec.structs.replace(application, id=int(key[0]))

    def _rows(self, query: sa.Select[Any], kind: type[Row]) -> tuple[Row, ...]:
        with self._database.reading() as connection:
            return tuple(_from_row(row, kind) for row in connection.execute(query).mappings())


def _name_features(connection: sa.Connection) -> None:
    if connection.execute(sa.select(FEATURE_SETS.c.id).where(FEATURE_SETS.c.id == SCHEMA_ID)).first() is None:
        connection.execute(sa.insert(FEATURE_SETS).values(id=SCHEMA_ID, names=msgspec.json.encode(FEATURES).decode()))


def _to_row(struct: msgspec.Struct) -> dict[str, Any]:
    """Plain values as they are, structures as JSON text."""
    return {
        name: value if isinstance(value, _PLAIN) else msgspec.json.encode(value).decode()
        for name, value in msgspec.structs.asdict(struct).items()
    }


def _from_row(row: Mapping[Any, Any], kind: type[Row]) -> Row:
    values = {}
    for name, hint in _type_hints(kind).items():
        value = row[name]
        values[name] = msgspec.json.decode(value, type=hint) if _is_structure(hint) and value is not None else value
    return msgspec.convert(values, kind, strict=False)


_type_hints = cache(get_type_hints)
"""Made once a class: making them takes longer than a query."""


def _is_structure(hint: Any) -> bool:
    parts = (hint,) if get_origin(hint) is dict else get_args(hint) or (hint,)
    kinds = [get_origin(part) or part for part in parts]
    return any(kind is dict or (isinstance(kind, type) and issubclass(kind, msgspec.Struct)) for kind in kinds)
