"""Where the commands print their tables."""

from rich.console import Console


def wide_console(columns: int) -> Console:
    """A console as wide as its terminal; in a file, so many ``columns``."""
    return Console(width=None if Console().is_terminal else columns)
