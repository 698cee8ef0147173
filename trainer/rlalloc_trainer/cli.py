"""The commands ``rlalloc train …``: how policies are made."""

import logging
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from rlalloc.config import DEFAULT_PATH
from rlalloc.errors import ConfigError, PolicyError
from rlalloc_trainer.terminal import errors_end_here, progress_bar

app = typer.Typer(
    no_args_is_help=True, help="Make policies: from nothing in the simulator, or from this site's jobs."
)
log = logging.getLogger(__name__)

ConfigOption = Annotated[Path, typer.Option("--config", metavar="FILE", help="The configuration file.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the verdict as JSON.")]


@app.command()
def run(config: ConfigOption = DEFAULT_PATH, *, as_json: JsonOption = False) -> None:
    """Train on this site's experience, judge, and promote what earns its place."""
    from rlalloc_trainer.app import train_on_site

    with errors_end_here("train", ConfigError), progress_bar(quiet=as_json) as report:
        result = train_on_site(config, report)
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(result)).decode() + "\n")
        return
    console = Console()
    if result.verdict is not None:
        evidence = result.verdict.evidence
        table = Table(title=f"Mean JCT of {result.version} over that of…, on held-out streams (below 1 is better)")
        table.add_column("policy")
        table.add_column(f"ratio [{evidence.confidence:.0%} interval]", justify="right")
        for name, ratio in {evidence.current: evidence.against_current, **evidence.against_heuristics}.items():
            table.add_row(name, str(ratio))
        console.print(table)
    console.print(result.reason, soft_wrap=True, highlight=False)


@app.command()
def policy(
    seed: Annotated[int, typer.Option(help="All that is random follows from it.")] = 0,
    directory: Annotated[Path, typer.Option(help="Where the version goes: a new or empty folder.")] = Path("policy"),
    budget: Annotated[float, typer.Option(help="Amount of work, 1 being that of the shipped policy.")] = 1.0,
    workers: Annotated[int, typer.Option("--processes", min=1, help="Processes that share the work.")] = 2,
) -> None:
    """Make a policy from nothing in the simulator: the command that made the shipped one.

    A training that was interrupted goes on where it was if the same command is given again. Learning curves are in
    DIRECTORY/training: curves.png, and tensorboard --logdir DIRECTORY/training/tensorboard shows them as it learns.
    """
    from rlalloc_trainer.app import train_from_nothing

    with errors_end_here("train", ConfigError), progress_bar() as report:
        manifest = train_from_nothing(directory, seed, budget, workers, report)
    console = Console()
    table = Table(title="Mean JCT of the policy over that of…, on streams it has never seen (below 1 is better)")
    table.add_column("policy")
    table.add_column("ratio [90% interval]", justify="right")
    for name, ratio in manifest.items():
        table.add_row(name, str(ratio))
    console.print(table)
    console.print(f"Stored in {directory}.", highlight=False)


@app.command()
def demonstrate(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where demonstrations go.")],
    expert: Annotated[list[str] | None, typer.Option(help="Who demonstrates (price-ef); several take turns.")] = None,
    streams: Annotated[int, typer.Option(min=1, help="Streams that are decided.")] = 100,
    jobs: Annotated[int, typer.Option(min=1, help="Jobs of a stream.")] = 30,
) -> None:
    """Record what experts decide in the simulator, to learn from."""
    from rlalloc_trainer.app import record_demonstrations

    with errors_end_here("train", ConfigError), progress_bar() as report:
        decisions, mean_return = record_demonstrations(output, tuple(expert or ["price-ef"]), streams, jobs, report)
    Console().print(f"{decisions:,} decisions, mean return {mean_return:.3f}: {output}", highlight=False)


@app.command("front")
def front_command(
    term: Annotated[
        str, typer.Argument(metavar="TERM", help="A term of the objective (docs/objective.md).")
    ] = "gpu_held",
    *,
    weights: Annotated[str, typer.Option(help="Weights of TERM beside jct 1.")] = "0,2,5,100",
    seed: Annotated[int, typer.Option(help="All that is random follows from it.")] = 0,
    streams: Annotated[int, typer.Option(min=1, help="Simulated streams to learn from.")] = 100,
    steps: Annotated[int, typer.Option(min=1, help="Gradient steps of each policy.")] = 3000,
    validation_streams: Annotated[int, typer.Option(min=1, help="Streams to judge on.")] = 80,
    png: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the front there.")] = None,
    processes: Annotated[int, typer.Option(min=1, help="Processes that share the work.")] = 1,
) -> None:
    """Show what one policy reaches that is told the weights, against a policy for each weight."""
    from rlalloc.heuristics import BASELINE_NAME
    from rlalloc_trainer.app import make_front
    from rlalloc_trainer.front import CONFIDENCE, FrontSettings

    with errors_end_here("train", ConfigError, PolicyError):
        settings = FrontSettings(
            term=term,
            weights=_weights(weights),
            seed=seed,
            streams=streams,
            steps=steps,
            validation_streams=validation_streams,
        )
        with progress_bar() as report:
            found = make_front(settings, png, processes, report)
    table = Table(title=f"Over those of {BASELINE_NAME}, on {validation_streams} streams [{CONFIDENCE:.0%} interval]")
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
def parallelism(
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each learner.")] = 10,
    folder: Annotated[Path, typer.Option(help="Where runs are kept, so that a second call goes on.")] = Path(
        "parallelism"
    ),
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 2,
) -> None:
    """Choose GPU counts and parallelism by Q-learning, SARSA, a fixed policy and SAC, and compare with the best."""
    from rlalloc_trainer.app import compare_parallelism

    with errors_end_here("train"), progress_bar() as report:
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
