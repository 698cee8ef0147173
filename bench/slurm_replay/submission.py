"""Submits each job of a workload at its time and as its user, and waits until all have ended."""

import time
from collections.abc import Callable, Sequence
from typing import Final

from rlalloc.bounds import NodeShape
from rlalloc_simulator.workloads import WorkloadJob
from rlalloc_simulator.workloads.sbatch_scripts import ScriptSettings, script_of
from slurm_testbed import Site, TestbedError

Tell = Callable[[float], None]
"""Called with the part of the jobs that has ended, 0 to 1."""

LOOK_EVERY_S: Final = 5.0
LEAD_S: Final = 2.0
"""From the start of the submissions to the first job."""


def submit_all(site: Site, jobs: Sequence[WorkloadJob], shape: NodeShape, tell: Tell) -> dict[int, int]:
    """Submit jobs at their times; return Slurm's id by the workload's. Raises TestbedError if sbatch refuses one."""
    began_s = time.monotonic() + LEAD_S
    looked_s = time.monotonic()
    ids: dict[int, int] = {}
    for job in jobs:
        script = script_of(job, shape, ScriptSettings(compression=1.0))
        time.sleep(max(0.0, began_s + job.submit_s - time.monotonic()))
        ids[job.id] = site.sbatch(script, user=job.user)
        if time.monotonic() - looked_s > LOOK_EVERY_S:
            looked_s = time.monotonic()
            tell((len(ids) - len(active(site))) / len(jobs))
    return ids


def wait_until_ended(site: Site, jobs: int, tell: Tell, timeout_s: float) -> None:
    """Return when no job is left in the queue. Raises TestbedError with those that are after ``timeout_s``."""
    deadline_s = time.monotonic() + timeout_s
    while left := active(site):
        tell((jobs - len(left)) / jobs)
        if time.monotonic() > deadline_s:
            raise TestbedError(f"not ended after {timeout_s:.0f} s: {', '.join(left[:10])}; see slurmctld's log")
        time.sleep(LOOK_EVERY_S)


def active(site: Site) -> list[str]:
    """Jobs that wait or run, one a line of squeue: id, state and reason."""
    return site.run(["squeue", "--noheader", "--format=%i %T %r"]).splitlines()
