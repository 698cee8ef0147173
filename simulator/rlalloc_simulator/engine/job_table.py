"""The engine's input: jobs as their users submit them, and the table that compiled code reads."""

import functools
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import msgspec
import numpy as np

from rlalloc.bounds import Directives
from rlalloc.constraint import is_simple
from rlalloc.devices import ANY_GPU, Device, gpu_device
from rlalloc.job import Allocation, Bounds, JobClass, JobView
from rlalloc.run_time import RunTimeEstimate
from rlalloc.sockets import Sockets
from rlalloc.speed import SpeedCurve
from rlalloc.speed.longer_limits import slowdown_to_allow
from rlalloc.speed.speed_belief import SpeedBelief
from rlalloc.speed.speed_prior import PRIOR_BELIEF
from rlalloc_simulator.engine.engine_records import (
    DEPENDENCY_KINDS,
    FUTURE,
    JOB,
    LINK,
    NOBODY,
    SIZE,
    STATE_NAMES,
    Numbers,
    Reals,
    Record,
    Records,
)
from rlalloc_simulator.engine.simulated_pools import Asked
from rlalloc_simulator.engine.site_parameters import SimulatedSite

DependencyKind = Literal["after", "afterany", "afternotok", "afterok"]
NO_DIRECTIVES: Final = Directives()


