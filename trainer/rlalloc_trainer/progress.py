"""How long work tells how far it is."""

from collections.abc import Callable

Report = Callable[[str, float], None]
"""Called with what is being done and how much of the whole is done, 0 to 1."""


def silent(_what: str, _done: float) -> None:
    """Tell nobody."""


def part_of(report: Report, begin: float, end: float) -> Report:
    """Return whom to tell about work that is the part from ``begin`` to ``end`` of a whole."""
    return lambda what, done: report(what, begin + (end - begin) * done)
