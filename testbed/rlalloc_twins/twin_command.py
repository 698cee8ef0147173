"""The commands ``make floor`` and ``make soak``: draw a plan, play it on twin sites, compare.

Needs root, Slurm and a checkout. Exit status 1 if a job fared worse.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.table import Table

from rlalloc_simulator.command_line import errors_end_here, progress_bar
from rlalloc_twins import floor_check, soak_check
from rlalloc_twins.floor_check import Problem
from rlalloc_twins.floor_plan import floor_plan
from rlalloc_twins.soak_plan import soak_plan
from rlalloc_twins.twin_plan import Plan, SiteName, TwinError, read_plan, write_plan
from rlalloc_twins.twin_record import SiteRecord, read_record
from rlalloc_validation.real_site import run_real

WIDTH: Final = 118
SHOWN: Final = 40
LONGEST: Final = 10
"""Problems, and waits, that are printed."""
PROGRAM: Final = "rlalloc_twins"
FARED_WORSE: Final = 1
WITHOUT: Final[SiteName] = "off"

app = typer.Typer(add_completion=False, no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder for the plan and what became of it.")]
Recorded = Annotated[bool, typer.Option("--recorded", help="Run nothing: compare what is in the folder.")]
Sites = Annotated[
    list[str] | None,
    typer.Option("--site", metavar="NAME", help="random, shipped, or again: a second one without rlalloc."),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of all randomness.")]
Release = Annotated[str | None, typer.Option(metavar="NAME", help="The Debian release whose Slurm runs.")]


@app.command()
def floor(
    folder: Folder,
    *,
    jobs: Annotated[int, typer.Option(min=1, help="Submissions.")] = 500,
    seed: Seed = 0,
    site: Sites = None,
    release: Release = None,
    recorded: Recorded = False,
) -> None:
    """Compare random submissions of all forms with and without rlalloc: what completes, in which environment."""
    with errors_end_here("floor", TwinError):
        sites = _sites(site)
        plan, off, on = _records(folder, sites, None if recorded else floor_plan(seed, jobs, release))
    console = _console()
    found = {record.site: floor_check.compare(plan, off, record) for record in on}
    console.print(_heading(plan, off))
    console.print(_counts({name: each.counts for name, each in found.items()}))
    _end(console, {name: each.problems for name, each in found.items()})


@app.command()
def soak(
    folder: Folder,
    *,
    jobs: Annotated[int, typer.Option(min=1, help="Jobs.")] = 1000,
    minutes: Annotated[float, typer.Option(min=0.2, help="They are submitted for so long.")] = 11.0,
    seed: Seed = 0,
    site: Sites = None,
    release: Release = None,
    recorded: Recorded = False,
) -> None:
    """Compare how long jobs wait, and for what, with and without rlalloc, while nodes drain and are maintained."""
    with errors_end_here("soak", TwinError):
        sites = _sites(site)
        plan, off, on = _records(folder, sites, None if recorded else soak_plan(seed, jobs, minutes, release))
    console = _console()
    found = {record.site: soak_check.compare(plan, off, record) for record in on}
    console.print(_heading(plan, off))
    console.print(_counts({name: each.counts for name, each in found.items()}))
    console.print(_waits(found))
    _end(console, {name: each.problems for name, each in found.items()})


def _sites(names: Sequence[str] | None) -> tuple[SiteName, ...]:
    known: tuple[SiteName, ...] = ("random", "shipped", "again")
    chosen = tuple(each for each in known if each in (names or ("random", "shipped")))
    if not set(names or ()) <= set(known):
        raise TwinError(f"--site {', '.join(names or ())}: write {', '.join(known)}, each behind --site")
    return chosen


def _records(
    folder: Path, sites: Sequence[SiteName], drawn: Plan | None
) -> tuple[Plan, SiteRecord, list[SiteRecord]]:
    """The plan and the records of the site without rlalloc and of the others; played first if there is a new plan."""
    if drawn is not None:
        write_plan(folder, drawn)
        with progress_bar() as report:
            run_real(folder, (WITHOUT, *sites), report, PROGRAM)
    return read_plan(folder), read_record(folder, WITHOUT), [read_record(folder, name) for name in sites]


def _console() -> Console:
    terminal = Console()
    return Console(width=None if terminal.is_terminal else WIDTH, highlight=False)


def _heading(plan: Plan, off: SiteRecord) -> str:
    load = ", ".join(f"{each:.1f}" for each in off.load_of_machine)
    what = f"{len(plan.submissions)} submissions, seed {plan.seed}, {off.slurm}"
    return f"{what}, {off.took_s:.0f} s, machine load {load}"


def _counts(by_site: Mapping[SiteName, Mapping[str, int]]) -> Table:
    table = Table()
    table.add_column("")
    for name in by_site:
        table.add_column(name, justify="right")
    for row in dict.fromkeys(row for counts in by_site.values() for row in counts):
        table.add_row(row, *(str(counts.get(row, 0)) for counts in by_site.values()))
    return table


def _waits(found: Mapping[SiteName, soak_check.Soak]) -> Table:
    table = Table(title="seconds of waiting that a larger size may explain, the longest")
    for column in ("site", "job", "reason", "in our size", "its twin, in all"):
        table.add_column(column, justify="left" if column in ("site", "job", "reason") else "right")
    for name, each in found.items():
        for wait in each.waits[:LONGEST]:
            table.add_row(name, wait.key, wait.reason, f"{wait.in_our_size_s:.1f}", f"{wait.twin_s:.1f}")
        for what, values in (("mean wait", [mean for mean, _ in each.wait_s]), ("mean JCT", each.jct_s),
                             ("95th percentile of the wait", [late for _, late in each.wait_s])):  # fmt: skip
            table.add_row(name, "all", what, f"{values[1]:.1f}", f"{values[0]:.1f}")
    return table


def _end(console: Console, problems: Mapping[SiteName, Sequence[Problem]]) -> None:
    for name, each in problems.items():
        console.print(f"{name}: {len({problem.key for problem in each})} jobs that are not as without rlalloc")
        for problem in each[:SHOWN]:
            console.print(f"  {problem.key} ({problem.form}): {problem.text}", markup=False, soft_wrap=True)
    if any(problems.values()):
        raise typer.Exit(FARED_WORSE)


if __name__ == "__main__":
    app()
