"""``python -m rlalloc_twins FOLDER --site NAME`` plays the folder's plan on one of the twin sites.

Progress goes to standard output, a line with the part that is done. Exit: 0 done, 1 failed.
"""

import argparse
import sys
from pathlib import Path
from typing import get_args

from rlalloc.errors import RlallocError
from rlalloc_twins.plan_player import PlanPlayer
from rlalloc_twins.queue_samples import QueueSampler
from rlalloc_twins.record_gathering import gather
from rlalloc_twins.twin_plan import SiteName, read_plan
from rlalloc_twins.twin_record import write_record
from rlalloc_twins.twin_sites import site_for
from slurm_testbed import TestbedError


def main() -> int:
    """Exit status."""
    parser = argparse.ArgumentParser(prog="rlalloc_twins", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mode", choices=get_args(SiteName), required=True, help="what rlalloc does there")
    options = parser.parse_args()
    try:
        play(options.folder, options.mode)
    except (RlallocError, TestbedError) as err:
        sys.stderr.write(f"rlalloc_twins: {err}\n")
        return 1
    return 0


def play(folder: Path, name: SiteName) -> None:
    """Play the folder's plan on a site of its own; write down what came of it. Raises RlallocError, TestbedError."""
    plan = read_plan(folder)
    with site_for(plan, name) as (site, rlalloc):
        player = PlanPlayer(site, plan, _tell)
        sampler = QueueSampler(site)
        if plan.sampled:
            sampler.start()
        player.play()
        if plan.sampled:
            sampler.stop()
        write_record(folder, gather(site, rlalloc, plan, player, name, sampler.looks))


def _tell(done: float) -> None:
    sys.stdout.write(f"{done:.3f}\n")
    sys.stdout.flush()


sys.exit(main())
