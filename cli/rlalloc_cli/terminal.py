"""The terminal: one console for what was asked for, one for complaints."""

import io
import sys
from typing import Final, NoReturn

import typer
from rich.console import Console

_COLUMNS: Final = 80
"""Where the terminal, or COLUMNS, says that it has none."""


def make_console(*, stderr: bool = False) -> Console:
    """Prints text as it is: ``[/x]`` and ``:x:`` in the names that users give to jobs are no markup."""
    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if console.width < 1:
        console.width = _COLUMNS
    return console


CONSOLE = make_console()
_ERRORS = make_console(stderr=True)


def escape_what_cannot_be_printed() -> None:
    """Print what the locale has no character for by its number: a job's name may be in any script."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def complain(message: str) -> None:
    """Print a complaint."""
    _ERRORS.print(f"rlalloc: {message}", soft_wrap=True)


def fail(message: str, code: int) -> NoReturn:
    """Print a complaint and exit: 1 failed, 2 wrong use."""
    complain(message)
    raise typer.Exit(code)
