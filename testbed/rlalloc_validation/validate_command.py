"""The command ``make validate``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.table import Table

from rlalloc_simulator.command_line import errors_end_here, progress_bar
from rlalloc_simulator.workloads.workload_errors import WorkloadError

if TYPE_CHECKING:
    from rlalloc_validation.job_comparison import Compared
    from rlalloc_validation.validate import Validated

WIDTH: Final = 118
SHOWN: Final = 5
"""Jobs that differ most, of each mode."""
MISSED: Final = 1


def validate(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A new folder for the workload and the real runs.")
    ],
    *,
    recorded: Annotated[
        bool, typer.Option("--recorded", help="Run nothing: compare the real runs that are in the folder.")
    ] = False,
    mode: Annotated[
        list[str] | None, typer.Option(metavar="MODE", help="off, shadow or enforce; without it, all three.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=20, help="Jobs of the workload.")] = 300,
    minutes: Annotated[float, typer.Option(min=0.5, help="Jobs are submitted for this long.")] = 8.0,
    load: Annotated[float, typer.Option(min=0.01, max=100, help="Offered GPU load meanwhile.")] = 0.85,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all randomness.")] = 0,
    png: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw both side by side.")] = None,
) -> None:
    """Compare the engine with a real slurmctld: one workload on both, without rlalloc, in shadow mode and enforced.

    Brings up three sites on this machine (root, Slurm and a checkout of the project are needed) and takes about a
    quarter of an hour. Exit status 1 if a target was missed.
    """
    from rlalloc_validation.validate import compare_recorded, run_and_compare
    from rlalloc_validation.validation_settings import MODES, ValidationSettings

    with errors_end_here("validate", WorkloadError):
        modes = tuple(each for each in MODES if mode is None or each in mode)
        if not modes or (mode and not set(mode) <= set(MODES)):
            raise WorkloadError(f"--mode {', '.join(mode or ())}: write {', '.join(MODES)}, each behind --mode")
        with progress_bar() as report:
            if recorded:
                validated = compare_recorded(folder, modes, report)
            else:
                settings = ValidationSettings(jobs=jobs, submit_for_s=round(60 * minutes), load=load, seed=seed)
                validated = run_and_compare(folder, settings, modes, report)
        _print(validated)
        if png is not None:
            from rlalloc_validation.validation_pictures import draw

            draw(validated.compared, png)
    if validated.missed:
        raise typer.Exit(MISSED)


def _print(validated: "Validated") -> None:
    terminal = Console()
    console = Console(width=None if terminal.is_terminal else WIDTH, highlight=False)
    console.print(_table(validated))
    for compared in validated.compared:
        _print_differences(console, compared, float(validated.settings.bf_interval_s))
    for text in validated.missed:
        console.print(f"missed: {text}", markup=False)


def _table(validated: "Validated") -> Table:
    from rlalloc_validation.job_comparison import INTERVALS, JCT_TOLERANCE, LEAST_RANK_CORRELATION

    settings = validated.settings
    figures = [each.figures for each in validated.compared]
    table = Table(title=f"{figures[0].jobs} jobs on {settings.gpus} GPUs: real slurmctld, engine")
    table.add_column("")
    for compared in validated.compared:
        table.add_column(compared.mode, justify="right")
    table.add_column("target", justify="right")
    most_s = INTERVALS * settings.bf_interval_s
    table.add_row("mean wait, s", *(f"{a:.1f}, {b:.1f}" for a, b in (each.wait_s for each in figures)), "")
    table.add_row("wait, median error, s", *(f"{each.wait_error_s[0]:.1f}" for each in figures), f"< {most_s:g}")
    table.add_row("wait, 90th percentile of the error, s", *(f"{each.wait_error_s[1]:.1f}" for each in figures), "")
    table.add_row("end, median error, s", *(f"{each.end_error_s:.1f}" for each in figures), "")
    table.add_row("mean JCT, s", *(f"{a:.1f}, {b:.1f}" for a, b in (each.jct_s for each in figures)), "")
    table.add_row("mean JCT, error", *(f"{each.jct_error:+.1%}" for each in figures), f"± {JCT_TOLERANCE:.0%}")
    table.add_row(
        "rank correlation of starts", *(f"{each.rank:.4f}" for each in figures), f"> {LEAST_RANK_CORRELATION}"
    )
    table.add_row("jobs that ended otherwise", *(str(each.other_state) for each in figures), "")
    table.add_row("jobs sized otherwise", *(str(each.other_size) for each in figures), "", end_section=True)
    launches = (f"{each:.2f}" for each in validated.launch_s)
    table.add_row("launching a job, from the other runs, s", *launches, "", end_section=True)
    spreads = validated.spreads
    table.add_row("engine, submissions moved by 0.5 s, against itself")
    table.add_row("  wait, median error, s", *(f"{each.wait_error_s:.1f}" for each in spreads), "")
    table.add_row("  mean JCT, error", *(f"{each.jct_error:.1%}" for each in spreads), "")
    table.add_row("  rank correlation of starts", *(f"{each.rank:.4f}" for each in spreads), "")
    if (again := validated.again) is not None:
        blank = ("",) * len(figures)
        table.add_section()
        table.add_row("the real site, shadow against off: the same again", *blank)
        table.add_row("  wait, median error, s", *blank, f"{again.wait_error_s[0]:.1f}")
        table.add_row("  mean JCT, error", *blank, f"{again.jct_error:+.1%}")
        table.add_row("  rank correlation of starts", *blank, f"{again.rank:.4f}")
    return table


def _print_differences(console: Console, compared: "Compared", interval_s: float) -> None:
    from rlalloc_validation.deviation_reasons import WORDS, counts, explain

    explained = explain(compared.pairs, interval_s)
    found = "; ".join(f"{WORDS[reason]}: {count}" for reason, count in counts(explained).most_common())
    differ = f"{len(explained)} of {compared.figures.jobs} waits differ by more than an interval"
    console.print(f"{compared.mode}: {differ}{': ' if found else ''}{found}.", markup=False)
    if not explained:
        return
    table = Table()
    for name in ("job", "wait real, s", "engine, s", "why"):
        table.add_column(name, justify="left" if name == "why" else "right")
    for each in explained[:SHOWN]:
        pair = each.pair
        why = f"{WORDS[each.reason]}: {each.detail}" if each.detail else WORDS[each.reason]
        table.add_row(str(pair.real.number), f"{pair.real.wait_s:.0f}", f"{pair.simulated.wait_s:.0f}", why)
    console.print(table)
