"""Progress callbacks: how long-running work reports how far it has come."""

from collections.abc import Callable

ProgressCallback = Callable[[str, float], None]
"""Called with the current step, in words, and the part of the work that is done, 0 to 1."""


def silent(_what: str, _done: float) -> None:
    """Report nothing."""


def part_of(report: ProgressCallback, begin: float, end: float) -> ProgressCallback:
    """Return a callback for a part of the work: its progress 0 to 1 becomes ``begin`` to ``end`` of the whole."""
    return lambda what, done: report(what, begin + (end - begin) * done)
