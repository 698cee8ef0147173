"""Runs the workload of a folder on a site of its own and writes down what became of it.

Progress goes to standard output, a line with the part of the jobs that has ended. Exit: 0 done, 1 failed.
"""

import argparse
import sys
from pathlib import Path
from typing import Final, get_args

from rlalloc.errors import RlallocError
from rlalloc_simulator.workloads import read_workload
from rlalloc_validation.recorded_run import write_run
from rlalloc_validation.validation_settings import WORKLOAD_FILE, Mode, read_settings, submitted_in
from slurm_replay.replay_records import run_of, sacct_text
from slurm_replay.replay_site import site_for
from slurm_replay.submission import submit_all, wait_until_ended
from slurm_testbed import TestbedError

DRAINS_WITHIN_S: Final = 1800.0


def main() -> int:
    """Exit status."""
    parser = argparse.ArgumentParser(prog="slurm_replay", description=__doc__)
    parser.add_argument("folder", type=Path, help="with settings.json and workload.jsonl (make validate)")
    parser.add_argument("--mode", choices=get_args(Mode), required=True, help="what rlalloc does there")
    options = parser.parse_args()
    try:
        replay(options.folder, options.mode)
    except (RlallocError, TestbedError) as err:
        print(f"slurm_replay: {err}", file=sys.stderr)
        return 1
    return 0


def replay(folder: Path, mode: Mode) -> None:
    """Run the folder's workload in one mode; write MODE.json, and sacct's text as MODE.sacct.

    Raises RlallocError or TestbedError.
    """
    settings = read_settings(folder)
    _, jobs = read_workload(folder / WORKLOAD_FILE)
    users = tuple(sorted({job.user for job in jobs}))
    with site_for(settings, mode, users) as (site, rlalloc):
        ids = submit_all(site, submitted_in(jobs, mode), settings.shape, _tell)
        wait_until_ended(site, len(jobs), _tell, DRAINS_WITHIN_S)
        run = run_of(site, rlalloc, jobs, ids, mode)
        (folder / f"{mode}.sacct").write_text(sacct_text(site), encoding="utf-8")
        write_run(folder, run)


def _tell(done: float) -> None:
    print(f"{done:.3f}", flush=True)
