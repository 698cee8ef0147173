"""The engine's memory: numpy records that compiled code reads and writes. Times in seconds, memory in MiB.

A job or a node is one record, since the engine nearly always needs several fields of the same one. Only what it takes
to place a job is kept apart.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Records = NDArray[np.void]
Record = np.void
Numbers = NDArray[np.int64]
Reals = NDArray[np.float64]
Flags = NDArray[np.bool_]

# States of a job. DEFERRED waits for its begin time (Reason=BeginTime), PENDING is in the queue.
FUTURE: Final = 0
DEFERRED: Final = 1
PENDING: Final = 2
RUNNING: Final = 3
COMPLETED: Final = 4
FAILED: Final = 5
TIMEOUT: Final = 6
OUT_OF_MEMORY: Final = 7
CANCELLED: Final = 8
NODE_FAIL: Final = 9
STATE_NAMES: Final = (
    "FUTURE",
    "DEFERRED",
    "PENDING",
    "RUNNING",
    "COMPLETED",
    "FAILED",
    "TIMEOUT",
    "OUT_OF_MEMORY",
    "CANCELLED",
    "NODE_FAIL",
)

# Why a job waits, in Slurm's words.
NO_REASON: Final = 0
BEGIN_TIME: Final = 1
PRIORITY: Final = 2
RESOURCES: Final = 3
DEPENDENCY: Final = 4
DEPENDENCY_NEVER_SATISFIED: Final = 5
REASON_NAMES: Final = ("None", "BeginTime", "Priority", "Resources", "Dependency", "DependencyNeverSatisfied")

# Kinds of dependencies (sbatch --dependency): on a start, on any end, on an end that is not or is COMPLETED.
AFTER: Final = 0
AFTERANY: Final = 1
AFTERNOTOK: Final = 2
AFTEROK: Final = 3
DEPENDENCY_KINDS: Final = ("after", "afterany", "afternotok", "afterok")

NOBODY: Final = -1
"""No job, no node, or no device that a job may use."""

JOB: Final = np.dtype(
    [
        # As the workload has it; the engine never writes these.
        ("submit_s", "f8"),
        ("begin_s", "f8"),  # the user's --begin
        ("cancel_s", "f8"),  # when the user cancels it if it still waits; infinite if never
        ("cancel_after_s", "f8"),  # the user cancels it this long after its first start; infinite if never
        ("work_s", "f8"),  # run time on one GPU with all the CPUs it needs
        ("stops_at", "f8"),  # the part of the work after which it ends by itself, 1 for all of it
        ("cpus_per_gpu_needed", "f8"),
        ("mem_mib_per_gpu_needed", "f8"),
        ("restart_cost_s", "f8"),
        ("checkpoint_interval_s", "f8"),  # 0: it saves its state on SIGTERM
        ("qos_factor", "f8"),  # its QOS's priority over the highest one
        ("run_low_s", "f8"),  # what policies know of its run time as requested: 10, 50 and 90 % quantiles;
        ("run_median_s", "f8"),  # NaN where they know its time limit only
        ("run_high_s", "f8"),
        ("gpus_needed", "i4"),
        ("user", "i4"),
        ("curve", "i4"),
        ("requested_nodes", "i4"),
        ("requested_gpus_per_node", "i4"),
        ("requested_cpus_per_node", "i4"),
        ("requested_mem_mib_per_node", "i4"),
        ("requested_limit_s", "i4"),
        ("own_nice", "i4"),
        ("stop_state", "i1"),
        ("managed", "b1"),  # waits for a decision
        ("resumes", "b1"),  # goes on from a checkpoint after a requeue
        ("requeues", "b1"),  # Slurm may requeue it when a node fails
        ("killed_as_requested", "b1"),  # its own request ends it, for time or memory
        ("whole_gpus", "b1"),  # its devices are whole GPUs, not slices or shards
        # What becomes of it.
        ("nice", "i4"),  # the user's, and what is left of the added one
        ("added_nice", "i4"),  # by rlalloc, for its urgency
        ("patience_s", "f8"),  # of waiting after which that has decayed to 0; infinite if it stays
        ("state", "i1"),
        ("reason", "i1"),
        ("resized", "b1"),
        ("decisions", "i4"),
        ("restarts", "i4"),
        ("queued", "i4"),  # jobs pending when it was first decided or submitted
        ("first_hold", "i4"),
        ("first_dependant", "i4"),
        ("unmet", "i4"),  # dependencies that are not satisfied yet
        ("priority", "f8"),
        ("accrue_s", "f8"),  # since when it gains age
        ("start_s", "f8"),
        ("end_s", "f8"),
        ("ends_as", "i1"),
        ("progress", "f8"),  # part of the work that is done and kept
        ("speed", "f8"),  # of the present run, in multiples of one GPU
        ("overhead_s", "f8"),  # of the present run, before it goes on with its work
        ("first_start_s", "f8"),
        ("first_end_s", "f8"),  # of the first run that was not requeued
        ("first_state", "i1"),
        ("finished_s", "f8"),
        ("held_gpu_s", "f8"),
        ("useful_work_s", "f8"),
        ("lost_work_s", "f8"),
    ],
    align=True,
)

SIZE: Final = np.dtype(
    [
        ("nodes", "i4"),
        ("gpus_per_node", "i4"),
        ("cpus_per_node", "i4"),
        ("mem_mib_per_node", "i4"),
        ("limit_s", "i4"),
        ("partition", "i4"),
        ("pool", "i4"),
        ("names_tasks", "b1"),  # --ntasks-per-node was given
    ],
    align=True,
)
"""What a job is given now and where it may go; apart from the rest, since backfill looks at hundreds of them.

