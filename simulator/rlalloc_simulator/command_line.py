"""The terminal of all commands that simulate or train: how errors end them, and a progress bar."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from rlalloc.errors import RlallocError
from rlalloc.progress import ProgressCallback


@contextmanager
def errors_end_here(command: str, *wrong_use: type[RlallocError]) -> Iterator[None]:
    """Turn an error into a message and an exit status: 2 for those of ``wrong_use``, 1 for others."""
    try:
        yield
    except RlallocError as err:
        console = Console(stderr=True)
        console.print(f"rlalloc {command}: {err}", style="red", soft_wrap=True, highlight=False, markup=False)
        raise typer.Exit(2 if isinstance(err, wrong_use) else 1) from err


@contextmanager
def progress_bar(*, quiet: bool = False) -> Iterator[ProgressCallback]:
    """Show a bar on a terminal's stderr; nothing elsewhere."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    console = Console(stderr=True, quiet=quiet)
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task("reading", total=1.0)
        yield lambda what, done: bar.update(task, description=what, completed=done)
