"""A burst of jobs on a full site without a queue: when the last of them is begun, and what that costs."""

import os
import sqlite3
import time
from collections import Counter
from typing import Final

from rlalloc.store import OPEN_STATES
from rlalloc_testbed import Installation
from slurm_load import slurmctld_log
from slurm_load.load_site import commit, measured_place, submit
from slurm_load.processor_times import process_of, processor_s
from slurm_testbed import wait_until

LONGEST_BURST_S: Final = 15.0
_PATIENCE_S: Final = 300.0


def measure_burst(jobs: int) -> bool:
    """Print a table of one burst; whether all jobs were begun in time.

    Wall-clock times count from the start of the first sbatch, processor times until the last job is done.
    """
    print(f"commit {commit()}, {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, {os.cpu_count()} cores")
    with measured_place() as rlalloc:
        print(f"{rlalloc.site.run(['scontrol', '--version']).strip()}; {jobs} jobs from two loops of sbatch")
        daemon, slurmctld = process_of(rlalloc.site, "rlallocd"), process_of(rlalloc.site, "slurmctld")
        before = *processor_s(daemon), processor_s(slurmctld)[0]
        load, start_s = os.getloadavg()[0], time.time()
        job_ids = submit(rlalloc, jobs)
        ends = _ends(rlalloc, len(job_ids))
        after = *processor_s(daemon), processor_s(slurmctld)[0]
        log = rlalloc.site.log_directory / "slurmctld.log"
        submitted_s = max(slurmctld_log.submissions(log, job_ids).values()) - start_s
        updates = slurmctld_log.last_updates(log, job_ids)
        done_s = max(updates.values(), default=start_s) - start_s
    own_s, commands_s, slurmctld_s = (now - then for now, then in zip(after, before, strict=True))
    begun = ends["begun"]
    print(
        "\n| load before, after | last submission | all jobs done | begun | left | rlallocd | commands | slurmctld |"
        f"\n|{'---:|' * 8}"
        f"\n| {load:.1f}, {os.getloadavg()[0]:.1f} | {submitted_s:.1f} s | {done_s:.1f} s | {begun} | {jobs - begun} "
        f"| {own_s:.1f} s | {commands_s:.1f} s | {slurmctld_s:.1f} s |\n"
    )
    met = begun == jobs and done_s <= LONGEST_BURST_S
    print(f"all decided and begun within {LONGEST_BURST_S:g} s: {'met' if met else 'MISSED'}", flush=True)
    return met


def _ends(rlalloc: Installation, jobs: int) -> Counter[str]:
    """Wait until the journal has the end of so many applications; how they ended. Asks the store, not slurmctld."""
    with_end = f"SELECT state, COUNT(*) FROM applications WHERE state NOT IN ({','.join('?' * len(OPEN_STATES))})"

    def ended() -> Counter[str] | None:
        connection = sqlite3.connect(f"file:{rlalloc.store_path}?mode=ro", uri=True)
        try:
            found = Counter(dict(connection.execute(f"{with_end} GROUP BY state", tuple(OPEN_STATES))))
        finally:
            connection.close()
        return found if found.total() >= jobs else None

    ends = wait_until(ended, what="the ends of all jobs", timeout_s=_PATIENCE_S, interval_s=0.5)
    assert ends is not None
    return ends
