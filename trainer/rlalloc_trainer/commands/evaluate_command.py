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
from rlalloc_simulator.commands.policy_commands import KnowledgeOption, loads_of
from rlalloc_simulator.commands.workload_commands import LimitsOption
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
            "judged; alone, against the usual heuristics; with chosen: in front, as each scenario chooses between it "
            "and what the agent can serve instead.",
        ),
    ] = None,
    *,
    philly: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Philly's trace (philly-csv); otherwise a model of it.")
    ] = None,
    workload: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="A workload to compare on too; may be given several times."),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="SCENARIO", help="Only this scenario; repeatable.")
    ] = None,
    weeks: Annotated[str, typer.Option(help="test, or validation: the weeks for choosing.")] = "test",
    loads: Annotated[str | None, typer.Option(help="Offered GPU loads, separated by commas.")] = None,
    settings: Annotated[
        str | None, typer.Option(help="Some of sizes, urgency, requeue, separated by commas.")
    ] = None,
    knowledge: KnowledgeOption = "limits",
    limits: LimitsOption = "recorded",
    quick: Annotated[bool, typer.Option("--quick", help="Few, small workloads at three loads: minutes.")] = False,
    store: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="The policy store whose versions may be named.")
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Tables, figure and runs; a second call resumes.")
    ] = Path("evaluation"),
    workers: Annotated[int, typer.Option(min=1, help="Processes that share the work.")] = 2,
) -> None:
    """Compare policies on the very same workloads, by scenario, load and setting, and hold one to its targets."""
    from rlalloc_simulator.knowledge import knowledge_named
    from rlalloc_simulator.workloads.chosen_limits import limits_named
    from rlalloc_trainer.evaluation import evaluate as app
    from rlalloc_trainer.evaluation.scenario_runs import Conditions

    with errors_end_here("evaluate", WorkloadError, PolicyError), progress_bar() as report:
        asked = app.EvaluationSettings(
            policies=tuple(policies or ("shipped",)),
            philly=philly,
            files=tuple(workload or ()),
            only=tuple(only or ()),
            split=_split(weeks),
            loads=None if loads is None else loads_of(loads),
            settings=None if settings is None else tuple(part.strip() for part in settings.split(",")),
            conditions=Conditions(knowledge_named(knowledge), limits_named(limits)),
            quick=quick,
            store=store,
            output=output,
            workers=workers,
        )
        evaluated = app.evaluate(asked, report)
    show(evaluated)


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
