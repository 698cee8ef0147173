"""Rows of a text table, and numbers and times out of them; every error names file, line, key, found and allowed."""

import csv
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from rlalloc_simulator.workloads.workload_errors import WorkloadError


class Row:
    """One row by column, and where it stands."""

    def __init__(self, path: Path, line: int, values: dict[str, str]) -> None:
        self.path = path
        self.line = line
        self._values = values

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def text(self, key: str) -> str:
        """The value, blanks at its ends cut off; empty where the table has none."""
        return (self._values.get(key) or "").strip()

    def number(self, key: str) -> float:
        """A number of at least 0. Raises WorkloadError."""
        value = self.optional(key)
        if value is None:
            raise self.error(key, "a number of at least 0")
        return value

    def optional(self, key: str) -> float | None:
        """A number of at least 0, or None where there is none (empty, nan). Raises WorkloadError."""
        text = self.text(key)
        if text in ("", "nan", "NaN", "None"):
            return None
        try:
            value = float(text)
        except ValueError as err:
            raise self.error(key, "a number of at least 0") from err
        if not 0 <= value < float("inf"):
            raise self.error(key, "a number of at least 0")
        return value

    def count(self, key: str) -> int:
        """A whole number of at least 0, also written as 8.0. Raises WorkloadError."""
        value = self.number(key)
        if not value.is_integer():
            raise self.error(key, "a whole number")
        return int(value)

    def time(self, key: str, utc_offset_s: float = 0.0) -> float:
        """Read the wall clock, ``2017-10-09 07:01:55``: see ``wall_clock_s``. Raises WorkloadError."""
        value = self.optional_time(key, utc_offset_s)
        if value is None:
            raise self.error(key, "a time such as 2017-10-09 07:01:55")
        return value

    def optional_time(self, key: str, utc_offset_s: float = 0.0) -> float | None:
        """The same, or None where there is none."""
        text = self.text(key)
        if text in ("", "None", "nan"):
            return None
        value = wall_clock_s(text, utc_offset_s)
        if value is None:
            raise self.error(key, "a time such as 2017-10-09 07:01:55")
        return value

    def error(self, key: str, allowed: str) -> WorkloadError:
        """What to raise about ``key``."""
        return WorkloadError(
            f"{self.path}, line {self.line}, key {key}: found {self.text(key)!r}, allowed: {allowed}"
        )


def wall_clock_s(text: str, utc_offset_s: float = 0.0) -> float | None:
    """Seconds on the site's wall clock, counted as if it were UTC: rhythms are those of the people who submit.

    A time without an offset is the wall clock's already; one with an offset is moved to ``utc_offset_s``. None if it
    is no time.
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    if time.tzinfo is None:
        return time.replace(tzinfo=UTC).timestamp()
    return time.timestamp() + utc_offset_s


def read_table(
    path: Path, required: Sequence[str], *, header: Sequence[str] | None = None, delimiter: str = ","
) -> Iterator[Row]:
    """Read a table whose first line names the columns, or that has the columns ``header``. Raises WorkloadError."""
    try:
        file = path.open(newline="", encoding="utf-8-sig", errors="replace")
    except OSError as err:
        raise WorkloadError(f"{path}: {err.strerror}; name a file of the trace") from err
    with file:
        # sacct quotes nothing: a quotation mark in a job's name is just that.
        rows = (
            csv.reader(file, delimiter=delimiter)
            if delimiter == ","
            else csv.reader(file, delimiter=delimiter, quoting=csv.QUOTE_NONE)
        )
        columns = list(header) if header is not None else [name.strip() for name in next(rows, [])]
        missing = [name for name in required if name not in columns]
        if missing:
            raise WorkloadError(
                f"{path}, line 1: column {missing[0]} is missing; needed are {', '.join(required)}, found "
                f"{', '.join(columns)[:300] or 'an empty file'}"
            )
        for values in rows:
            if not any(value.strip() for value in values):
                continue
            if len(values) != len(columns):
                raise WorkloadError(
                    f"{path}, line {rows.line_num}: found {len(values)} fields, allowed: {len(columns)} "
                    f"({', '.join(columns)[:200]})"
                )
            yield Row(path, rows.line_num, dict(zip(columns, values, strict=True)))
