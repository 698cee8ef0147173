"""Reading and writing jobs that have ended: in batches, never all at once."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import sqlalchemy as sa

from rlalloc.past_job import PastJob
from rlalloc.store.database import Database
from rlalloc.store.encoding import to_row
from rlalloc.store.row_access import parts
from rlalloc.store.tables import HISTORY_READS, PAST_JOBS
from rlalloc.store.unreadable_rows import UnreadableRows

_ROWS_PER_QUERY: Final = 5000
_FIELDS: Final = tuple(field.name for field in msgspec.structs.fields(PastJob))
_COLUMNS: Final = [PAST_JOBS.c[name] for name in _FIELDS]


class History:
    """The table of past jobs. A job is known by its id and the time of its submission. Raises StoreError."""

    def __init__(self, database: Database, unreadable: UnreadableRows) -> None:
        self._database = database
        self._unreadable = unreadable

    def add(self, jobs: Sequence[PastJob], positions: Mapping[str, float] | None = None) -> int:
        """Write the jobs that are not there yet, all or none; returns how many those were.

        With them go ``positions``: how far sources have been read, so that the next reading begins there.
        """
        with self._database.writing() as connection:
            new = self._new(connection, jobs)
            if new:
                connection.execute(_insert(connection), [to_row(job) for job in new])
            for source, position in (positions or {}).items():
                connection.execute(sa.delete(HISTORY_READS).where(HISTORY_READS.c.source == source))
                connection.execute(sa.insert(HISTORY_READS), [{"source": source, "position": position}])
        return len(new)

    def position(self, source: str) -> float | None:
        """How far ``source`` has been read, or None if it never was."""
        with self._database.reading() as connection:
            found: float | None = connection.scalar(
                sa.select(HISTORY_READS.c.position).where(HISTORY_READS.c.source == source)
            )
            return found

    def past_jobs(self, since_s: float = -math.inf, until_s: float = math.inf) -> Iterator[PastJob]:
        """The jobs that ended from ``since_s`` until before ``until_s``, in the order of their ends.

        They are read in pages: no transaction stays open between two jobs.
        """
        ended_s, key = PAST_JOBS.c.ended_s, PAST_JOBS.c.id
        # No infinity: MariaDB has none.
        after_s, after_id = max(since_s, -1.0), -1
        while True:
            query = (
                sa.select(key, *_COLUMNS)
                .where(ended_s >= after_s, sa.or_(ended_s > after_s, key > after_id))
                .order_by(ended_s, key)
                .limit(_ROWS_PER_QUERY)
            )
            if until_s < math.inf:
                query = query.where(ended_s < until_s)
            with self._database.reading() as connection:
                rows = connection.execute(query).all()
            for row in rows:
                if (job := self._past_job(row)) is not None:
                    yield job
            if len(rows) < _ROWS_PER_QUERY:
                return
            after_id, after_s = rows[-1].id, rows[-1].ended_s

    def recent(self, limit: int) -> tuple[PastJob, ...]:
        """At most ``limit`` jobs, the last that ended first."""
        query = sa.select(PAST_JOBS.c.id, *_COLUMNS).order_by(PAST_JOBS.c.ended_s.desc()).limit(limit)
        with self._database.reading() as connection:
            jobs = (self._past_job(row) for row in connection.execute(query))
            return tuple(job for job in jobs if job is not None)

    def has_ended(self, since_s: float, until_s: float) -> bool:
        """Whether there is a job that ended at ``since_s`` or later and before ``until_s``."""
        query = sa.select(PAST_JOBS.c.id).where(PAST_JOBS.c.ended_s >= since_s, PAST_JOBS.c.ended_s < until_s)
        with self._database.reading() as connection:
            return connection.scalar(query.limit(1)) is not None

    def drop_before(self, ended_s: float, *, limit: int) -> int:
        """Delete at most ``limit`` jobs that ended before ``ended_s``, the oldest first; returns how many."""
        oldest = (
            sa.select(PAST_JOBS.c.id)
            .where(PAST_JOBS.c.ended_s < ended_s)
            .order_by(PAST_JOBS.c.ended_s, PAST_JOBS.c.id)
            .limit(limit)
        )
        with self._database.reading() as connection:
            ids = connection.scalars(oldest).all()
        if ids:
            with self._database.writing() as connection:
                connection.execute(sa.delete(PAST_JOBS).where(PAST_JOBS.c.id.in_(ids)))
        return len(ids)

    def _past_job(self, row: Sequence[Any]) -> PastJob | None:
        """The job of a row, its key first; None where it is left out. Raises UnreadableRow."""
        values = dict(zip(_FIELDS, row[1:], strict=True))
        try:
            if values["allotted"] is not None:
                values["allotted"] = msgspec.json.decode(values["allotted"])
            return msgspec.convert(values, PastJob)
        except (msgspec.MsgspecError, TypeError) as err:
            self._unreadable.found("past_jobs", "id", row[0], err)
            return None

    def _new(self, connection: sa.Connection, jobs: Sequence[PastJob]) -> list[PastJob]:
        """Those of the jobs that are not in the table, each once."""
        by_key = {(job.job_id, job.submitted_s): job for job in jobs}
        for some in parts(sorted({job_id for job_id, _ in by_key})):
            there = sa.select(PAST_JOBS.c.job_id, PAST_JOBS.c.submitted_s).where(PAST_JOBS.c.job_id.in_(some))
            for job_id, submitted_s in connection.execute(there):
                by_key.pop((job_id, submitted_s), None)
        return list(by_key.values())


def _insert(connection: sa.Connection) -> Any:
    """An INSERT that leaves alone what another program has added meanwhile."""
    dialect = connection.dialect.name
    if dialect == "sqlite":
        from sqlalchemy.dialects import sqlite

        return sqlite.insert(PAST_JOBS).on_conflict_do_nothing()
    if dialect == "postgresql":
        from sqlalchemy.dialects import postgresql  # takes a tenth of a second

        return postgresql.insert(PAST_JOBS).on_conflict_do_nothing()
    from sqlalchemy.dialects import mysql

    insert = mysql.insert(PAST_JOBS)
    return insert.on_duplicate_key_update(job_id=insert.inserted.job_id)
