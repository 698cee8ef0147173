"""The command ``rlalloc simulate run``."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rlalloc.errors import PolicyError
from rlalloc_simulator.command_line import errors_end_here, progress_bar
from rlalloc_simulator.commands.policy_commands import KnowledgeOption
from rlalloc_simulator.workloads.workload_errors import WorkloadError

if TYPE_CHECKING:
    from rlalloc_simulator.report.simulation_report import Reported

LABEL_WIDTH: Final = 32
CELL_WIDTH: Final = 18
"""Characters that the table takes for its labels, and for the figures of a policy, borders included."""


def run(
    workload: Annotated[Path, typer.Argument(metavar="WORKLOAD", help="What convert or generate wrote.")],
    *,
    policy: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Who chooses sizes; may be given several times. Default: as-submitted."),
    ] = None,
    backfill: Annotated[
        str, typer.Option(metavar="KIND", help="easy, conservative (Slurm's) or none.")
    ] = "conservative",
    knowledge: KnowledgeOption = "limits",
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write table and pictures as one self-contained page.")
    ] = None,
    png: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Write the pictures there.")] = None,
    terms: Annotated[
        bool, typer.Option("--terms", help="Also print the mean cost of each of the objective's terms.")
    ] = False,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the figures, in seconds.")] = None,
) -> None:
    """Run a workload on the simulated site that it describes; print what came of it, and draw it."""
    from rlalloc_simulator.report.simulation_report import AS_SUBMITTED, draw, run_file, write_json

    with errors_end_here("simulate", WorkloadError, PolicyError):
        with progress_bar() as report:
            reported = run_file(
                workload, policy or [AS_SUBMITTED], backfill, report, knowledge=knowledge, terms=terms
            )
        _print(reported)
        if json is not None:
            write_json(reported, json)
        written = draw(reported, png, html) if png or html else []
    for path in [*([json] if json else []), *written]:
        Console().print(str(path), highlight=False, soft_wrap=True, markup=False)


def _print(reported: "Reported") -> None:
    """Print the table; on a terminal that is too narrow for all policies, several tables."""
    console = Console()
    for fact in reported.facts:
        console.print(fact, highlight=False, soft_wrap=True, markup=False)
    names = [*reported.measures]
    for shown in _that_fit(names, console.width) if console.is_terminal else [slice(None)]:
        width = LABEL_WIDTH + sum(map(_column_width, names[shown]))
        Console(width=max(console.width, width)).print(_table(reported, shown))


def _that_fit(names: Sequence[str], width: int) -> list[slice]:
    """Divide the policies among tables of at most ``width`` characters, one a table at least."""
    first, taken, parts = 0, LABEL_WIDTH, []
    for place, name in enumerate(names):
        if place > first and taken + _column_width(name) > width:
            parts.append(slice(first, place))
            first, taken = place, LABEL_WIDTH
        taken += _column_width(name)
    return [*parts, slice(first, len(names))]


def _column_width(name: str) -> int:
    return max(CELL_WIDTH, len(name) + 3)


def _table(reported: "Reported", shown: slice) -> Table:
    table = Table(title=escape(f"{reported.workload}, simulated"))
    table.add_column("", no_wrap=True)
    for name in [*reported.measures][shown]:
        table.add_column(escape(name), justify="right", overflow="fold")
    for group, members in groupby(reported.rows, key=lambda row: row.group):
        table.add_section()
        table.add_row(escape(group), style="bold")
        for row in members:
            table.add_row(f"  {escape(row.label)}", *row.cells[shown])
    return table
