"""Rows of the store as structs: what all that reads and writes it has in common."""

from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgspec
import sqlalchemy as sa

from rlalloc.store.database import Database
from rlalloc.store.encoding import Row, UnreadableRow, from_row
from rlalloc.store.journal_seal import JournalSeal
from rlalloc.store.rows import Application, Decision, Outcome, PolicyRow
from rlalloc.store.tables import DECISIONS
from rlalloc.store.unreadable_rows import UnreadableRows

Each = TypeVar("Each")

JobKey = tuple[int, int]
"""Job id and submit second: Slurm may use an id for several jobs."""
Position = tuple[float, str]
"""A decision in the order of time: when it was taken, and its id."""
_IDS_PER_QUERY: Final = 500

_NAMES: Final[dict[type[msgspec.Struct], tuple[str, str]]] = {
    Decision: ("decisions", "id"),
    Application: ("applications", "id"),
    Outcome: ("outcomes", "decision_id"),
    PolicyRow: ("policies", "version"),
}
"""What a kind of row is kept in, and by which column it is found there."""


class RowAccess:
    """A database, and what to do about rows that cannot be read."""

    def __init__(self, database: Database, unreadable: UnreadableRows, seal: JournalSeal | None = None) -> None:
        """With ``seal`` an entry of the journal is unreadable if rlallocd did not write it."""
        self._database = database
        self._unreadable = unreadable
        self._seal = seal

    def _rows(self, query: sa.Select[Any], kind: type[Row]) -> tuple[Row, ...]:
        with self._database.reading() as connection:
            rows = (self._from_row(row, kind) for row in connection.execute(query).mappings())
            return tuple(row for row in rows if row is not None)

    def _from_row(self, row: sa.RowMapping, kind: type[Row]) -> Row | None:
        """The struct of a row, or None where it is left out. Raises UnreadableRow."""
        try:
            struct = from_row(row, kind)
            if self._seal is not None and isinstance(struct, Application):
                self._seal.check(row, struct)
        except UnreadableRow as err:
            table, key = _NAMES[kind]
            self._unreadable.found(table, key, row[key], err)
            return None
        return struct


def later_than(position: Position | None) -> sa.ColumnElement[bool]:
    """Decisions after one in the order of time; written so that every database finds them by an index."""
    if position is None:
        return sa.true()
    decided_s, decision_id = position
    tie = sa.and_(DECISIONS.c.decided_s == decided_s, DECISIONS.c.id > decision_id)
    return sa.and_(DECISIONS.c.decided_s >= decided_s, sa.or_(DECISIONS.c.decided_s > decided_s, tie))


def parts(all_of: Sequence[Each]) -> list[Sequence[Each]]:
    """What a query is about, in portions that it can take."""
    return [all_of[first : first + _IDS_PER_QUERY] for first in range(0, len(all_of), _IDS_PER_QUERY)]