GPUs are devices of the job's kind: whole ones, slices or shards."""

NODE: Final = np.dtype(
    [
        ("cpus", "i4"),
        ("mem_mib", "i4"),
        ("most_free", "i4"),  # units of any of its stocks of devices: no job can get more devices there
        ("free_cpus", "i4"),
        ("free_mem_mib", "i4"),
        ("weight", "i4"),
        ("running", "i4"),
        ("up", "b1"),
        ("speed", "f8"),
        ("repaired_s", "f8"),
    ],
    align=True,
)

POOL: Final = np.dtype([("column", "i4"), ("units", "i4"), ("most", "i4"), ("count", "i4")], align=True)
"""What a node has for the jobs of a pool.

column  which of its stocks of devices is theirs (``World.free_devices``)
units   what each of their devices takes of it: 1, or for a whole GPU that can be shared its shards
most    so many of its devices a job may have on the node; NOBODY where these jobs may not use it
count   so many it has in all
"""

SLOT: Final = np.dtype(
    [
        ("latest_end_s", "f8"),
        ("job", "i4"),
        ("column", "i2"),
        ("units", "i2"),
        ("cpus", "i4"),
        ("mem_mib", "i4"),
    ],
    align=True,
)
"""One running job on one node, and when its time limit ends it; ``units`` it has of the stock ``column``."""

HOLD: Final = np.dtype([("node", "i4"), ("next", "i4")], align=True)
"""One node of a running job, as a link in a chain."""

PARTITION: Final = np.dtype(
    [("priority_factor", "f8"), ("tier", "i4"), ("failed", "b1"), ("reserved", "i4")], align=True
)

USER: Final = np.dtype(
    [
        ("account", "i4"),
        ("running_gpus", "i4"),
        ("shares", "f8"),
        ("billing_rate", "f8"),
        ("usage", "f8"),
        ("factor", "f8"),
    ],
    align=True,
)

ACCOUNT: Final = np.dtype([("shares", "f8")], align=True)

LINK: Final = np.dtype([("dependant", "i4"), ("next", "i4"), ("kind", "i1")], align=True)
"""One dependency, in the chain of the job that it is on."""

FAILURE: Final = np.dtype([("time_s", "f8"), ("repaired_s", "f8"), ("node", "i4")], align=True)

CLOCK: Final = np.dtype(
    [
        ("now_s", "f8"),
        ("last_backfill_s", "f8"),
        ("last_pass_s", "f8"),
        ("last_usage_s", "f8"),
        ("last_calculation_s", "f8"),
        ("next_pass_s", "f8"),
        ("next_full_pass_s", "f8"),
        ("next_backfill_s", "f8"),
        ("next_calculation_s", "f8"),
        ("next_answer_s", "f8"),
        ("next_review_s", "f8"),
        ("next_look_s", "f8"),  # of late decisions
        ("arrived", "i8"),
        ("failures", "i8"),
        ("queued", "i8"),
        ("running", "i8"),
        ("waiting", "i8"),  # entries of the agenda
        ("free_hold", "i8"),
        ("asked", "i8"),
        ("ended", "i8"),
        ("passes", "i8"),
        ("backfills", "i8"),
        ("backfilled", "i8"),
        ("total_cpus", "f8"),
    ],
    align=True,
)


class World(NamedTuple):
    """All of one simulated site; the arrays are the engine's own.

    ``queue`` holds the pending jobs in the order of their priority. The agenda is a binary heap of jobs and nodes
    (node n is number jobs + n) by the time of the next thing that happens to them: ``agenda`` the heap,
    ``agenda_place`` where each stands in it (or NOBODY), ``agenda_s`` the times. ``free_devices`` (nodes, stocks) are
    the free units of each stock of devices, and ``pools`` (pools, nodes) says which jobs may use (``POOL``).
    ``units_free_s`` (stocks, units + 1, nodes) is when so many units are free, as running jobs' time limits have it:
    -inf for now, inf for never. ``room``, ``chosen`` and ``allowed`` are scratch space.
    """

    jobs: Records
    sizes: Records
    nodes: Records
    slots: Records
    free_devices: Numbers
    pools: Records
    units_free_s: Reals
    holds: Records
    partitions: Records
    in_partition: Flags
    users: Records
    accounts: Records
    failures: Records
    links: Records
    clock: Records
    rules: Records
    queue: Numbers
    asked: Numbers
    agenda: Numbers
    agenda_place: Numbers
    agenda_s: Reals
    curve_points: Numbers
    curve_gpus: Reals
    curve_speedup: Reals
    chosen: Numbers
    allowed: Flags
    room: Numbers
