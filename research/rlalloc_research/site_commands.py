"""Commands of ``python -m rlalloc_research`` on what a policy does on simulated sites."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from rlalloc.errors import PolicyError, RlallocError
from rlalloc_research.wide_console import wide_console
from rlalloc_simulator.command_line import errors_end_here, progress_bar


def limit_kills(
    *,
    policy: Annotated[str, typer.Option(help="A name of rlalloc simulate policies.")] = "price-by-order",
    load: Annotated[float, typer.Option(min=0.1, help="Offered GPU load.")] = 1.0,
    quick: Annotated[bool, typer.Option(help="Half of the workloads, smaller ones.")] = False,
) -> None:
    """Count the jobs that are killed at their time limits, by how they really scale (docs/results/speed-model.md)."""
    from rlalloc_research.speed_model.limit_kills import kills

    with errors_end_here("research", PolicyError), progress_bar() as report:
        rows = kills(policy, load, report, quick=quick)
    table = Table(title=f"{policy} at a load of {load:g}, means of the validation workloads")
    for column in ("scenario", "true speed-up", "workloads", "killed as requested", "killed", "mean JCT ratio"):
        table.add_column(column, justify="left" if column in ("scenario", "true speed-up") else "right")
    for row in rows:
        table.add_row(
            row.scenario,
            row.truth,
            str(row.workloads),
            f"{row.killed_as_requested:.1f}",
            f"{row.killed:.1f}",
            f"{row.jct_ratio:.3f}",
        )
    wide_console(120).print(table, highlight=False)


def gpu_types(
    *,
    workloads: Annotated[int, typer.Option(min=1, help="Simulated workloads.")] = 40,
    jobs: Annotated[int, typer.Option(min=20, help="Jobs of each, about.")] = 200,
) -> None:
    """Compare known-gain with and without the choice of a type of GPU, on sites with two types."""
    from rlalloc_research.type_choice_gain import compare

    with progress_bar() as report:
        rows = list(compare(workloads, jobs, report))
    table = Table(title=f"Mean JCT with the choice over without, {workloads} workloads of about {jobs} jobs")
    columns = ("a100 over v100", "Slurm takes first", "load", "GPU use", "JCT ratio", "worst workload", "killed")
    for column in columns:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            *(f"{row.true_speed:g}", row.first, f"{row.load:g}", f"{row.gpu_use:.0%}", str(row.jct)),
            *(f"{row.worst:.3f}", f"{row.killed[0]} → {row.killed[1]}"),
        )
    wide_console(120).print(table, highlight=False)


def ordinary_site(
    *,
    scripts: Annotated[Path, typer.Option(metavar="FOLDER", help="The site's batch scripts, *.sh.")] = Path(
        "tests/slurm_plugin/scripts"
    ),
    config: Annotated[Path, typer.Option(metavar="FILE", help="The site's rules.")] = Path("etc/rlalloc.yaml"),
    workloads: Annotated[int, typer.Option(min=1, max=16, help="Simulated workloads.")] = 8,
    replicates: Annotated[int, typer.Option(min=1, help="Runs of each, with moved submissions.")] = 3,
    wider: Annotated[bool, typer.Option("--wider", help="Also under rules that allow more.")] = False,
) -> None:
    """Compare known-gain with as requested on a site where nobody writes a #RLALLOC line."""
    from rlalloc.config import load_config
    from rlalloc_research.ordinary_site import Extent, compare, scripts_in

    with errors_end_here("research", RlallocError), progress_bar() as report:
        rules = load_config(config)
        extent = Extent(workloads=workloads, replicates=replicates, wider=wider)
        rows = list(compare(rules, scripts_in(scripts, rules), extent, report))
    table = Table(title=f"known-gain over as requested, {workloads} workloads, {rows[0].jobs} jobs")
    for column in ("rule", "knowledge", "may resize", "may shrink", "JCT ratio", "killed for it", "worst user"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            *(row.rule, row.knowledge, f"{row.may_resize:.1%}", f"{row.may_shrink:.1%}", str(row.jct)),
            *(str(row.killed), f"{row.worst:.2f}"),
        )
    wide_console(120).print(table, highlight=False)


def price_check(
    *,
    pollux: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Pollux's step times and workloads: adds them.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="SCENARIO", help="Only this scenario of rlalloc evaluate; repeatable.")
    ] = None,
    others: Annotated[
        str, typer.Option(help="What decides the other jobs: known-gain or as-requested.")
    ] = "known-gain",
    seeds: Annotated[int, typer.Option(min=1, help="Validation workloads of each scenario.")] = 2,
    decisions: Annotated[int, typer.Option(min=1, help="Decisions of each workload that are taken again.")] = 20,
) -> None:
    """Force single jobs into each size, and compare what known-gain predicts with what comes of it."""
    from rlalloc_research.price_check.checked_workloads import CheckSettings, checked_workloads
    from rlalloc_research.price_check.price_tables import price_tables
    from rlalloc_simulator.workloads.workload_errors import WorkloadError

    with errors_end_here("research", WorkloadError), progress_bar() as report:
        settings = CheckSettings(
            decisions=decisions, seeds=seeds, others=others, pollux=pollux, only=tuple(only or ())
        )
        checked = list(checked_workloads(settings, report))
    out = wide_console(140)
    for table in price_tables(checked):
        out.print(table, highlight=False)
