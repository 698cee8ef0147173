"""A burst of jobs on a full site: when the last of them is begun, and what that costs."""

import os
import resource
import sqlite3
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from rlalloc.store import OPEN_STATES
from rlalloc_testbed import Installation
from slurm_load import slurmctld_log
from slurm_load.load_site import commit, full_site, measured_place, submit, submit_others
from slurm_load.processor_times import process_of, processor_s
from slurm_testbed import Site, wait_until
from slurm_testbed.slurm_configuration import SCHEDULER_PARAMETERS

LONGEST_BURST_S: Final = 15.0
_PATIENCE_S: Final = 300.0
_REST_S: Final = 15.0


def measure_burst(jobs: int, waiting: int, of_user: str) -> bool:
    """Print a table of one burst, beside so many jobs of no rule; whether all jobs were begun in time.

    Wall-clock times count from the start of the first sbatch, processor times until the last job is done.
    """
    with measured_place(**_scheduling(waiting)) as rlalloc:
        site = rlalloc.site
        _prepare(site, jobs, waiting, of_user)
        daemon = process_of(site, "rlallocd")
        burst = _Burst(site)
        own_s, commands_s = processor_s(daemon)
        job_ids = submit(site, jobs)
        ends = _ends(rlalloc, len(job_ids))
        own_s, commands_s = (now - then for now, then in zip(processor_s(daemon), (own_s, commands_s), strict=True))
        updates = slurmctld_log.last_updates(burst.log, job_ids)
        done_s = max(updates.values(), default=burst.start_s) - burst.start_s
        begun = ends["begun"]
        burst.print_row(
            job_ids,
            {"all jobs done": f"{done_s:.1f} s", "begun": f"{begun}", "left": f"{jobs - begun}"},
            {"rlallocd": own_s, "its commands": commands_s},
        )
    met = begun == jobs and done_s <= LONGEST_BURST_S
    print(f"all decided and begun within {LONGEST_BURST_S:g} s: {'met' if met else 'MISSED'}", flush=True)
    return met


def measure_bare_burst(jobs: int, waiting: int, of_user: str) -> bool:
    """Print what the same submissions take on the same site without rlalloc."""
    with full_site(job_submit_lua=None, **_scheduling(waiting)) as site:
        _prepare(site, jobs, waiting, of_user)
        burst = _Burst(site)
        burst.print_row(submit(site, jobs), {}, {})
    return True


def _scheduling(waiting: int) -> dict[str, Any]:
    """With a long queue, Slurm's own defaults: the testbed's backfill would hold slurmctld's locks for long."""
    defaults = {**dict.fromkeys(SCHEDULER_PARAMETERS), "bf_interval": "30"}
    return {"scheduler_parameters": defaults} if waiting else {}


def _prepare(site: Site, jobs: int, waiting: int, of_user: str) -> None:
    print(f"commit {commit()}, {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, {os.cpu_count()} cores")
    submit_others(site, waiting, of_user)
    time.sleep(_REST_S if waiting else 0.0)
    version = site.run(["scontrol", "--version"]).strip()
    print(f"{version}; {jobs} jobs from two loops of sbatch, beside {waiting} of {of_user} that wait", flush=True)


class _Burst:
    """One burst: its start, and the processor times before it."""

    def __init__(self, site: Site) -> None:
        self.log: Path = site.log_directory / "slurmctld.log"
        self._servers = {name: process_of(site, name) for name in ("slurmctld", "munged")}
        self._before_s = self._processor_s()
        self._load = os.getloadavg()[0]
        self.start_s = time.time()

    def print_row(self, job_ids: list[int], ends: dict[str, str], others_s: dict[str, float]) -> None:
        """Print the table of the burst as of now. ``others_s`` are further processor times."""
        after_s = self._processor_s()
        submitted_s = max(slurmctld_log.submissions(self.log, job_ids).values()) - self.start_s
        row = {"load before, after": f"{self._load:.1f}, {os.getloadavg()[0]:.1f}"}
        row |= {"last submission": f"{submitted_s:.1f} s"} | ends
        used_s = others_s | {name: after_s[name] - before_s for name, before_s in self._before_s.items()}
        row |= {name: f"{seconds:.1f} s" for name, seconds in used_s.items()}
        print(f"\n| {' | '.join(row)} |\n|{'---:|' * len(row)}\n| {' | '.join(row.values())} |\n", flush=True)

    def _processor_s(self) -> dict[str, float]:
        """Of slurmctld and munged, and of sbatch and its shells, which are children of this process."""
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        servers_s = {name: processor_s(process)[0] for name, process in self._servers.items()}
        return servers_s | {"sbatch": used.ru_utime + used.ru_stime}


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
