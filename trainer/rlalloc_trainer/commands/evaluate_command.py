"""The command ``rlalloc evaluate``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from rlalloc.errors import PolicyError
from rlalloc_simulator.command_line import errors_end_here, progress_bar
from rlalloc_simulator.commands.policy_commands import loads_of
from rlalloc_simulator.workloads.workload_errors import WorkloadError

if TYPE_CHECKING:
    from rlalloc_trainer.evaluation.evaluate import Evaluated
    from rlalloc_trainer.evaluation.result_tables import Table

NARROWEST = 200
"""Columns of the terminal that the widest table wants; where there are fewer, its cells wrap."""


def evaluate(  # noqa: PLR0913 (the options of the command)
    policies: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[POLICY]...",
            help="shipped, a version of the store, a folder, or a name of rlalloc simulate policies. The first is "
            "judged.",
        ),
    ] = None,
    *,
    pollux: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Pollux's step times and workloads: adds the scenarios made of them."),
    ] = None,
    philly: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Philly's trace (philly-csv): adds its weeks.")
    ] = None,
    workload: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="A workload to compare on too; may be given several times."),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="SCENARIO", help="Only this scenario; repeatable.")
    ] = None,
    knowledge: Annotated[
        str | None, typer.Option(help="Only these levels of knowledge, separated by commas; by default all.")
    ] = None,
    weeks: Annotated[str, typer.Option(help="test, or validation: the workloads for choosing.")] = "test",
    loads: Annotated[str, typer.Option(help="Offered GPU loads, separated by commas.")] = "1.2",
    settings: Annotated[
        str, typer.Option(help="Some of sizes, urgency, requeue, separated by commas.")
    ] = "sizes,urgency",
    late: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            metavar="SECONDS",
            help="Time from freed resources to the decision of jobs that could start; by default daemon.poll_s.",
        ),
    ] = None,
    on_arrival: Annotated[bool, typer.Option("--on-arrival", help="Decide each job once, when it comes.")] = False,
    seeds: Annotated[int | None, typer.Option(min=1, help="At most so many workloads of each scenario.")] = None,
    replicates: Annotated[
        int | None,
        typer.Option(
            min=1, help="Runs of each workload, with submissions moved by up to 300 s, of the judged policy."
        ),
    ] = None,
    baselines: Annotated[bool, typer.Option(help="Run the usual baselines, too.")] = True,
    quick: Annotated[bool, typer.Option("--quick", help="Few and small workloads: minutes.")] = False,
    store: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="The policy store whose versions may be named.")
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Tables, figure and runs; a second call resumes.")
    ] = Path("evaluation"),
    workers: Annotated[int, typer.Option(min=1, help="Processes that share the work.")] = 2,
) -> None:
    """Compare policies on the same workloads, by what they know, and hold the first to the bar: never worse."""
    from rlalloc_simulator.knowledge import LEVELS, knowledge_named
    from rlalloc_trainer.evaluation import evaluate as app
    from rlalloc_trainer.evaluation.scenario_runs import LATE_AFTER_S, REPLICATES

    with errors_end_here("evaluate", WorkloadError, PolicyError), progress_bar() as report:
        asked = app.EvaluationSettings(
            policies=tuple(policies or ("shipped",)),
            baselines=baselines,
            philly=philly,
            pollux=pollux,
            files=tuple(workload or ()),
            only=tuple(only or ()),
            knowledge=LEVELS if knowledge is None else tuple(knowledge_named(word) for word in _words(knowledge)),
            split=_split(weeks),
            loads=loads_of(loads),
            settings=tuple(_words(settings)),
            late_after_s=None if on_arrival else (LATE_AFTER_S if late is None else late),
            most_weeks=seeds,
            replicates=replicates or REPLICATES,
            quick=quick,
            store=store,
            output=output,
            workers=workers,
        )
        evaluated = app.evaluate(asked, report)
    show(evaluated)


def _words(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def show(evaluated: "Evaluated") -> None:
    """Print the tables, and the paths of what was written."""
    terminal = Console()
    console = Console(width=None if terminal.is_terminal else NARROWEST)
    for table in evaluated.tables:
        console.print(_rich(table))
    for path in evaluated.written:
        console.print(str(path), highlight=False, markup=False)


def _rich(table: "Table") -> RichTable:
    shown = RichTable(title=escape(table.title), title_justify="left", box=box.SIMPLE)
    for place, column in enumerate(table.columns):
        shown.add_column(column, justify="right" if place else "left", no_wrap=place > 0)
    for row in table.rows:
        shown.add_row(*(escape(cell) for cell in row))
    return shown


def _split(weeks: str) -> Literal["test", "validation"]:
    if weeks == "test":
        return "test"
    if weeks == "validation":
        return "validation"
    raise WorkloadError(f"--weeks {weeks}: write test or validation")
