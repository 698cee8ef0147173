"""What an array of 100,000 tasks costs rlallocd on a real slurmctld, beside one job.

    PYTHONPATH=testbed:bench python bench/slurm_array.py [--tasks 100000]

Processor time of rlallocd and of its commands over 25 s, and its memory: with one job in the queue, with the array in
the queue, and while tasks of the array start and end. docs/results/scale.md has figures.
"""

import argparse
import os
import time
from typing import Final

from rlalloc_testbed import USER, Installation, install, start_site
from slurm_load.load_site import JOB, begun
from slurm_load.processor_times import process_of, processor_s
from slurm_testbed import wait_until

SPAN_S: Final = 25.0
_FILLER: Final = "#!/bin/sh\nsleep 86400\n"


def main() -> None:
    """Print a line for each state of the queue."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tasks", type=int, default=100_000)
    tasks = parser.parse_args().tasks
    limits = {"MaxArraySize": str(tasks + 1), "MaxJobCount": str(2 * tasks + 10_000)}
    with start_site(f"array-{os.getpid()}", nodes=2, extra_slurm_conf=limits) as site:
        rlalloc = install(site, grace_s=60, daemon={}, agent={"endpoint": f"ipc://{site.run_directory}/agent.sock"})
        filler = site.sbatch(_FILLER, user=USER, options=["--nodes=2", "--exclusive", "--mem=1000", "--time=1-00"])
        try:
            rlalloc.start("rlalloc-agent")
            rlalloc.start("rlallocd")
            decided_s(rlalloc, site.sbatch(JOB, user=USER))
            show(rlalloc, "one job")
            took_s = decided_s(rlalloc, site.sbatch(JOB, user=USER, options=[f"--array=0-{tasks - 1}"]))
            print(f"an array of {tasks:,} tasks was decided, resized and begun within {took_s:.1f} s")
            show(rlalloc, "the array")
            site.run(["scancel", str(filler)])
            show(rlalloc, "tasks start and end")
            site.run(["scancel", "--user", USER])
        finally:
            rlalloc.stop_all()


def decided_s(rlalloc: Installation, job_id: int) -> float:
    """Seconds until the journal says that a job was begun in its decided size."""
    began_s = time.monotonic()
    wait_until(lambda: job_id in begun(rlalloc), what="the job to be begun", timeout_s=60, interval_s=0.2)
    return time.monotonic() - began_s


def show(rlalloc: Installation, what: str) -> None:
    """Print what rlallocd needs for SPAN_S, after some seconds of rest."""
    time.sleep(6)
    process = process_of(rlalloc.site, "rlallocd")
    before = processor_s(process)
    time.sleep(SPAN_S)
    own_s, commands_s = (later - first for first, later in zip(before, processor_s(process), strict=True))
    status = (process / "status").read_text(encoding="utf-8")
    rss_kib = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
    print(
        f"{what:>20}: {own_s:.2f} s of its own, {own_s + commands_s:.2f} s with its commands, {rss_kib // 1024} MiB"
    )


if __name__ == "__main__":
    main()
