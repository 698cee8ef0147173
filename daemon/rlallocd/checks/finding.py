"""What a check found."""

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

Level = Literal["OK", "WARN", "FAIL"]
LEVELS: Final[tuple[Level, ...]] = ("OK", "WARN", "FAIL")
"""From good to bad."""


class Finding(msgspec.Struct, frozen=True):
    """One line: ``what`` was checked, what was ``found``, and the ``remedy`` where the level is not OK.

    ``checked`` is false where whoever asked could not look, so that nothing is known.
    """

    level: Level
    what: str
    found: str
    remedy: str = ""
    checked: bool = True


def worst(findings: Iterable[Finding]) -> Level:
    """The worst level; OK where nothing was found."""
    return max((finding.level for finding in findings), key=LEVELS.index, default="OK")


def good(what: str, found: str) -> Finding:
    """All is well."""
    return Finding("OK", what, found)


def warning(what: str, found: str, remedy: str) -> Finding:
    """Worth a look."""
    return Finding("WARN", what, found, remedy)


def unchecked(what: str, found: str, remedy: str) -> Finding:
    """It could not be looked at."""
    return Finding("WARN", what, found, remedy, checked=False)


def failure(what: str, found: str, remedy: str) -> Finding:
    """Something does not work."""
    return Finding("FAIL", what, found, remedy)
