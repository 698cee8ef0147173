"""The demo from end to end: the site, two runs of one workload, training, faults and a summary.

Exit status: 0 all checks hold, 1 one does not, 2 the demo cannot run here, 130 interrupted; then the site is ended.
"""

import io
import os
import sys
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console, Group
from rich.text import Text

from rlalloc_demo import checks
from rlalloc_demo.checks import Check
from rlalloc_demo.demo_comparison import interesting_job, run_workload
from rlalloc_demo.demo_errors import DemoError
from rlalloc_demo.demo_measures import summaries
from rlalloc_demo.demo_site import SITE_NAME, Place, build
from rlalloc_demo.demo_tables import check_table, comparison, phase_table
from rlalloc_demo.demo_training import train
from rlalloc_demo.demo_workload import read_workloads
from rlalloc_demo.faults import show_faults
from rlalloc_demo.screen import Screen
from slurm_testbed import DEFAULT_ROOT, InvalidSpecError, MissingSoftwareError, NotPermittedError, TestbedError
from slurm_testbed.registry import remove

FAILED: Final = 1
CANNOT: Final = 2
INTERRUPTED: Final = 130
WIDTH: Final = 118


def main() -> None:
    """Console script."""
    typer.run(_command)


def _command(
    svg: Annotated[Path | None, typer.Option(help="Write the comparison as an SVG file too.")] = None,
) -> None:
    """Bring up a Slurm site on this machine and show rlalloc at work on it, in about five minutes."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
    if os.geteuid() != 0:
        console.print("rlalloc_demo: the demo starts Slurm with several users: run it as root (make demo uses sudo)")
        raise typer.Exit(CANNOT)
    try:
        status = run(console, svg)
    except (MissingSoftwareError, NotPermittedError, InvalidSpecError) as error:
        console.print(f"rlalloc_demo: {error}", markup=False)
        raise typer.Exit(CANNOT) from error
    except (DemoError, TestbedError) as error:
        console.print(f"rlalloc_demo: {error}", markup=False)
        console.print(f"The site still runs; its logs are in {DEFAULT_ROOT / SITE_NAME}/log. make down ends it.")
        raise typer.Exit(FAILED) from error
    except KeyboardInterrupt as error:
        console.print("interrupted: taking the site down")
        remove(SITE_NAME, DEFAULT_ROOT.resolve())
        raise typer.Exit(INTERRUPTED) from error
    raise typer.Exit(status)


def run(console: Console, svg: Path | None) -> int:
    """Run all phases; returns the exit status. Raises DemoError or TestbedError where one cannot be run."""
    workloads = read_workloads()
    with Screen(console) as screen:
        screen.phase("a Slurm site on this machine: munge, MariaDB, slurmdbd, slurmctld, 4 nodes of 8 GPUs")
        place = build(workloads.users)
        users = ", ".join(workloads.users)
        screen.say(f"       {place.site.directory}; Slurm {place.slurm.config.slurm_version}; users {users}")
        screen.waiting("starting rlalloc-agent and rlallocd")
        place.start_agent()
        place.start_daemon()
        first = place.served_version()
        screen.say(f"       rlalloc-agent serves policy {first}; rlallocd is in shadow mode")

        screen.phase(f"shadow: {len(workloads.workload)} jobs; rlalloc decides, records and touches nothing")
        shadow = run_workload(place, screen, workloads.workload, "shadow")
        place.set_mode("enforce")
        screen.phase("enforced: the same jobs, sized by rlalloc")
        enforced = run_workload(place, screen, workloads.workload, "enforce")
        tables = comparison(summaries(shadow.jobs), summaries(enforced.jobs))
        screen.say(tables)

        screen.phase("training on what came of it")
        trained = train(place, screen)
        screen.phase("faults: the agent, then the daemon, is killed while jobs come in")
        faults = show_faults(place, screen, workloads, trained.served)

        screen.phase("what came of it")
        for table in faults.tables:
            screen.say(table)
        screen.say(tables)
        job_id = interesting_job(place, shadow, enforced)
        screen.say(f"rlalloc explain {job_id}, the resized job that gained most:")
        explained = explain(place, screen, job_id)
        decided = [*shadow.decisions.values(), *enforced.decisions.values(), *faults.decisions]
        found = [
            *shadow.checks,
            *enforced.checks,
            *trained.checks,
            *faults.checks,
            checks.rewarded(decided, place),
            explained,
        ]
        screen.say(check_table(found))
        screen.finish_phase()
        screen.say(phase_table(screen.lengths))
    if svg is not None:
        save_svg(svg, Group(tables, check_table(found)))
    console.print(closing_words(place), soft_wrap=True, markup=False)
    return 0 if all(check.holds for check in found) else FAILED


def explain(place: Place, screen: Screen, job_id: int) -> Check:
    """Show what ``rlalloc explain`` prints."""
    with place.rlalloc("explain", str(job_id), "--verbose") as process:
        story, _ = process.communicate()
    screen.say(Text.from_ansi(story))
    explained = process.returncode == 0 and all(word in story for word in ("request", "shares", "policy", "outcome"))
    return Check("rlalloc explain explains a job", explained, f"job {job_id}, exit status {process.returncode}")


def save_svg(path: Path, content: Group) -> None:
    """Write what a terminal would show as an SVG file."""
    recorder = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, highlight=False)
    recorder.print(content)
    path.write_text(recorder.export_svg(title="make demo"), encoding="utf-8")


def closing_words(place: Place) -> str:
    """Say where to look now, and how to end the site."""
    python = "PYTHONPATH=testbed .venv/bin/python"
    return (
        f"\nThe site is still up, with agent and daemon. Look around, from this project's folder:\n"
        f'  eval "$({python} -m slurm_testbed env {SITE_NAME})"; sacct -a -X; squeue\n'
        f"  .venv/bin/rlalloc status --config {place.config_file}\n"
        f"Logs: {place.site.log_directory}. Jobs' output: {place.site.directory}/home. `make down` ends all of it."
    )
