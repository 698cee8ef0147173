"""Reading and writing the journal: the table of applications."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import sqlalchemy as sa

from rlalloc.errors import StoreError
from rlalloc.store.encoding import UnreadableRow, from_row, to_row
from rlalloc.store.journal_seal import SEALED_REQUEST
from rlalloc.store.row_access import RowAccess, parts
from rlalloc.store.rows import OPEN_STATES, Application, ApplicationState
from rlalloc.store.tables import APPLICATIONS, DECISIONS

ENTRIES: Final = sa.select(APPLICATIONS, DECISIONS.c.request.label(SEALED_REQUEST)).join(
    DECISIONS, DECISIONS.c.id == APPLICATIONS.c.decision_id
)
"""Entries of the journal, with what their seals are of."""
_INSERT: Final = sa.insert(APPLICATIONS)


class JournalAccess(RowAccess):
    """Which updates are intended, how far they have come, and how they ended. Raises StoreError."""

    def journal(self, applications: Sequence[Application]) -> tuple[Application, ...]:
        """Write intents before Slurm is touched; returns them with the ids that they got."""
        if not applications:
            return ()
        with self._database.writing() as connection:
            rows = [{name: value for name, value in to_row(each).items() if name != "id"} for each in applications]
            if self._seal is not None:
                requests = _requests_of(connection, [each.decision_id for each in applications])
                for row, application in zip(rows, applications, strict=True):
                    row["seal"] = self._seal.of(application, requests[application.decision_id])
            return tuple(
                msgspec.structs.replace(application, id=_inserted(connection, row))
                for row, application in zip(rows, applications, strict=True)
            )

    def set_applications(
        self, applications: Sequence[Application], state: ApplicationState, now_s: float, detail: str
    ) -> None:
        """Note how far applications have come.

        One that is ``restored`` and names a decision that was begun before has taken back all that was decided for
        its job: those applications are noted as restored with it, in one transaction. One of a single task of an
        array, with a job id of its own, says nothing of the others.
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
        query = ENTRIES.where(APPLICATIONS.c.state.in_(OPEN_STATES)).order_by(APPLICATIONS.c.id)
        return self._rows(query, Application)

    def begun_since(self, since_s: float) -> tuple[Application, ...]:
        """Applications that were let go with the decided size since ``since_s``."""
        query = ENTRIES.where(APPLICATIONS.c.state == "begun", APPLICATIONS.c.changed_s >= since_s)
        return self._rows(query, Application)

    def applications(self, *decision_ids: str) -> tuple[Application, ...]:
        """All applications of these decisions, oldest first."""
        query = ENTRIES.where(APPLICATIONS.c.decision_id.in_(decision_ids)).order_by(APPLICATIONS.c.id)
        return self._rows(query, Application)

    def has_seals(self) -> bool:
        """Whether an entry has a seal, by whatever key."""
        with self._database.reading() as connection:
            sealed = sa.select(APPLICATIONS.c.id).where(APPLICATIONS.c.seal.is_not(None)).limit(1)
            return connection.execute(sealed).first() is not None

    def count_broken_seals(self, newest: int) -> tuple[int, int]:
        """How many entries were looked at, and how many of them have no valid seal or cannot be read.

        Looked at are the ``newest``, and all that are open.
        """
        if self._seal is None:
            raise StoreError("no key to check the journal's seals with")
        looked_at = broken = 0
        with self._database.reading() as connection:
            last = connection.execute(sa.select(sa.func.max(APPLICATIONS.c.id))).scalar_one() or 0
            wanted = sa.or_(APPLICATIONS.c.id > last - newest, APPLICATIONS.c.state.in_(OPEN_STATES))
            for row in connection.execute(ENTRIES.where(wanted)).mappings():
                looked_at += 1
                try:
                    self._seal.check(row, from_row(row, Application))
                except UnreadableRow:
                    broken += 1
        return looked_at, broken

    def seal_journal(self) -> None:
        """Seal the journal as it is: from now on rlallocd takes all of it for its own."""
        if self._seal is None:
            raise StoreError("no key to seal the journal with")
        with self._database.writing() as connection:
            seals = []
            for row in connection.execute(ENTRIES).mappings():
                with contextlib.suppress(UnreadableRow):  # nobody acts on one
                    seal = self._seal.of(from_row(row, Application), row[SEALED_REQUEST])
                    seals.append({"entry": row["id"], "new": seal})
            if seals:
                sealed = sa.update(APPLICATIONS).where(APPLICATIONS.c.id == sa.bindparam("entry"))
                connection.execute(sealed.values(seal=sa.bindparam("new")), seals)


def _requests_of(connection: sa.Connection, decision_ids: Sequence[str]) -> dict[str, str]:
    """The requests of decisions, as they are stored."""
    query = sa.select(DECISIONS.c.id, DECISIONS.c.request)
    found: dict[str, str] = {}
    for some in parts(decision_ids):
        found.update((row.id, row.request) for row in connection.execute(query.where(DECISIONS.c.id.in_(some))))
    if missing := set(decision_ids) - found.keys():
        raise StoreError(f"no decision of this id is in the store: {', '.join(sorted(missing))}")
    return found


def _inserted(connection: sa.Connection, row: Mapping[str, object]) -> int:
    """Write an entry; returns its id."""
    key = connection.execute(_INSERT, row).inserted_primary_key
    if key is None:
        raise StoreError("the database did not say which id an application got: is its driver supported?")
    return int(key[0])


def _taken_back_by(connection: sa.Connection, application: Application) -> sa.ColumnElement[bool]:
    """The begun applications of its job that an application takes back: none, unless it names a begun decision."""
    begun_before = sa.and_(APPLICATIONS.c.id < application.id, APPLICATIONS.c.state == "begun")
    same = sa.select(APPLICATIONS.c.id).where(begun_before, APPLICATIONS.c.decision_id == application.decision_id)
    if connection.execute(same).first() is None:
        return sa.false()
    job = sa.select(DECISIONS.c.job_id, DECISIONS.c.submitted_s).where(DECISIONS.c.id == application.decision_id)
    job_id, submitted_s = connection.execute(job).one()
    if application.job_id != job_id:
        return sa.false()
    of_job = sa.select(DECISIONS.c.id).where(DECISIONS.c.job_id == job_id, DECISIONS.c.submitted_s == submitted_s)
    return sa.and_(begun_before, APPLICATIONS.c.decision_id.in_(of_job))
