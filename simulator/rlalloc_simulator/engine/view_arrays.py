"""What policies see of the nodes that a job may use, read from the engine's memory in one pass."""

import math

import numpy as np

from rlalloc.run_time import expected_remaining_s, expected_s
from rlalloc.speed import PRIOR
from rlalloc_simulator.engine.compilation import compiled, compiled_for_python
from rlalloc_simulator.engine.engine_records import NOBODY, Flags, Numbers, Reals, Record, Records, World
from rlalloc_simulator.engine.job_runs import speed
from rlalloc_simulator.engine.job_table import curve_table
from rlalloc_simulator.engine.queue_priority import place_in_queue

_remaining_s, _expected_s = compiled(expected_remaining_s), compiled(expected_s)
_PRIOR_POINTS, _PRIOR_GPUS, _PRIOR_SPEEDUP = curve_table([PRIOR])
_CPUS_NEEDED = PRIOR.cpus_per_gpu_needed


@compiled_for_python
def usable_nodes(nodes: Records, pool: Records) -> Flags:
    """The nodes whose devices jobs of a pool may use now."""
    mine = np.zeros(len(nodes), dtype=np.bool_)
    for node in range(len(nodes)):
        mine[node] = nodes[node]["up"] and pool[node]["most"] > 0
    return mine


@compiled_for_python
def node_arrays(nodes: Records, free_devices: Numbers, pool: Records, mine: Flags) -> tuple[Reals, Reals, Numbers]:
    """Of the nodes among ``mine``: what is free on each (nodes, 3), all they have (3,), the largest one (3,).

    Columns are devices of the ``pool``, CPUs and MiB. The largest node has the most devices, then CPUs, then memory;
    it counts with as many devices as a job may have of a node.
    """
    free = np.empty((len(nodes), 3))
    totals, largest = np.zeros(3), np.zeros(3, dtype=np.int64)
    usable, most = 0, 0
    for node in range(len(nodes)):
        there = nodes[node]
        if not mine[node]:
            continue
        column, units = pool[node]["column"], pool[node]["units"]
        free[usable, 0] = free_devices[node, column] // units
        free[usable, 1], free[usable, 2] = there["free_cpus"], there["free_mem_mib"]
        usable += 1
        most = max(most, pool[node]["most"])
        gpus, cpus, mem_mib = pool[node]["count"], there["cpus"], there["mem_mib"]
        totals[0], totals[1], totals[2] = totals[0] + gpus, totals[1] + cpus, totals[2] + mem_mib
        is_larger = gpus > largest[0] or (
            gpus == largest[0] and (cpus > largest[1] or (cpus == largest[1] and mem_mib > largest[2]))
        )
        if is_larger:
            largest[0], largest[1], largest[2] = gpus, cpus, mem_mib
    largest[0] = most
    return free[:usable], totals, largest


@compiled_for_python
def release_rows(  # noqa: PLR0913, PLR0917 (Python would have to hand over a whole World for each view)
    nodes: Records,
    slots: Records,
    holds: Records,
    jobs: Records,
    sizes: Records,
    pools: Records,
    pool: Records,
    mine: Flags,
    now_s: float,
) -> Reals:
    """Of each job that runs on ``mine``: the seconds until its expected end, and what it holds there; ascending.

    Its devices count as those of the ``pool``: a whole GPU is all its shards, a shard a part of a GPU.
    """
    rows = _holdings(nodes, slots, holds, jobs, sizes, pools, pool, mine)
    for row in range(len(rows)):
        number = int(rows[row, 0])
        rows[row, 0] = remaining_s(jobs[number], sizes[number], now_s)
    sort_rows(rows)
    return rows


@compiled
def _holdings(
    nodes: Records,
    slots: Records,
    holds: Records,
    jobs: Records,
    sizes: Records,
    pools: Records,
    pool: Records,
    mine: Flags,
) -> Reals:
    """Each job that runs on ``mine``: its number, and the devices of ``pool``, CPUs and MiB that it holds there."""
    most = 0
    for node in range(len(nodes)):
        most += nodes[node]["running"] if mine[node] else 0
    rows = np.empty((most, 4))
    running = 0
    for node in range(len(nodes)):
        if not mine[node]:
            continue
        for slot in range(nodes[node]["running"]):
            number = slots[node, slot]["job"]
            link = jobs[number]["first_hold"]
            while not mine[holds[link]["node"]]:
                link = holds[link]["next"]
            if holds[link]["node"] != node:
                continue  # it is counted on the first of its nodes
            here, devices, size = 0, 0.0, sizes[number]
            while link != NOBODY:
                its = holds[link]["node"]
                if mine[its]:
                    held = pools[size["pool"], its]
                    here += 1
                    if held["column"] == pool[its]["column"]:
                        devices += size["gpus_per_node"] * held["units"] / pool[its]["units"]
                link = holds[link]["next"]
            rows[running, 0] = number
            rows[running, 1] = devices
            rows[running, 2] = here * size["cpus_per_node"]
            rows[running, 3] = here * size["mem_mib_per_node"]
            running += 1
    return rows[:running]


