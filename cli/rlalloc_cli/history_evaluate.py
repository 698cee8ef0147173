"""``rlalloc history evaluate``: how well the run times in a log are predicted."""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from rlalloc.errors import HistoryError, RlallocError
from rlalloc.history import LogFormat, ReadTally, read_file
from rlalloc.past_job import PastJob
from rlalloc_cli.terminal import CONSOLE, complain, fail

if TYPE_CHECKING:
    from rlalloc.run_times.evaluation import Figures

AT_MOST: Final = 100_000


def history_evaluate(
    file: Annotated[Path, typer.Argument(help="A log of ended jobs.")],
    *,
    log_format: Annotated[LogFormat, typer.Option("--from", help="The format of the file: sacct or swf.")] = "sacct",
    last: Annotated[
        int, typer.Option(min=1, help="Read only the last N jobs of the file, to bound memory.")
    ] = AT_MOST,
    usage: Annotated[
        bool,
        typer.Option("--usage", help="Replay the trimming of memory and CPUs instead; the log must have their use."),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Predict the run times in a log, strictly in time order, and print how good the predictions are.

    A prediction uses only jobs that had ended when the job was submitted. Figures leave out the first fifth.
    """
    from rlalloc.past_job import in_order_of_submission
    from rlalloc.run_times.evaluation import MOMENTS, Evaluation, evaluate
    from rlalloc.run_times.training import LearningSettings

    tally = ReadTally()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    console = Console(stderr=True, quiet=json)
    try:
        with Progress(*columns, console=console, disable=json or not console.is_terminal) as bar:
            task = bar.add_task("reading", total=1.0)
            jobs: deque[PastJob] = deque(read_file(file, log_format, tally), maxlen=last)
            if usage:
                print_trimming(in_order_of_submission(jobs), json=json)
                return
            result: Evaluation = evaluate(
                in_order_of_submission(jobs),
                LearningSettings(),
                lambda what, done: bar.update(task, description=what, completed=done),
            )
    except HistoryError as err:
        fail(f"{file}: {err}", code=2)
    except RlallocError as err:
        fail(str(err), code=1)
    if json:
        typer.echo(msgspec.json.format(msgspec.json.encode(result)).decode())
        return
    print_figures(
        f"Run times of {result.jobs:,} jobs of {file.name}, after {result.skipped:,} others", result.predictors
    )
    print_figures(f"Remaining times of running jobs, {result.running:,} at {MOMENTS:,} moments", result.remaining)
    CONSOLE.print(
        f"The predictor's error is {result.error_ratio:.2f} of the best baseline's. An error of 1 is a factor of 2.",
        soft_wrap=True,
    )
    if left_out := tally.describe():
        complain(f"left out: {left_out}")


def print_figures(title: str, of: "Mapping[str, Figures]") -> None:
    """Print how good predictors are."""
    table = Table(title=title)
    table.add_column("predictor")
    for heading in ("mean |log2 error|", "rank correlation", "in the 80% interval"):
        table.add_column(heading, justify="right")
    for name, figures in of.items():
        coverage = "-" if figures.coverage is None else f"{figures.coverage:.1%}"
        table.add_row(name, f"{figures.log2_error:.2f}", f"{figures.rank_correlation:.3f}", coverage)
    CONSOLE.print(table)


def print_trimming(jobs: Sequence[PastJob], *, json: bool) -> None:
    """Print what trimming would have given back, and how many jobs it would have killed, after the first fifth.

    Raises HistoryError where the log says of no job what it used.
    """
    from rlalloc.usage.trimming_rules import DEFAULT_RULES
    from rlalloc.usage.usage_replay import LoggedUse, UsageReplay

    if not any(job.node_rss_mib or job.cpu_s_used for job in jobs):
        raise HistoryError("it says of no job what it used: give it TotalCPU, MaxRSS, TRESUsageInTot, NTasks, NNodes")
    found = UsageReplay(jobs, LoggedUse(jobs), DEFAULT_RULES, len(jobs) // 5).run()
    if json:
        typer.echo(msgspec.json.format(msgspec.json.encode(found)).decode())
        return
    table = Table(title=f"Memory and CPUs of {found.jobs:,} jobs, trimmed as far as the defaults of rlalloc allow")
    for heading in ("", "jobs trimmed", "over-asked", "given back", "killed"):
        table.add_column(heading, justify="right" if heading else "left")
    rows = (
        ("memory", found.memory_trimmed, found.over_asked_gib_hours, "GiB-hours", found.memory_back, found.killed),
        ("CPUs", found.cpus_trimmed, found.over_asked_cpu_hours, "CPU-hours", found.cpus_back, 0),
    )
    for name, trimmed, over, unit, back, killed in rows:
        given_back = "-" if math.isnan(back) else f"{back:.0%}"
        table.add_row(name, f"{trimmed:,}", f"{over:,.0f} {unit}", given_back, f"{killed:,}")
    CONSOLE.print(table)