class SubmittedJob(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One job of a workload in Slurm's terms, and what only the simulator knows about it.

    user, partition     places in the site's ``users`` and ``partitions``
    begin_s             the user's own ``--begin``
    cancel_s            when the user cancels it if it still waits then
    cancel_after_s      the user cancels it this long after its first start
    stops_at            part of its work after which it ends by itself as ``stop_state``; 1 for all of it, COMPLETED
    directives          what its script declares; ``bounds`` follow from it
    qos_factor          its QOS's priority over the highest one
    run_time            what policies expect of its run time as requested; None where they know its limit only
    speed               what they believe of how it scales; None for the prior
    managed             rlalloc decides about it: it waits for that, at most for the grace
    resumes             after a requeue it goes on from its last checkpoint, ``restart_cost_s`` after its start
    checkpoint_interval_s  0 if it saves its state on SIGTERM
    name                its job name; only a predictor of run times reads it
    gpus_needed         with fewer GPUs it runs out of memory, a GPU's or a node's
    names_tasks         ``--ntasks-per-node`` was given
    gpu_type            the type that it asks for, which may be a MIG profile; None for whole GPUs of any type
    is_shard            its GPUs are shards: what counts GPUs counts these
    constraint          features of which its nodes must have all (``a&b``) or any (``a|b``)
    sockets             sockets, and cores of each, that its nodes must have
    dependencies        kinds and places in the workload of the jobs that it depends on
    """

    submit_s: float
    user: int = 0
    partition: int = 0
    job_class: JobClass = "train"
    request: Allocation
    bounds: Bounds
    directives: Directives = NO_DIRECTIVES
    work_s: float
    curve: SpeedCurve
    mem_mib_per_gpu_needed: float = 0.0
    gpus_needed: int = 0
    gpu_type: str | None = None
    is_shard: bool = False
    constraint: str = ""
    sockets: Sockets = Sockets()
    begin_s: float = -math.inf
    cancel_s: float = math.inf
    cancel_after_s: float = math.inf
    stops_at: float = 1.0
    stop_state: str = "COMPLETED"
    nice: int = 0
    qos_factor: float = 0.0
    managed: bool = False
    resumes: bool = False
    requeues: bool = True
    restart_cost_s: float = 0.0
    checkpoint_interval_s: float = 0.0
    name: str = ""
    names_tasks: bool = True
    dependencies: tuple[tuple[DependencyKind, int], ...] = ()
    run_time: RunTimeEstimate | None = None
    speed: SpeedBelief | None = None

    @property
    def device(self) -> Device | None:
        """What it asks for: whole GPUs, slices or shards; None for neither."""
        return device_of(self.request, self.gpu_type or "", is_shard=self.is_shard)

    @property
    def asked(self) -> Asked:
        """All that decides which nodes it may use."""
        return Asked(self.partition, self.device, self.constraint, self.sockets)


def device_of(request: Allocation, gpu_type: str, *, is_shard: bool) -> Device | None:
    """What a request asks for: whole GPUs, slices or shards; None for neither."""
    if not request.gpus_per_node:
        return None
    return Device("shard", gpu_type) if is_shard else gpu_device(gpu_type)


def slowdown_of(job: SubmittedJob | JobView) -> Callable[[Allocation], float]:
    """Return the upper quantile of a job's run time in another size over that as submitted, for its time limit."""
    return functools.partial(slowdown_to_allow, job.request, belief=job.speed or PRIOR_BELIEF)


@dataclass(frozen=True, eq=False)
class JobTable:
    """Jobs as records, ascending in submission, what they start out with, dependencies, speed curves.

    ``pools`` are what jobs ask of nodes; the sizes have their places.
    """

    records: Records
    sizes: Records
    links: Records
    curve_points: Numbers
    curve_gpus: Reals
    curve_speedup: Reals
    pools: tuple[Asked, ...] = (Asked(0),)


_UNKNOWN_YET: Final = (
    *("run_low_s", "run_median_s", "run_high_s"),
    *("start_s", "end_s", "first_start_s", "first_end_s", "finished_s"),
)


def empty_records(count: int) -> Records:
    """Return ``count`` jobs with nothing but defaults: unmanaged, completing, never cancelled."""
    records = np.zeros(count, dtype=JOB)
    records["begin_s"], records["cancel_s"] = -math.inf, math.inf
    records["cancel_after_s"] = math.inf
    records["stops_at"] = 1.0
    records["stop_state"] = STATE_NAMES.index("COMPLETED")
    records["first_hold"] = records["first_dependant"] = NOBODY
    records["requeues"] = records["whole_gpus"] = True
    records["patience_s"] = math.inf
    records["state"] = FUTURE
    for name in _UNKNOWN_YET:
        records[name] = math.nan
    return records


def sizes_as_requested(records: Records) -> Records:
    """Return sizes as the records request them, on any GPUs of the first partition."""
    sizes = np.zeros(len(records), dtype=SIZE)
    for name in ("nodes", "gpus_per_node", "cpus_per_node", "mem_mib_per_node", "limit_s"):
        sizes[name] = records[f"requested_{name}"]
    sizes["names_tasks"] = True
    return sizes


def table_of(jobs: Sequence[SubmittedJob], site: SimulatedSite) -> JobTable:
    """Return the table of a workload. Raises ValueError where a job names what the site does not have."""
    records = empty_records(len(jobs))
    curves: dict[SpeedCurve, int] = {}
    types = {each.device.type for kind in site.nodes for each in kind.devices}
    previous_s = -math.inf
    for number, job in enumerate(jobs):
        if job.submit_s < previous_s:
            raise ValueError(f"job {number} is submitted at {job.submit_s} s, before the one ahead of it: sort them")
        previous_s = job.submit_s
        _check(number, job, site, types)
        record = records[number]
        for name in _COPIED:
            record[name] = getattr(job, name)
        record["own_nice"] = job.nice
        record["whole_gpus"] = job.device is None or job.device.whole
        record["killed_as_requested"] = killed_as_requested(job, site)
        record["curve"] = curves.setdefault(job.curve, len(curves))
        record["cpus_per_gpu_needed"] = job.curve.cpus_per_gpu_needed
        record["stop_state"] = STATE_NAMES.index(job.stop_state)
        if (known := job.run_time) is not None:
            record["run_low_s"], record["run_median_s"], record["run_high_s"] = (
                known.low_s,
                known.median_s,
                known.high_s,
            )
        for name, value in size_of(job.request).items():
            record[f"requested_{name}"] = value
    sizes = sizes_as_requested(records)
    sizes["partition"] = [job.partition for job in jobs]
    sizes["names_tasks"] = [job.names_tasks for job in jobs]
    pools = _pools_asked_for(jobs, site)
    sizes["pool"] = [pools[job.asked] for job in jobs]
    return JobTable(records, sizes, _link(records, jobs), *curve_table(list(curves)), tuple(pools))


def _pools_asked_for(jobs: Sequence[SubmittedJob], site: SimulatedSite) -> dict[Asked, int]:
    """Each pool's place: of any GPU of each partition first, then what jobs ask for, and types that may be chosen."""
    found = dict.fromkeys(Asked(partition) for partition in range(len(site.partitions)))
    for job in jobs:
        found[job.asked] = None
        if job.device == ANY_GPU and site.interception.choose_gpu_types:
            found |= dict.fromkeys(job.asked._replace(device=gpu_device(name)) for name in site.gpu_types)
    return {asked: place for place, asked in enumerate(found)}


def killed_as_requested(job: SubmittedJob, site: SimulatedSite) -> bool:
    """Whether its own request ends a job: for memory, or at its time limit on nodes of the usual speed."""
    request = job.request
    too_little = request.mem_mib_per_node / max(1, request.gpus_per_node) < job.mem_mib_per_gpu_needed
    if too_little or request.gpus < job.gpus_needed:
        return True
    speed = job.curve.at_size(request)
    run_s = site.overhead.launch + job.stops_at * job.work_s / speed
    return request.time_limit_s < min(run_s, job.cancel_after_s)


def size_of(allocation: Allocation) -> dict[str, int]:
    """Return an allocation in the engine's fields."""
    return {
        "nodes": allocation.nodes,
        "gpus_per_node": allocation.gpus_per_node,
        "cpus_per_node": allocation.cpus_per_node,
        "mem_mib_per_node": allocation.mem_mib_per_node,
        "limit_s": allocation.time_limit_s,
    }


def allocation_of(size: Record) -> Allocation:
    """Return what a job has by its row of sizes, its CPUs as those of one task a node; the inverse of ``size_of``."""
    return Allocation(
        nodes=int(size["nodes"]),
        gpus_per_node=int(size["gpus_per_node"]),
        tasks_per_node=1,
        cpus_per_task=int(size["cpus_per_node"]),
        mem_mib_per_node=int(size["mem_mib_per_node"]),
        time_limit_s=int(size["limit_s"]),
    )


def curve_table(curves: Sequence[SpeedCurve]) -> tuple[Numbers, Reals, Reals]:
    """Return how many points each curve has, its GPU counts and its speed-ups, padded to the longest."""
    width = max((len(curve.gpus) for curve in curves), default=1)
    points = np.array([len(curve.gpus) for curve in curves] or [1], dtype=np.int64)
    gpus, speedup = np.ones((len(points), width)), np.ones((len(points), width))
    for row, curve in enumerate(curves):
        gpus[row, : len(curve.gpus)] = curve.gpus
        speedup[row, : len(curve.gpus)] = curve.speedup
    return points, gpus, speedup


_OF_ITS_OWN: Final = ("curve", "stop_state", "speed")
"""Fields under whose names the engine has other numbers."""
_COPIED: Final = tuple(
    name for name in SubmittedJob.__struct_fields__ if name in (JOB.names or ()) and name not in _OF_ITS_OWN
)


def _check(number: int, job: SubmittedJob, site: SimulatedSite, types: Collection[str]) -> None:
    for what, value, known in (("user", job.user, site.users), ("partition", job.partition, site.partitions)):
        if not 0 <= value < len(known):
            raise ValueError(f"job {number}: there is no {what} {value}; the site has {len(known)} (0 is the first)")
    if job.gpu_type is not None and job.gpu_type not in types:
        raise ValueError(f"job {number}: no node has GPUs of type {job.gpu_type!r}; there are {sorted(types)}")
    if not is_simple(job.constraint):
        raise ValueError(f"job {number}: constraint {job.constraint!r} is none of a, a&b and a|b")
    if job.sockets.threads:
        raise ValueError(f"job {number}: asks for threads of a core, which the simulator does not know")
    if job.stop_state not in ("COMPLETED", "FAILED"):
        raise ValueError(f"job {number}: stop_state {job.stop_state!r} is neither COMPLETED nor FAILED")


def _link(records: Records, jobs: Sequence[SubmittedJob]) -> Records:
    """Write the chains of dependants into ``records`` and return their links."""
    pairs = [(number, kind, on) for number, job in enumerate(jobs) for kind, on in job.dependencies]
    links = np.zeros(len(pairs), dtype=LINK)
    for row, (number, kind, on) in enumerate(pairs):
        if not 0 <= on < len(records) or on == number:
            raise ValueError(f"job {number} depends on job {on}: name another job of the workload (0 is the first)")
        links[row] = (number, records[on]["first_dependant"], DEPENDENCY_KINDS.index(kind))
        records["first_dependant"][on] = row
        records["unmet"][number] += 1
    return links
