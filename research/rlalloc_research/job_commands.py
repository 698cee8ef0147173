"""Commands of ``python -m rlalloc_research`` on what jobs need, how long they run and how they scale."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from rlalloc.errors import RlallocError
from rlalloc_research.wide_console import wide_console
from rlalloc_simulator.command_line import errors_end_here, progress_bar

if TYPE_CHECKING:
    from rlalloc_research.speed_model.speed_table import SpeedTable

PngOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Draw to this PNG.")]


def llm_memory(
    ran: Annotated[
        Path | None, typer.Option(metavar="CSV", help="llm-foundry's throughput table: which of its runs fit?")
    ] = None,
) -> None:
    """Compare computed parameters and GPU memory of LLMs with published figures."""
    from rlalloc_research.llm_memory import print_cases

    with errors_end_here("research", RlallocError):
        print_cases(ran)


def profiles_and_prior(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Profiles measured on one GPU.")],
) -> None:
    """Compare what profiles measured on one GPU with what rlalloc computes from the architecture alone."""
    from rlalloc_research.profiles_and_prior import table_of

    with errors_end_here("research", RlallocError):
        table = table_of(files)
    wide_console(150).print(table, highlight=False)


def trace_run_times(
    trace_format: Annotated[str, typer.Argument(metavar="FORMAT", help="As `rlalloc simulate convert` names it.")],
    files: Annotated[list[Path], typer.Argument(help="The trace.")],
    last: Annotated[int, typer.Option(min=1, help="Only so many jobs, the last ones, are read.")] = 25_000,
    blocks: Annotated[int, typer.Option(min=1, help="So often is the model learned anew.")] = 8,
) -> None:
    """Predict the run times of a published trace in strict time order."""
    from rlalloc_cli.history_evaluate import print_figures
    from rlalloc_research.trace_run_times import evaluate_trace
    from rlalloc_simulator.workloads.readers import FORMATS

    if trace_format not in FORMATS:
        raise typer.BadParameter(f"{trace_format!r}: write one of {', '.join(FORMATS)}")
    with errors_end_here("research", RlallocError), progress_bar() as report:
        result = evaluate_trace(files, trace_format, last, report, blocks)
    for title, predictors in (
        (f"Run times of {result.jobs:,} jobs, after {result.skipped:,} others", result.predictors),
        (f"Remaining times of running jobs, {result.running:,} questions", result.remaining),
    ):
        print_figures(title, predictors)


def undeclared_needs(
    *,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the published tables (research/README.md).")
    ] = None,
    measured: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Instead an SWF log that has what its jobs used; repeatable."),
    ] = None,
    skip: Annotated[
        float, typer.Option(min=0.0, max=0.9, help="The first part of a --measured log, which is not counted.")
    ] = 0.2,
    log: Annotated[list[str] | None, typer.Option(help="Only this log: Atlas, Philly or Kalos; repeatable.")] = None,
    last: Annotated[int, typer.Option(min=1, help="Only so many jobs of a log, the last ones.")] = 40_000,
    seeds: Annotated[int, typer.Option(min=1, help="Draws of the needs.")] = 2,
    exceeded: Annotated[
        float | None, typer.Option(min=0.0001, max=0.2, help="trimming.exceeded; else its default.")
    ] = None,
) -> None:
    """Trim memory and CPUs that nobody declared: kills, and what is given back (docs/results/past-usage.md)."""
    from rlalloc.usage.trimming_rules import DEFAULT_RULES
    from rlalloc_research.undeclared_needs.logged_jobs import LOGS
    from rlalloc_research.undeclared_needs.needs_table import measured_rows, needs_rows

    if (data is None) == (not measured):
        raise typer.BadParameter("write either --data or --measured")
    if unknown := [name for name in log or () if name not in LOGS]:
        raise typer.BadParameter(f"--log {unknown[0]}: write one of {', '.join(LOGS)}")
    rules = DEFAULT_RULES if exceeded is None else msgspec.structs.replace(DEFAULT_RULES, exceeded=exceeded)
    with errors_end_here("research", RlallocError), progress_bar() as report:
        if data is not None:
            rows = list(needs_rows(data, tuple(log or LOGS), last, seeds, rules, report))
        else:
            rows = list(measured_rows(measured or (), last, skip, rules, report))
    drawn = f"{seeds} draws of the needs" if data is not None else "use as measured"
    table = Table(title=f"Trimmed to what like jobs used, in strict time order; {drawn}")
    for heading in (
        "log", "needs", "jobs", "memory trimmed", "CPUs trimmed", "killed", "of trimmed", "of memory trimmed",
        "memory back", "where trimmed", "CPUs back", "where trimmed", "run time", "timed out",
    ):  # fmt: skip
        table.add_column(heading, justify="left" if heading in ("log", "needs") else "right")
    for row in rows:
        of = row.figures
        table.add_row(
            row.log,
            row.assumed,
            f"{of.jobs:,}",
            f"{of.memory_trimmed / of.jobs:.0%}",
            f"{of.cpus_trimmed / of.jobs:.0%}",
            f"{of.killed:,}",
            f"{of.killed_part:.2%}",
            f"{of.killed / max(1, of.memory_trimmed):.2%}",
            f"{of.memory_back:.0%}",
            f"{of.memory_back_where_trimmed:.0%}",
            f"{of.cpus_back:.0%}",
            f"{of.cpus_back_where_trimmed:.0%}",
            f"+{of.slowdown_hours / of.run_hours:.2%}",
            f"{of.timed_out:,}",
        )
    wide_console(190).print(table, highlight=False)


def speed_model(
    *,
    data: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the published tables (research/README.md).")],
    png: PngOption = None,
) -> None:
    """Fit the speed model's prior, and predict measured speeds that were held out (docs/results/speed-model.md)."""
    from rlalloc_research.speed_model.fitted_prior import described
    from rlalloc_research.speed_model.held_out_speeds import TARGETS
    from rlalloc_research.speed_model.speed_table import speed_table

    with errors_end_here("research", RlallocError), progress_bar() as report:
        found = speed_table(data, png, report)
    errors = Table(title="Median relative error of held-out speeds, % (points)")
    for column in ("held out", "known", *found.tables, "all", "target"):
        errors.add_column(column, justify="left" if column in ("held out", "known") else "right")
    for row in found.rows:
        by_table = (
            f"{row.median_error(name):.1%} ({len(row.by_table[name])})" if name in row.by_table else "-"
            for name in found.tables
        )
        errors.add_row(row.row, row.known, *by_table, f"{row.median_error():.1%}", f"{TARGETS[row.row]:.0%}")
    limits = Table(title="Measured slowdowns within what a time limit allows")
    for column in ("table", "pairs of sizes", "95% quantile", "BERT's curve"):
        limits.add_column(column, justify="left" if column == "table" else "right")
    for each in found.allowed:
        limits.add_row(each.table, f"{each.pairs:,}", f"{each.held:.1%}", f"{each.held_by_the_curve:.1%}")
    out = wide_console(160)
    out.print(errors, highlight=False)
    out.print(limits, highlight=False)
    exact = sum(error < 0.05 for error in found.cpus) / len(found.cpus)
    out.print(f"CPU counts between one and all (Synergy): {exact:.0%} of {len(found.cpus)} speeds within 5%")
    out.print(f"Prior of {found.families} families: {described(found.prior)}", highlight=False)
    for left_out, prior in found.without.items():
        out.print(f"Without {left_out}: {described(prior)}", highlight=False)
    _print_layouts(out, found)


