"""Commands of ``python -m rlalloc_research`` on how policies learn and plan."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.table import Table

from rlalloc.errors import ConfigError, PolicyError
from rlalloc_research.wide_console import wide_console
from rlalloc_simulator.command_line import errors_end_here, progress_bar

PngOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Draw to this PNG.")]
FolderOption = Annotated[Path, typer.Option(help="Where finished runs are kept; a second call goes on.")]


def pareto_front(
    term: Annotated[
        str, typer.Argument(metavar="TERM", help="A term of the objective (docs/admin/objective.md).")
    ] = "gpu_held",
    *,
    weights: Annotated[str, typer.Option(help="Weights of TERM beside jct 1.")] = "0,2,5,100",
    seed: Annotated[int, typer.Option(help="Seed of all randomness.")] = 0,
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
    wide_console(140).print(table, highlight=False)


def _weights(text: str) -> tuple[float, ...]:
    try:
        weights = tuple(float(part) for part in text.split(","))
    except ValueError as err:
        raise PolicyError(f"--weights {text}: write numbers separated by commas, as 0,0.1,1") from err
    if not all(0 <= weight <= 1e6 for weight in weights):
        raise PolicyError(f"--weights {text}: write weights from 0 to 1000000")
    return weights


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
    """Compare policies that plan with those that do not."""
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
    wide_console(160).print(table)


def sac_check(
    task: Annotated[list[str] | None, typer.Option(help="Only this task: pendulum or cluster; repeatable.")] = None,
    *,
    seeds: Annotated[int, typer.Option(min=2, help="Runs of each library.")] = 5,
    folder: FolderOption = Path("sac-check"),
    png: PngOption = None,
) -> None:
    """Compare our SAC with stable-baselines3's: the same tasks, settings and budget."""
    from rlalloc_research.sac_check import TASKS, run_check

    with errors_end_here("research", PolicyError):
        if unknown := [name for name in task or () if name not in TASKS]:
            raise PolicyError(f"--task {unknown[0]}: write one of {', '.join(TASKS)}")
        run_check(task or (), seeds, folder, png)


def imitation_ablation(
    *,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each arm.")] = 3,
    steps: Annotated[int, typer.Option(min=1, help="Environment steps of a run.")] = 6000,
    every: Annotated[int, typer.Option(min=1, help="Steps between evaluations.")] = 500,
    folder: FolderOption = Path("imitation-ablation"),
    png: PngOption = None,
) -> None:
    """Measure what prioritised replay and imitation save in environment steps."""
    from rlalloc_research.imitation_ablation import run_ablation

    with errors_end_here("research", PolicyError):
        run_ablation(folder, seeds, steps, every, png)


def advantage_noise(
    workloads: Annotated[int, typer.Option(min=1, help="Training workloads.")] = 6,
    futures: Annotated[int, typer.Option(min=2, help="Futures of each decision.")] = 8,
) -> None:
    """Measure how long counterfactual advantages take, how noisy they are, and how biased."""
    from rlalloc_research.advantage_noise import print_noise

    with errors_end_here("research"):
        print_noise(workloads, futures)


def critic_fit(
    folder: Annotated[Path, typer.Argument(help="The training folder of `rlalloc train policy`.")],
    steps: Annotated[int, typer.Option(min=1, help="Gradient steps of the critics.")] = 6000,
) -> None:
    """Measure how well critics predict advantages that they never saw."""
    from rlalloc_research.critic_fit import print_fit

    with errors_end_here("research", PolicyError):
        print_fit(folder, steps)


def typical_advantages(
    workloads: Annotated[int, typer.Option(min=1, help="Training workloads.")] = 60,
) -> None:
    """Measure how much decisions change each term of the objective."""
    from rlalloc_research.typical_advantages import print_typical

    with errors_end_here("research"):
        print_typical(workloads)


def planning_latency(
    decisions: Annotated[int, typer.Option(min=1, help="Timed decisions of each size of cluster.")] = 60,
    budget: Annotated[float, typer.Option(min=0.001, help="Latency budget of a decision [s].")] = 0.5,
) -> None:
    """Time planned decisions by the size of the cluster."""
    from rlalloc_research.planning_latency import print_latency

    with errors_end_here("research"):
        print_latency(decisions, budget)
