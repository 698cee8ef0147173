"""The commands ``rlalloc train …``: how policies are made."""

import logging
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from rlalloc.config import DEFAULT_PATH, load_config
from rlalloc.errors import ConfigError
from rlalloc.policy.last_training import note_training, running_training
from rlalloc.progress import part_of
from rlalloc.system.run_as_owner import run_as_owner_of
from rlalloc_simulator.command_line import errors_end_here, progress_bar

app = typer.Typer(
    no_args_is_help=True, help="Make policies: from nothing in the simulator, or from this site's jobs."
)
log = logging.getLogger(__name__)

ConfigOption = Annotated[Path, typer.Option("--config", metavar="FILE", help="The configuration file.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the verdict as JSON.")]


@app.command()
def run(config: ConfigOption = DEFAULT_PATH, *, as_json: JsonOption = False) -> None:
    """Train on this site's experience, judge the candidate, and promote it if it passes the gate.

    Before that, learn run times from the site's past jobs. Root runs this as the owner of policy.directory.
    """
    with errors_end_here("train", ConfigError):
        policies = load_config(config).policy.directory
        run_as_owner_of(policies)
    from rlalloc_trainer.commands.train_wiring import learn_site_run_times, train_on_site

    with errors_end_here("train", ConfigError), running_training(policies), progress_bar(quiet=as_json) as report:
        try:
            run_times = learn_site_run_times(config, part_of(report, 0.0, 0.2))
            result = train_on_site(config, part_of(report, 0.2, 1.0))
        except Exception as err:
            note_training(policies, str(err) or type(err).__name__, failed=True)
            raise
        note_training(policies, result.reason, failed=False, promoted=result.promoted)
    if as_json:
        printed = msgspec.to_builtins(result) | {"run_times": msgspec.to_builtins(run_times)}
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(printed)).decode() + "\n")
        return
    console = Console(markup=False, emoji=False)
    if result.verdict is not None:
        evidence = result.verdict.evidence
        table = Table(title=f"Mean JCT of {result.version} over that of…, on held-out workloads (below 1 is better)")
        table.add_column("policy")
        table.add_column(f"ratio [{evidence.confidence:.0%} interval]", justify="right")
        for name, ratio in {evidence.current: evidence.against_current, **evidence.against_heuristics}.items():
            table.add_row(name, str(ratio))
        console.print(table)
    console.print(result.reason, soft_wrap=True, highlight=False)
    console.print(run_times.reason, soft_wrap=True, highlight=False)


@app.command()
def policy(
    seed: Annotated[int, typer.Option(help="Seed of all randomness.")] = 0,
    directory: Annotated[Path, typer.Option(help="Where the version goes: a new or empty folder.")] = Path("policy"),
    budget: Annotated[float, typer.Option(help="Amount of work; 1 is that of the shipped policy.")] = 1.0,
    workers: Annotated[int, typer.Option("--processes", min=1, help="Processes that share the work.")] = 2,
) -> None:
    """Make a policy from nothing in the simulator: the command that made the shipped one.

    Give the same command again to continue an interrupted training. Learning curves are in
    DIRECTORY/training: curves.png, and tensorboard --logdir DIRECTORY/training/tensorboard shows them as it learns.
    """
    from rlalloc_trainer.commands.train_wiring import train_from_nothing

    with errors_end_here("train", ConfigError), progress_bar() as report:
        manifest = train_from_nothing(directory, seed, budget, workers, report)
    console = Console(markup=False, emoji=False)
    table = Table(title="Mean JCT of the policy over that of…, on workloads it has never seen (below 1 is better)")
    table.add_column("policy")
    table.add_column("ratio [90% interval]", justify="right")
    for name, ratio in manifest.items():
        table.add_row(name, str(ratio))
    console.print(table)
    console.print(f"Stored in {directory}.", highlight=False)


@app.command()
def demonstrate(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where demonstrations go.")],
    expert: Annotated[list[str] | None, typer.Option(help="An expert (price-ef); several take turns.")] = None,
    workloads: Annotated[int, typer.Option(min=1, help="Workloads that are decided.")] = 100,
    jobs: Annotated[int, typer.Option(min=1, help="Jobs of a workload.")] = 30,
) -> None:
    """Record decisions of experts in the simulator, for imitation learning."""
    from rlalloc_trainer.commands.train_wiring import record_demonstrations

    with errors_end_here("train", ConfigError), progress_bar() as report:
        decisions, mean_return = record_demonstrations(output, tuple(expert or ["price-ef"]), workloads, jobs, report)
    Console(markup=False, emoji=False).print(
        f"{decisions:,} decisions, mean return {mean_return:.3f}: {output}", highlight=False
    )
