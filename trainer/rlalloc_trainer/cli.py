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
from rlalloc.errors import ConfigError
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
) -> None:
    """Make a policy from nothing in the simulator: the command that made the shipped one."""
    from rlalloc_trainer.app import train_from_nothing

    with errors_end_here("train", ConfigError), progress_bar() as report:
        manifest = train_from_nothing(directory, seed, budget, report)
    console = Console()
    table = Table(title="Mean JCT of the policy over that of…, on streams it has never seen (below 1 is better)")
    table.add_column("policy")
    table.add_column("ratio [90% interval]", justify="right")
    for name, ratio in manifest.items():
        table.add_row(name, str(ratio))
    console.print(table)
    console.print(f"Stored in {directory}.", highlight=False)


@app.command()
def heuristics(
    seed: Annotated[int, typer.Option(help="All that is random follows from it.")] = 0,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of the cross-entropy method.")] = 8,
) -> None:
    """Tune price-EF's constants in the simulator; the result is what rlalloc.heuristics.TUNED_PRICE holds."""
    from rlalloc_trainer.app import tune_heuristics

    with errors_end_here("train", ConfigError), progress_bar() as report:
        tuned = tune_heuristics(seed, rounds, report)
    console = Console()
    console.print(tuned.constants, highlight=False)
    console.print(
        f"Mean JCT over that as requested, on other streams: {tuned.ratio}; DEFAULT_PRICE {tuned.default_ratio}.",
        highlight=False,
        soft_wrap=True,
    )


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
    Console().print(table)
