"""The commands ``rlalloc simulate policies|compare|tune``: reference policies on the compiled engine."""

from typing import Annotated, Final

import typer
from rich.console import Console
from rich.table import Table

from rlalloc.errors import PolicyError
from rlalloc.urgency import UrgencyRules
from rlalloc_simulator.command_line import errors_end_here, progress_bar
from rlalloc_simulator.commands.workload_commands import LimitsOption
from rlalloc_simulator.workloads.workload_errors import WorkloadError

SeedOption = Annotated[int, typer.Option(min=0, help="Seed of all randomness.")]
DEFAULT_RULES: Final = UrgencyRules()
KnowledgeOption = Annotated[
    str,
    typer.Option(
        metavar="LEVEL", help="What policies know of run times: limits, history, model, factor-1.8 or truth."
    ),
]
ProcessesOption = Annotated[int, typer.Option(min=1, help="Processes that share the work.")]


def add_commands(app: typer.Typer) -> None:
    """Add them to ``rlalloc simulate``."""
    for command in (policies, compare, tune):
        app.command()(command)


def policies() -> None:
    """List the reference policies and where each comes from."""
    from rlalloc.heuristics.named import described
    from rlalloc.heuristics.order import ORDERS

    table = Table(show_lines=True)
    table.add_column("policy", no_wrap=True)
    table.add_column("what it gives, and its source")
    for name, (what, source) in described().items():
        table.add_row(name, f"{what}\n{source}" if source else what)
    console = Console(markup=False, emoji=False)
    console.print(table, highlight=False)
    console.print(f"Each also with an order of the queue behind its name: {', '.join(ORDERS)}.", highlight=False)


def compare(  # noqa: PLR0913 (the options of the command)
    *,
    policy: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="May be given several times. Default: all but cp-sat.")
    ] = None,
    model: Annotated[str, typer.Option(help="A shipped model of workloads, or a file that fit wrote.")] = "philly",
    loads: Annotated[str, typer.Option(help="Offered GPU loads, separated by commas.")] = "0.6,1.0,1.5",
    workloads: Annotated[int, typer.Option(min=1, help="Workloads for each load, the same for every policy.")] = 10,
    hours: Annotated[float, typer.Option(min=0.01, help="Hours of submissions in a workload.")] = 24.0,
    nodes: Annotated[int, typer.Option(min=1, help="Nodes, each of 8 GPUs, 96 CPUs and 768,000 MiB.")] = 8,
    nice_band: Annotated[int, typer.Option(min=0, help="The most that urgency adds to a job's nice.")] = 10_000,
    patience: Annotated[
        float, typer.Option(min=0.01, help="Expected run times after which nothing is left of it.")
    ] = DEFAULT_RULES.patience,
    knowledge: KnowledgeOption = "limits",
    limits: LimitsOption = "recorded",
    late: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="SECONDS", help="Decide sizes when jobs could start, this long after resources were freed."
        ),
    ] = None,
    seed: SeedOption = 0,
    processes: ProcessesOption = 1,
) -> None:
    """Compare policies by load on generated workloads: mean JCT ratio versus as-requested on the same workloads."""
    from rlalloc.heuristics.named import EXPERTS, SOLVER_POLICIES
    from rlalloc.heuristics.order import SMALLEST_AREA_FIRST
    from rlalloc_simulator import parallel
    from rlalloc_simulator.comparison import load_comparison as comparison
    from rlalloc_simulator.comparison.compared_policy import REFERENCE
    from rlalloc_simulator.comparison.paired_statistics import CONFIDENCE
    from rlalloc_simulator.knowledge import knowledge_named
    from rlalloc_simulator.workloads.chosen_limits import limits_named

    quick = [name for name in EXPERTS.names() if name not in SOLVER_POLICIES]
    names = policy or [each for name in quick for each in (name, name + SMALLEST_AREA_FIRST)]
    with (
        errors_end_here("simulate", WorkloadError, PolicyError),
        progress_bar() as report,
        parallel.processes(processes) as parallel_map,
    ):
        settings = comparison.ComparisonSettings(
            model=model,
            loads=loads_of(loads),
            workloads=workloads,
            hours=hours,
            nodes=nodes,
            seed=seed,
            urgency=UrgencyRules(nice_band=nice_band, patience=patience),
            knowledge=knowledge_named(knowledge),
            limits=limits_named(limits),
            late_after_s=late,
        )
        compared = comparison.compare(names, settings, parallel_map, report)
    known = f"run times: {settings.knowledge}, limits: {settings.limits}"
    table = Table(title=f"Mean JCT ratio versus {REFERENCE} [{CONFIDENCE:.0%} interval], by load; {known}")
    table.add_column("policy", no_wrap=True)
    for load in settings.loads:
        table.add_column(f"{load:g}", justify="right", no_wrap=True)
    for name, results in compared.items():
        table.add_row(name, *(str(each.ratio) for each in results), end_section=name == names[-1])
    table.add_row(f"{REFERENCE}, mean JCT [s]", *(f"{each.jct_s:,.0f}" for each in compared[REFERENCE]))
    terminal = Console()
    Console(markup=False, emoji=False, width=None if terminal.is_terminal else 120).print(table, highlight=False)


def tune(
    policy: Annotated[str, typer.Argument(metavar="POLICY")] = "price-ef",
    *,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of the cross-entropy method.")] = 8,
    candidates: Annotated[int, typer.Option(min=2, help="Sets of constants tried per round.")] = 20,
    workloads: Annotated[int, typer.Option(min=1, help="Workloads that each is tried on.")] = 24,
    test_workloads: Annotated[int, typer.Option(min=1, help="Other workloads that the result is judged on.")] = 80,
    seed: SeedOption = 0,
    processes: ProcessesOption = 1,
) -> None:
    """Tune a policy's constants and print them with what they gain on workloads that they were not tuned on."""
    from rlalloc_simulator import heuristic_tuning as tuning
    from rlalloc_simulator import parallel
    from rlalloc_simulator.comparison.compared_policy import REFERENCE
    from rlalloc_simulator.comparison.paired_statistics import CONFIDENCE

    settings = tuning.TuningSettings(
        seed=seed, rounds=rounds, candidates=candidates, workloads=workloads, test_workloads=test_workloads
    )
    with (
        errors_end_here("simulate", WorkloadError, PolicyError),
        progress_bar() as report,
        parallel.processes(processes) as parallel_map,
    ):
        tuned = tuning.tune(policy, settings, parallel_map, report)
    table = Table(title=f"{policy}: mean JCT ratio versus {REFERENCE} on {test_workloads} other workloads")
    for column in ("constants", "", f"ratio [{CONFIDENCE:.0%} interval]"):
        table.add_column(column, justify="left")
    for what, values, ratio in (
        ("tuned", tuned.values, tuned.ratio),
        ("in use", tuned.in_use, tuned.in_use_ratio),
    ):
        table.add_row(what, "\n".join(f"{name} {value:.4g}" for name, value in values.items()), str(ratio))
    Console(markup=False, emoji=False).print(table, highlight=False)


def loads_of(text: str) -> tuple[float, ...]:
    """Read loads separated by commas. Raises WorkloadError."""
    try:
        loads = tuple(float(part) for part in text.split(","))
    except ValueError as err:
        raise WorkloadError(f"--loads {text}: write numbers separated by commas, as 0.6,1.0,1.5") from err
    if not all(0 < load <= 100 for load in loads):
        raise WorkloadError(f"--loads {text}: write loads above 0 and up to 100")
    return loads
