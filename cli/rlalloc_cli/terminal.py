"""The terminal: one console for what was asked for, one for complaints."""

from typing import NoReturn

import typer
from rich.console import Console

CONSOLE = Console(highlight=False, markup=False, emoji=False)
"""Prints text as it is: ``[/x]`` and ``:x:`` in the names that users give to jobs are no markup."""
_ERRORS = Console(stderr=True, highlight=False, markup=False, emoji=False)


def complain(message: str) -> None:
    """Print a complaint."""
    _ERRORS.print(f"rlalloc: {message}", soft_wrap=True)


def fail(message: str, code: int) -> NoReturn:
    """Print a complaint and exit: 1 failed, 2 wrong use."""
    complain(message)
    raise typer.Exit(code)
