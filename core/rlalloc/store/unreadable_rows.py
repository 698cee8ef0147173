"""Rows that this rlalloc cannot read: named, or left out and counted."""

import logging

from rlalloc.store.encoding import UnreadableRow

_log = logging.getLogger(__name__)


class UnreadableRows:
    """What happens to such a row of the store called ``name``: it raises, or with ``skip`` it is left out.

    Then it is counted, and the log has one line for each fault.
    """

    def __init__(self, name: str, *, skip: bool) -> None:
        self._name = name
        self._skip = skip
        self._rows: set[tuple[str, str]] = set()
        self._faults: set[tuple[str, str]] = set()

    @property
    def number(self) -> int:
        """How many rows were left out, each counted once."""
        return len(self._rows)

    def found(self, table: str, column: str, key: object, err: Exception) -> None:
        """Note a row of ``table``, whose ``column`` is ``key``. Raises UnreadableRow, unless it is left out."""
        told = (
            f"the store {self._name} has a row that this rlalloc cannot read: {table}, {column} {key}: {err}; "
            f"{err.remedy if isinstance(err, UnreadableRow) else UnreadableRow.remedy}"
        )
        if not self._skip:
            raise UnreadableRow(told) from err
        self._rows.add((table, str(key)))
        if (table, str(err)) not in self._faults:
            self._faults.add((table, str(err)))
            _log.error("skipped, and further rows with the same fault: %s", told)
