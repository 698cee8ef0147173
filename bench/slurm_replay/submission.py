"""Submits each job of a workload at its time and as its user, and waits until all have ended."""

import time
from collections.abc import Callable, Collection, Sequence
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
TRIES: Final = 3
"""How often a job is submitted whose sbatch is ended by a signal: it crashed, or the system was short of memory."""
STORED_AFTER_S: Final = 1.0
"""What slurmctld took from a process that has ended is in the queue by then."""


def submit_all(site: Site, jobs: Sequence[WorkloadJob], shape: NodeShape, tell: Tell) -> dict[int, int]:
    """Submit jobs at their times; return Slurm's id by the workload's. Raises TestbedError if one cannot be."""
    began_s = time.monotonic() + LEAD_S
    looked_s = time.monotonic()
    ids: dict[int, int] = {}
    for job in jobs:
        script = script_of(job, shape, ScriptSettings(compression=1.0))
        time.sleep(max(0.0, began_s + job.submit_s - time.monotonic()))
        ids[job.id] = submit(site, job, script, ids.values())
        if time.monotonic() - looked_s > LOOK_EVERY_S:
            looked_s = time.monotonic()
            tell((len(ids) - len(active(site))) / len(jobs))
    return ids


def submit(site: Site, job: WorkloadJob, script: str, known: Collection[int]) -> int:
    """Submit a job of the workload and return Slurm's id; ``known`` are those of all that were submitted before.

    If a signal ends sbatch, it is run again, unless slurmctld has the job already. Raises TestbedError.
    """
    for _ in range(TRIES):
        done = site.try_run(["sbatch", "--parsable"], user=job.user, input=script)
        if done.status == 0:
            return int(done.output.split(";")[0])
        if done.status > 0:
            break
        time.sleep(STORED_AFTER_S)
        if taken := _all_jobs(site) - set(known):
            return max(taken)
    how = f"exit status {done.status}" if done.status > 0 else f"ended by signal {-done.status}, {TRIES} times"
    raise TestbedError(
        f"job {job.id} of the workload, of {job.user}, could not be submitted: sbatch, {how}: "
        f"{done.error_output.strip() or 'it said nothing'}"
    )


def wait_until_ended(site: Site, jobs: int, tell: Tell, timeout_s: float) -> None:
    """Return when no job is left in the queue. Raises TestbedError with those that are after ``timeout_s``."""
    deadline_s = time.monotonic() + timeout_s
    while left := active(site):
        tell((jobs - len(left)) / jobs)
        if time.monotonic() > deadline_s:
            raise TestbedError(f"not ended after {timeout_s:.0f} s: {', '.join(left[:10])}; see slurmctld's log")
        time.sleep(LOOK_EVERY_S)


def _all_jobs(site: Site) -> set[int]:
    """Ids of all jobs that slurmctld knows, also of those that have ended (MinJobAge)."""
    return {int(line) for line in site.run(["squeue", "--noheader", "--states=all", "--format=%A"]).split()}


def active(site: Site) -> list[str]:
    """Jobs that wait or run, one a line of squeue: id, state and reason."""
    return site.run(["squeue", "--noheader", "--format=%i %T %r"]).splitlines()
