"""Runs the measurements and prints them beside their targets."""

import argparse
import os
import time
from typing import Final

from rlalloc.errors import RlallocError
from rlalloc_testbed import USER
from slurm_load import phases
from slurm_load.burst_alone import measure_bare_burst, measure_burst
from slurm_load.load_site import OTHER_USER, commit, measured_place, waiting_for_us
from slurm_testbed import TestbedError

MOST_CALLS_PER_S: Final = 2.0
LONGEST_BURST_S: Final = 20.0
P50_S: Final = 0.5
P99_S: Final = 2.0


def main() -> int:
    """Exit status: 0 if all targets were met, 1 if one was missed or something failed."""
    parser = argparse.ArgumentParser(prog="slurm_load", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the jobs and of the time")
    parser.add_argument("--pending", type=int, default=2000, help="jobs that wait beside")
    parser.add_argument("--burst", type=int, default=500, help="jobs of the burst")
    parser.add_argument("--burst-alone", type=int, metavar="JOBS", help="only a burst of so many jobs, and its table")
    parser.add_argument("--waiting", type=int, default=0, help="with --burst-alone: jobs of no rule that wait beside")
    parser.add_argument("--one-user", action="store_true", help="with --waiting: they are of the same user")
    parser.add_argument("--bare", action="store_true", help="with --burst-alone: without rlalloc")
    given = parser.parse_args()
    size = 0.1 if given.quick else 1.0
    try:
        if given.burst_alone:
            measure = measure_bare_burst if given.bare else measure_burst
            of_user = USER if given.one_user else OTHER_USER
            return 0 if measure(given.burst_alone, given.waiting, of_user) else 1
        return _measure(
            pending=int(given.pending * size),
            burst=int(given.burst * size),
            seconds=int(60 * size) + 20,
            jobs=int(120 * size),
        )
    except (RlallocError, TestbedError) as err:
        print(f"slurm_load: {err}")
        return 1


def _measure(*, pending: int, burst: int, seconds: int, jobs: int) -> int:
    print(f"commit {commit()}, {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, {os.cpu_count()} cores")
    with measured_place() as rlalloc:
        version = rlalloc.site.run(["scontrol", "--version"]).strip()
        took_s = phases.fill(rlalloc, pending)
        print(f"{version}; {pending} pending LLM jobs, each resized and begun, in {took_s:.0f} s")
        _load()
        steady = phases.steady(rlalloc, seconds)
        met = [_line("calls to slurmctld in the steady state", steady.per_second, MOST_CALLS_PER_S, "/s")]
        for name, (count, mean_s) in sorted(steady.calls.items()):
            print(f"    {name}: {count} in {steady.seconds:.0f} s, {1000 * mean_s:.1f} ms each")
        _load()
        submitted_s, begun_s = phases.burst(rlalloc, burst)
        print(f"{burst} more jobs were submitted within {submitted_s:.1f} s")
        met.append(_line("until the last of them was decided, resized and begun", begun_s, LONGEST_BURST_S, " s"))
        _load()
        delays = phases.one_a_second(rlalloc, jobs)
        print(f"{jobs} jobs, one a second; from the start of sbatch until slurmctld released the job:")
        met.append(_line("p50", delays.p50, P50_S, " s"))
        met.append(_line("p99", delays.p99, P99_S, " s"))
        print(f"    least {delays.seconds[0]:.2f} s, most {delays.seconds[-1]:.2f} s")
        _load()
        left = waiting_for_us(rlalloc)
        print(f"jobs that still wait for rlalloc: {left}")
    return 0 if all(met) and not left else 1


def _line(what: str, value: float, target: float, unit: str) -> bool:
    met = value <= target
    print(f"{what}: {value:.2f}{unit} (target: {target:g}{unit}) {'met' if met else 'MISSED'}", flush=True)
    return met


def _load() -> None:
    """Print the machine's load, which every figure here depends on."""
    print(f"    load of the machine: {', '.join(f'{load:.1f}' for load in os.getloadavg())}", flush=True)
