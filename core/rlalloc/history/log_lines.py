"""Lines of a log of any size and origin, and the count of those that cannot be read."""

import io
from collections.abc import Iterator
from typing import BinaryIO, Final

import msgspec

_LONGEST_LINE: Final = 1 << 20
"""Bytes; what a longer line has beyond them is left out, so that no line fills the memory."""


class LogLines:
    """The lines of a file, decoded, without their ends.

    ``start`` is the byte at which the line read last begins, ``end`` the one behind it.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._from = ""
        self.number = 0
        self.start = 0
        self.end = 0

    @classmethod
    def of_text(cls, text: str) -> "LogLines":
        """The lines of what a command printed."""
        return cls(io.BytesIO(text.encode(errors="replace")))

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        raw = self._file.readline(_LONGEST_LINE)
        if not raw:
            self.start = self.end
            raise StopIteration
        self.start = self.end
        self.end += len(raw)
        self.number += 1
        part = raw
        while len(part) == _LONGEST_LINE and not part.endswith(b"\n"):
            part = self._file.readline(_LONGEST_LINE)
            self.end += len(part)
        # PostgreSQL keeps no NUL in a text.
        return raw.decode("utf-8", errors="replace").rstrip("\r\n").replace("\0", "")

    def skip_to(self, position: int) -> None:
        """Go on at the byte ``position``, unless that is read already."""
        if position > self.end:
            self._file.seek(position)
            self.start = self.end = position
            self.number, self._from = 0, f" from byte {position} on"

    @property
    def where(self) -> str:
        """Which line was read last, for people."""
        return f"line {self.number}{self._from}"


class ReadTally(msgspec.Struct):
    """What a reader left out, and why. ``first_fault`` says where the first line stands that cannot be read."""

    unreadable: int = 0
    first_fault: str = ""
    not_ended: int = 0
    never_started: int = 0

    def fault(self, lines: LogLines, why: str) -> None:
        """Count a line that cannot be read."""
        self.unreadable += 1
        self.first_fault = self.first_fault or f"{lines.where}: {why}"

    def describe(self) -> str:
        """All of it in one line; empty where nothing was left out."""
        parts = []
        if self.not_ended:
            parts.append(f"{self.not_ended} have not ended")
        if self.never_started:
            parts.append(f"{self.never_started} never started")
        if self.unreadable:
            parts.append(f"{self.unreadable} cannot be read (the first: {self.first_fault})")
        return ", ".join(parts)