@compiled_for_python
def queue_rows(world: World, number: int, mine: Flags) -> tuple[Reals, int]:
    """GPUs and expected run time [s] of each job ahead that waits for those of ``mine``, and how many are behind.

    ``mine`` are the nodes of the job's pool; only jobs that ask for devices of the same kind count.

    Of a job that may use other nodes as well, the part counts of its nodes that are among ``mine``. Job ``number``
    stands in the queue, or would stand there by its priority.
    """
    jobs, sizes = world.jobs, world.sizes
    queued = world.clock[0]["queued"]
    place = place_in_queue(world, number)
    demands = np.empty((queued, 2))
    parts, pool = np.full(len(world.pools), -1.0), world.pools[sizes[number]["pool"]]
    listed, behind = 0, 0
    for there in range(queued):
        waiting = world.queue[there]
        size = sizes[waiting]
        if size["gpus_per_node"] == 0 or waiting == number:
            continue
        part = parts[size["pool"]]
        if part < 0.0:
            part = part_among(world.nodes, world.pools[size["pool"]], pool, mine)
            parts[size["pool"]] = part
        if part == 0.0:
            continue
        if there >= place:
            behind += 1
            continue
        demands[listed, 0] = part * (size["nodes"] * size["gpus_per_node"])
        demands[listed, 1] = expected_run_s(jobs[waiting], size)
        listed += 1
    return demands[:listed], behind


@compiled_for_python
def part_among(nodes: Records, other: Records, pool: Records, mine: Flags) -> float:
    """The part of the devices that jobs of another pool may use now which ``mine``, nodes of ``pool``, have."""
    usable = usable_nodes(nodes, other)
    gpus, here = 0.0, 0.0
    for node in range(len(nodes)):
        if usable[node]:
            its = other[node]
            gpus += its["count"]
            here += its["count"] if mine[node] and same_devices(its, pool[node]) else 0
    return here / max(1.0, gpus)


@compiled
def same_devices(one: Record, other: Record) -> bool:
    """Whether two pools mean the same devices of a node (``POOL``): shards of a GPU are others than the GPU."""
    return bool(one["column"] == other["column"] and one["units"] == other["units"])


@compiled_for_python
def expected_run_s(job: Record, size: Record) -> float:
    """Seconds that a job is expected to run in its size."""
    return _expected_s(float(size["limit_s"]), _slowdown(job, size) * job["run_median_s"])


@compiled_for_python
def remaining_s(job: Record, size: Record, now_s: float) -> float:
    """Seconds that a running job is expected to go on in its size."""
    factor = _slowdown(job, size)
    return _remaining_s(
        float(size["limit_s"]),
        now_s - job["start_s"],
        factor * job["run_low_s"],
        factor * job["run_median_s"],
        factor * job["run_high_s"],
    )


@compiled
def _slowdown(job: Record, size: Record) -> float:
    """How much longer a job is expected to run in its size than as requested, as rlalloc.view.slowdown."""
    if math.isnan(job["run_median_s"]):
        return 1.0  # its limit, all that is known of it, has grown by that
    asked_gpus, asked_cpus = job["requested_gpus_per_node"], job["requested_cpus_per_node"]
    same = asked_gpus == size["gpus_per_node"] and asked_cpus == size["cpus_per_node"]
    if same and job["requested_nodes"] == size["nodes"]:
        return 1.0
    asked = _prior_speed(job["requested_nodes"] * asked_gpus, asked_cpus / max(1, asked_gpus))
    return asked / _prior_speed(
        size["nodes"] * size["gpus_per_node"], size["cpus_per_node"] / max(1, size["gpus_per_node"])
    )


@compiled
def _prior_speed(gpus: int, cpus_per_gpu: float) -> float:
    return speed(_PRIOR_POINTS, _PRIOR_GPUS, _PRIOR_SPEEDUP, 0, max(1, gpus), cpus_per_gpu / _CPUS_NEEDED)


@compiled
def sort_rows(rows: Reals) -> None:
    """Sort in place, by the first column, then the second, and so on (Shell 1959, gaps of Knuth 1973)."""
    row = np.empty(rows.shape[1])
    gap = 1
    while gap < len(rows) // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for place in range(gap, len(rows)):
            row[:] = rows[place]
            there = place
            while there >= gap and _is_less(row, rows[there - gap]):
                rows[there] = rows[there - gap]
                there -= gap
            rows[there] = row
        gap //= 3


@compiled
def _is_less(one: Reals, other: Reals) -> bool:
    for column in range(len(one)):
        if one[column] != other[column]:
            return bool(one[column] < other[column])
    return False
