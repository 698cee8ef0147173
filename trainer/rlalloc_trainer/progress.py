"""How long work tells how far it is."""

from collections.abc import Callable

Report = Callable[[str, float], None]
"""Called with what is being done and how much of the whole is done, 0 to 1."""


def silent(_what: str, _done: float) -> None:
    """Tell nobody."""
