"""The three measurements: calls in the steady state, a burst, and a job a second."""

import statistics
import time
from typing import Final

import msgspec

from rlalloc_testbed import USER, Installation
from slurm_load import sdiag, slurmctld_log
from slurm_load.load_site import submit, wait_until_begun

_CHUNK: Final = 200
_SETTLE_S: Final = 10.0


class Steady(msgspec.Struct, frozen=True, kw_only=True):
    """Calls to slurmctld over ``seconds`` in which nothing happens, by message type: how many, mean time in s."""

    seconds: float
    calls: dict[str, tuple[int, float]]

    @property
    def per_second(self) -> float:
        """Calls a second."""
        return sum(count for count, _ in self.calls.values()) / self.seconds


class Delays(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds for each job, from before its sbatch was started until slurmctld released it; ascending."""

    seconds: tuple[float, ...]

    @property
    def p50(self) -> float:
        """The median."""
        return statistics.median(self.seconds)

    @property
    def p99(self) -> float:
        """The 99th percentile; of fewer than 100 jobs the maximum."""
        return self.seconds[min(len(self.seconds) - 1, int(0.99 * len(self.seconds)))]


def fill(rlalloc: Installation, jobs: int) -> float:
    """Fill the queue, a few hundred jobs at a time so that none outlives its grace; returns the seconds it took."""
    start_s = time.monotonic()
    for first in range(0, jobs, _CHUNK):
        wait_until_begun(rlalloc, submit(rlalloc.site, min(_CHUNK, jobs - first)))
    return time.monotonic() - start_s


def steady(rlalloc: Installation, seconds: float) -> Steady:
    """Count calls while nothing is submitted."""
    time.sleep(_SETTLE_S)
    sdiag.reset(rlalloc.site)
    start_s = time.monotonic()
    time.sleep(seconds)
    return Steady(calls=sdiag.calls(rlalloc.site), seconds=time.monotonic() - start_s)


def burst(rlalloc: Installation, jobs: int) -> tuple[float, float]:
    """Submit jobs all at once; returns the seconds until the last was submitted, and until the last was released."""
    start_s = time.time()
    job_ids = submit(rlalloc.site, jobs)
    wait_until_begun(rlalloc, job_ids)
    log = rlalloc.site.log_directory / "slurmctld.log"
    return (
        max(slurmctld_log.submissions(log, job_ids).values()) - start_s,
        max(slurmctld_log.last_updates(log, job_ids).values()) - start_s,
    )


def one_a_second(rlalloc: Installation, jobs: int) -> Delays:
    """Submit one job each second."""
    submitted_s: dict[int, float] = {}
    start_s = time.monotonic()
    script = (rlalloc.site.home(USER) / "job.sh").read_text()
    for number in range(jobs):
        time.sleep(max(0.0, start_s + number - time.monotonic()))
        now_s = time.time()
        submitted_s[rlalloc.site.sbatch(script, user=USER)] = now_s
    wait_until_begun(rlalloc, list(submitted_s))
    let_go_s = slurmctld_log.last_updates(rlalloc.site.log_directory / "slurmctld.log", submitted_s)
    return Delays(seconds=tuple(sorted(let_go_s[job_id] - at_s for job_id, at_s in submitted_s.items())))
