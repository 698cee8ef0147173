"""Runs workloads on real sites as submitted, repaired and as shipped; prints JCT, real and predicted.

Runs are kept in FOLDER: the same command, given again, runs only what is missing. Needs root, Slurm and a checkout.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, get_args

import torch
from rich.console import Console

from rlalloc.errors import RlallocError
from rlalloc.progress import ProgressCallback
from rlalloc_agent.served_policy import load_shipped
from rlalloc_demo.demo_errors import DemoError
from rlalloc_simulator.command_line import progress_bar
from rlalloc_simulator.workloads import read_workload
from rlalloc_validation.real_site import run_real
from rlalloc_validation.recorded_run import read_run
from rlalloc_validation.simulated_run import launch_s_of
from rlalloc_validation.validation_settings import WORKLOAD_FILE, ValidationError, ValidationSettings, read_settings
from slurm_gain.gain_figure import draw
from slurm_gain.gain_plan import BEFORE, COMPARED, SIZED, Planned, WorkloadName, plan, prepare
from slurm_gain.gain_prediction import policies, predictions_s
from slurm_gain.gain_table import gain_table, jct_table
from slurm_gain.gains import Measured, measured_of

WIDTH: Final = 130
SEEDS: Final = 3
CONTENDED: Final = ValidationSettings(load=1.0)
QUICK_SEEDS: Final = 2
QUICK: Final = ValidationSettings(load=1.0, jobs=60, nodes=4, submit_for_s=120)


def main() -> int:
    """Exit status: 0 done, 1 failed, 130 interrupted; the runs that ended are kept in any case."""
    options = _parse()
    try:
        _gain(options)
    except (RlallocError, DemoError) as err:
        print(f"slurm_gain: {err}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="slurm_gain", description=__doc__)
    parser.add_argument("folder", type=Path, help="where runs are kept; a new one, or that of an earlier command")
    parser.add_argument("--workload", action="append", choices=get_args(WorkloadName), help="without it, all")
    parser.add_argument("--quick", action="store_true", help="60 jobs on four nodes, two seeds, without the demo's")
    parser.add_argument("--seeds", type=int, help=f"of each workload (default: {SEEDS})")
    parser.add_argument("--jobs", type=int, help=f"of the workload with contention (default: {CONTENDED.jobs})")
    parser.add_argument("--minutes", type=float, help="for so long they are submitted (default: 8)")
    parser.add_argument("--load", type=float, help=f"offered GPU load meanwhile (default: {CONTENDED.load:g})")
    parser.add_argument("--recorded", action="store_true", help="run nothing: compare what is in FOLDER")
    parser.add_argument("--png", type=Path, metavar="FILE", help="draw both sides")
    options = parser.parse_args()
    for name in ("seeds", "jobs", "minutes", "load"):
        if (value := getattr(options, name)) is not None and value <= 0:
            parser.error(f"--{name} {value:g}: write a number above 0")
    return options


def _gain(options: argparse.Namespace) -> None:
    chosen = _plan(options)
    with progress_bar() as report:
        if not options.recorded:
            _run(chosen, options.folder, report)
        measured = _compare([each for each in chosen if not each.missing(options.folder)], options.folder, report)
    left = len(chosen) - len(measured)
    terminal = Console()
    console = Console(width=None if terminal.is_terminal else WIDTH, highlight=False)
    manifest = load_shipped()[1]
    console.print(f"The shipped policy is {manifest.version}; its network answers {manifest.routing.describe()}.")
    console.print(jct_table(measured))
    console.print(gain_table(measured))
    if left:
        console.print(
            f"{left} of {len(chosen)} workloads were not run yet: the same command without --recorded does."
        )
    if options.png is not None:
        draw(measured, options.png)


def _plan(options: argparse.Namespace) -> tuple[Planned, ...]:
    contended = QUICK if options.quick else CONTENDED
    changed = ValidationSettings(
        jobs=options.jobs or contended.jobs,
        nodes=contended.nodes,
        submit_for_s=round(60 * options.minutes) if options.minutes else contended.submit_for_s,
        load=options.load or contended.load,
    )
    workloads = options.workload or (("contention",) if options.quick else get_args(WorkloadName))
    return plan(tuple(dict.fromkeys(workloads)), options.seeds or (QUICK_SEEDS if options.quick else SEEDS), changed)


def _run(chosen: Sequence[Planned], kept: Path, report: ProgressCallback) -> None:
    """Run what is missing: one workload at a time, its modes side by side, so that all share the machine's load."""
    for place, planned in enumerate(chosen):
        prepare(planned, kept)
        what = f"{planned.workload}, seed {planned.seed}"

        def tell(_what: str, done: float, what: str = what, place: int = place) -> None:
            report(what, (place + done) / len(chosen))

        tell("", 0.0)
        if missing := planned.missing(kept):
            run_real(planned.folder(kept), missing, tell)


def _compare(chosen: Sequence[Planned], kept: Path, report: ProgressCallback) -> list[Measured]:
    """Compare the real runs of each workload with the simulator's. Raises ValidationError if there are none."""
    if not chosen:
        raise ValidationError(f"{kept} has no workload that was run to its end: run the command without --recorded")
    torch.set_num_threads(1)
    deciding = policies()
    version = load_shipped()[1].version
    measured = []
    for place, planned in enumerate(chosen):
        report("the simulator", place / len(chosen))
        folder = planned.folder(kept)
        header, jobs = read_workload(folder / WORKLOAD_FILE)
        settings = read_settings(folder)
        runs = {mode: read_run(folder, mode) for mode in COMPARED}
        for mode in SIZED:
            if runs[mode].policy != version:
                raise ValidationError(
                    f"{folder} was run with policy {runs[mode].policy or 'none'}, {version} ships by now: name a new "
                    f"folder, or remove {mode}.json there to run it again"
                )
        launch_s = launch_s_of(header, jobs, settings, runs[BEFORE])
        predicted = predictions_s(header, jobs, settings, deciding, launch_s)
        measured.append(measured_of(planned.workload, planned.seed, runs, predicted))
    report("done", 1.0)
    return measured