def _print_layouts(out: Console, found: "SpeedTable") -> None:
    """The constants of training steps, and Megatron-LM's layouts by them."""
    fitted = ", ".join(f"{name} {value:.2f}" for name, value in found.constants._asdict().items())
    reached = ", ".join(f"{name} {value:.2f}" for name, value in found.efficiency.items())
    out.print(f"Training steps by MPT: {fitted}; efficiency: {reached}", highlight=False)
    table = Table(title="Megatron-LM's layouts (Narayanan et al. 2021, table 1): TFLOP/s of an A100")
    for column in ("billion parameters", "TP", "PP", "GPUs", "published", "predicted", "error"):
        table.add_column(column, justify="right")
    for row in found.layouts:
        error = f"{row.predicted / row.published - 1:+.1%}"
        sizes = (row.tensor, row.pipeline, row.gpus)
        table.add_row(f"{row.billions:.1f}", *map(str, sizes), f"{row.published:.0f}", f"{row.predicted:.0f}", error)
    out.print(table, highlight=False)
    if found.scaling:
        counts = sorted(found.scaling[0].errors)
        scaling = Table(title="How MLPerf's GPT-3 on H100 scales, from its smallest entry: relative error")
        scaling.add_column("predicted by")
        for count in counts:
            scaling.add_column(f"{count:,} GPUs", justify="right")
        for each in found.scaling:
            scaling.add_row(each.how, *(f"{each.errors[count]:+.1%}" for count in counts))
        out.print(scaling)


def shared_speeds(
    *,
    data: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the published tables (research/README.md).")],
) -> None:
    """Predict how models scale from another model on the same GPUs (docs/explanation/scaling.md)."""
    from rlalloc_research.speed_model.shared_speeds import shared_speeds as predicted

    with errors_end_here("research", RlallocError), progress_bar() as report:
        rows = predicted(data, report)
    table = Table(title=f"Speed-ups of {rows[0].families} families, from another model on the same GPUs")
    for column in ("shared", "mean error", "median error", "below the 95% quantile"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(f"{row.shared:g}", f"{row.error:.1%}", f"{row.median_error:.1%}", f"{row.coverage:.1%}")
    Console().print(table)


def truths(
    *,
    data: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the published tables and logs.")],
) -> None:
    """Print what the truths of ``rlalloc evaluate`` are drawn from: fitted scaling, and what logs say of people."""
    from rlalloc_research.truths.log_statistics import log_statistics
    from rlalloc_research.truths.scaling_fit import PARTS, scaling_fit

    with errors_end_here("research", RlallocError):
        fits = scaling_fit(data)
        logs = [log_statistics(path) for path in sorted((data / "swf").glob("*.swf"))]
    table = Table(title="Exponents beyond the knee: quantiles over measured curves")
    for column in ("source", "curves", *(f"{part:.0%}" for part in PARTS), "median knee", "median error"):
        table.add_column(column, justify="left" if column == "source" else "right")
    for fit in fits:
        exponents = (f"{each:.2f}" for each in fit.exponents)
        table.add_row(
            fit.source, str(fit.curves), *exponents, f"{fit.knees[len(PARTS) // 2]:.1f}", f"{fit.error:.3f}"
        )
    people = Table(title="Users, families and limits in logs")
    people.add_column("")
    for each in logs:
        people.add_column(each.log, justify="right")
    for place, name in enumerate(logs[0]._fields[1:] if logs else (), 1):
        people.add_row(name, *(f"{each[place]:.3g}" if place > 2 else f"{each[place]:,}" for each in logs))
    out = wide_console(160)
    out.print(table)
    out.print(people)
