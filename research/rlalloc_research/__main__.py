"""``python -m rlalloc_research``: tables and figures of papers, one command each."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from rlalloc.errors import ConfigError, PolicyError
from rlalloc_simulator.command_line import errors_end_here, progress_bar

app = typer.Typer(no_args_is_help=True, help="Tables and figures of papers.")


@app.command("pareto-front")
def pareto_front(
    term: Annotated[
        str, typer.Argument(metavar="TERM", help="A term of the objective (docs/admin/objective.md).")
    ] = "gpu_held",
    *,
    weights: Annotated[str, typer.Option(help="Weights of TERM beside jct 1.")] = "0,2,5,100",
    seed: Annotated[int, typer.Option(help="All that is random follows from it.")] = 0,
    workloads: Annotated[int, typer.Option(min=1, help="Simulated workloads to learn from.")] = 100,
    steps: Annotated[int, typer.Option(min=1, help="Gradient steps of each policy.")] = 3000,
    validation_workloads: Annotated[int, typer.Option(min=1, help="Workloads to judge on.")] = 80,
    png: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the front to this PNG.")] = None,
    processes: Annotated[int, typer.Option(min=1, help="Processes that share the work.")] = 1,
) -> None:
    """Compare one weight-conditioned policy with one policy per weight."""
    from rlalloc.heuristics import BASELINE_NAME
    from rlalloc_research.pareto_front import ParetoFrontSettings
    from rlalloc_research.research_wiring import make_pareto_front
    from rlalloc_simulator.comparison.paired_statistics import CONFIDENCE

    with errors_end_here("research", ConfigError, PolicyError):
        settings = ParetoFrontSettings(
            term=term,
            weights=_weights(weights),
            seed=seed,
            workloads=workloads,
            steps=steps,
            validation_workloads=validation_workloads,
        )
        with progress_bar() as report:
            found = make_pareto_front(settings, png, processes, report)
    table = Table(
        title=f"Over those of {BASELINE_NAME}, on {validation_workloads} workloads [{CONFIDENCE:.0%} interval]"
    )
    for column in (f"weight of {term}", *(f"{name}: {what}" for name in found for what in ("mean JCT", term))):
        table.add_column(column, justify="right")
    for points in zip(*found.values(), strict=True):
        cells = [str(interval) for point in points for interval in (point.jct, point.cost)]
        table.add_row(f"{points[0].weight:g}", *cells)
    terminal = Console()
    Console(width=None if terminal.is_terminal else 140).print(table, highlight=False)


def _weights(text: str) -> tuple[float, ...]:
    try:
        weights = tuple(float(part) for part in text.split(","))
    except ValueError as err:
        raise PolicyError(f"--weights {text}: write numbers with commas between them, as 0,0.1,1") from err
    if not all(0 <= weight <= 1e6 for weight in weights):
        raise PolicyError(f"--weights {text}: write weights from 0 to 1000000")
    return weights


@app.command()
def planning(
    policies: Annotated[
        list[str],
        typer.Argument(metavar="POLICY...", help="As for rlalloc evaluate; planned: in front of one makes it plan."),
    ],
    *,
    workload: Annotated[Path, typer.Option(metavar="FILE", help="The workload to compare on.")],
    loads: Annotated[str, typer.Option(help="Offered GPU loads.")] = "0.6,1.0,1.5",
    settings: Annotated[str, typer.Option(help="sizes, urgency, requeue; some of them.")] = "sizes,urgency",
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Tables, figure and runs.")] = Path(
        "planning"
    ),
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 2,
) -> None:
    """Compare policies that plan with those that do not (docs/results/planning.md)."""
    from rlalloc_research.planning.compared_planning import plain_or_planned
    from rlalloc_simulator.commands.policy_commands import loads_of
    from rlalloc_simulator.workloads.workload_errors import WorkloadError
    from rlalloc_trainer.commands.evaluate_command import show
    from rlalloc_trainer.evaluation.evaluate import EvaluationSettings, evaluate

    with errors_end_here("research", WorkloadError, PolicyError), progress_bar() as report:
        asked = EvaluationSettings(
            policies=tuple(policies),
            files=(workload,),
            only=(workload.stem,),
            loads=loads_of(loads),
            settings=tuple(settings.split(",")),
            output=output,
            workers=workers,
        )
        evaluated = evaluate(asked, report, plain_or_planned)
    show(evaluated)


@app.command()
def parallelism(
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each learner.")] = 10,
    folder: Annotated[Path, typer.Option(help="Where runs are kept, so that a second call goes on.")] = Path(
        "parallelism"
    ),
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 2,
) -> None:
    """Choose GPU counts and parallelism by Q-learning, SARSA, a fixed policy and SAC, and compare with the best."""
    from rlalloc_research.research_wiring import compare_parallelism

    with errors_end_here("research"), progress_bar() as report:
        rows = compare_parallelism(seeds, folder, workers, report)
    table = Table(title=f"Mean and deviation over {seeds} seeds, on episodes that nothing was learned on")
    table.add_column("policy")
    for column in ("accuracy", "precision", "F1", "within 1%", "total reward", "kWh a job", "s a job", "failed"):
        table.add_column(column, justify="right")
    for name, row in rows.items():
        pairs = zip(msgspec.structs.astuple(row.mean), msgspec.structs.astuple(row.deviation), strict=True)
        places = (3, 3, 3, 3, 2, 3, 0, 4)
        cells = (f"{mean:,.{each}f} ± {spread:.{each}f}" for (mean, spread), each in zip(pairs, places, strict=True))
        table.add_row(name, *cells)
    terminal = Console()
    Console(width=None if terminal.is_terminal else 160).print(table)


if __name__ == "__main__":
    app()
