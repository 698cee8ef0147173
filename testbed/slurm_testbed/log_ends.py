"""The ends of log files."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

LONGEST_LINE_BYTES = 400


def tail(path: Path, lines: int) -> str:
    """Return the last lines of a text file; a missing file is empty."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - lines * LONGEST_LINE_BYTES))
            content = stream.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(content.splitlines()[-lines:])
