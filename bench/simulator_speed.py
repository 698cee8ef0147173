"""Jobs a second of the simulator on one core, by nodes, length of the queue and kind of backfill.

    python bench/simulator_speed.py [--quick] [--plot simulator_speed.png]

Every run: nodes of 8 GPUs, the jobs of ``plain_jobs`` (1 to 32 GPUs, run times with a median of half an hour), as
requested. A queue of the given length is submitted at the start; then jobs come at a load of 1, three for
each that waited, at least 6,000. Only those are timed, from the second job's arrival until the last one's, in time of
the process, so that other programs disturb little.
docs/results/speed.md has figures.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import numpy as np

from plain_jobs import USERS, plain_jobs
from rlalloc.bounds import NodeShape
from rlalloc_simulator.engine import (
    JobTable,
    NodeKind,
    SchedulerParameters,
    SimulatedSite,
    Simulator,
    UserKind,
    table_of,
)

SHAPE: Final = NodeShape(gpus=8, cpus=64, mem_mib=512_000)
KINDS: Final = {
    "no backfill": SchedulerParameters(backfill=False),
    "EASY": SchedulerParameters(bf_job_part_count_reserve=1),
    "conservative, 100 tested": SchedulerParameters(bf_max_job_test=100),
    "conservative, 500 tested": SchedulerParameters(),
}
CELLS: Final = ((16, 0), (64, 0), (64, 100), (64, 1000), (256, 0), (1000, 0), (1000, 1000), (1000, 10_000))


class Measured(NamedTuple):
    """One run."""

    nodes: int
    queue: int
    kind: str
    jobs_per_s: float
    mean_queue: float
    backfills: int


def main() -> None:
    """Print a table, and draw a plot if asked to."""
    parser = argparse.ArgumentParser(description="Jobs a second of the simulator on one core.")
    parser.add_argument("--quick", action="store_true", help="three small cells only")
    parser.add_argument("--plot", type=Path, help="a PNG to draw to")
    arguments = parser.parse_args()
    measured = []
    print(f"{'nodes':>6} {'queue at start':>15} {'mean queue':>11} {'kind':<25} {'jobs/s':>9} {'cycles':>7}")
    for nodes, queue in CELLS[:3] if arguments.quick else CELLS:
        table, site = workload(nodes, queue)
        for kind, scheduler in KINDS.items():
            one = measure(msgspec.structs.replace(site, scheduler=scheduler), table, queue, kind)
            measured.append(one)
            figures = f"{one.mean_queue:>11.0f} {kind:<25} {one.jobs_per_s:>9,.0f} {one.backfills:>7}"
            print(f"{nodes:>6} {queue:>15} {figures}", flush=True)
    if arguments.plot:
        draw(measured, arguments.plot)


def workload(nodes: int, queue: int, seed: int = 0) -> tuple[JobTable, SimulatedSite]:
    """Return a workload at load 1 behind ``queue`` jobs that wait from the start, and its site."""
    coming = max(6000, 3 * queue)
    arriving = plain_jobs(nodes, SHAPE, coming, 1.0, seed)
    filling = _filling(nodes)
    waiting = plain_jobs(nodes, SHAPE, filling + queue, 1.0, seed + 1)
    first = [msgspec.structs.replace(job, submit_s=0.0) for job in waiting]
    later = [msgspec.structs.replace(job, submit_s=job.submit_s + 1.0) for job in arriving]
    site = SimulatedSite(
        nodes=(NodeKind(count=nodes, shape=SHAPE),),
        users=tuple(UserKind(name=f"user{number}") for number in range(USERS)),
    )
    return table_of([*first, *later], site), site


def _filling(nodes: int) -> int:
    """About as many jobs as run at once: what is submitted beyond them waits."""
    return round(nodes * SHAPE.gpus / 5.0)


def measure(site: SimulatedSite, table: JobTable, queue: int, kind: str) -> Measured:
    """Time one run after compilation: the best of two, since disturbance only slows down."""
    rates = []
    Simulator(site, table).run(1.5)
    for _ in range(2):
        simulator = Simulator(site, table)
        simulator.run(1.0)
        arrived = int(simulator.world.clock[0]["arrived"])
        last_s = float(table.records["submit_s"][-1])
        start = time.process_time()
        simulator.run(last_s)
        rates.append((len(table.records) - arrived) / (time.process_time() - start))
    jobs = simulator.outcomes()
    mean_queue = float(np.mean(jobs["queued"][arrived:]))
    return Measured(
        len(simulator.world.nodes), queue, kind, max(rates), mean_queue, int(simulator.world.clock[0]["backfills"])
    )


def draw(measured: Sequence[Measured], path: Path) -> None:
    """Draw jobs a second over the mean length of the queue, one line for each kind and number of nodes."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(10, 5), layout="constrained")
    marks = dict(zip(sorted({each.nodes for each in measured}), "os^Dv", strict=False))
    colours = dict(zip(KINDS, ("tab:grey", "tab:green", "tab:orange", "tab:red"), strict=True))
    for kind in KINDS:
        for nodes, mark in marks.items():
            points = sorted(
                (each.mean_queue, each.jobs_per_s) for each in measured if (each.kind, each.nodes) == (kind, nodes)
            )
            axes.plot(*zip(*points, strict=True), marker=mark, color=colours[kind], label=f"{kind}, {nodes} nodes")
    axes.set(xscale="symlog", yscale="log", xlabel="mean length of the queue [jobs]", ylabel="jobs a second")
    axes.set_title("The simulator on one core, load 1")
    axes.grid(visible=True, which="both", alpha=0.3)
    figure.legend(loc="outside right upper", fontsize=7)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
