"""A simulated site: run it until jobs need a decision, answer, and run on."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rlalloc.devices import ANY_GPU
from rlalloc.job import Allocation
from rlalloc_simulator.engine import applying as answers
from rlalloc_simulator.engine.engine_records import (
    ACCOUNT,
    CLOCK,
    FAILURE,
    HOLD,
    NOBODY,
    NODE,
    PARTITION,
    SLOT,
    USER,
    Numbers,
    Records,
    World,
)
from rlalloc_simulator.engine.event_loop import ASKS, FINISHED, FREED, advance, next_time
from rlalloc_simulator.engine.job_table import JobTable, size_of
from rlalloc_simulator.engine.simulated_pools import devices_of, gpu_types_in, pools_of
from rlalloc_simulator.engine.site_parameters import SimulatedSite, rules_of

_NEVER_COPIED: Final = frozenset(
    {"in_partition", "pools", "failures", "links", "rules", "curve_points", "curve_gpus", "curve_speedup"}
)
SIZE_FIELDS: Final = ("nodes", "gpus_per_node", "cpus_per_node", "mem_mib_per_node", "limit_s", "nice", "patience_s")
"""Columns of the sizes that ``Simulator.resize_all`` takes."""


class Simulator:
    """One simulated site and its workload of jobs. Deterministic: the same input gives the same bytes.

    ``world`` is the engine's memory: read it, and change it only through the methods. ``pools`` say what jobs ask of
    nodes, ``gpu_types`` which types of devices those of each have; empty where one has none.
    ``devices`` (nodes, stocks) are the units of each stock of devices of a node.
    """

    def __init__(self, site: SimulatedSite, jobs: JobTable) -> None:
        """Raise ValueError if a job could not run even on the empty site."""
        self.site = site
        self.pools = jobs.pools
        self.gpu_types = tuple(gpu_types_in(site, asked) for asked in jobs.pools)
        self.devices = devices_of(site)
        self.world = _world_of(site, jobs)
        self.finished = False
        self.freed = False
        number = answers.first_unholdable(self.world)
        if number != NOBODY:
            record = self.world.sizes[number]
            asked = self.pools[record["pool"]]
            features = f" and the features {asked.constraint}" if asked.constraint else ""
            parts = f", {asked.sockets.sockets} sockets of {asked.sockets.cores} cores" if any(asked.sockets) else ""
            raise ValueError(
                f"job {number} can never run on its partition: {record['nodes']} nodes with "
                f"{(asked.device or ANY_GPU).describe(record['gpus_per_node'])}, {record['cpus_per_node']} CPUs, "
                f"{record['mem_mib_per_node']} MiB each{parts}{features}"
            )

    @property
    def now_s(self) -> float:
        """The time that the simulation has reached."""
        return float(self.world.clock[0]["now_s"])

    @property
    def next_s(self) -> float:
        """When the next thing happens, not before ``now_s``; infinite if nothing will."""
        return max(self.now_s, float(next_time(self.world)))

    def run(self, until_s: float = math.inf) -> Numbers:
        """Run until jobs need a decision and return their numbers; none if all is done or ``until_s`` is reached.

        None either where the site decides late and resources have been freed: ``freed`` says so.
        """
        code = advance(self.world, float(until_s))
        self.finished, self.freed = code == FINISHED, code == FREED
        clock = self.world.clock[0]
        if self.finished or code != ASKS:
            return np.empty(0, dtype=np.int64)
        asked = self.world.asked[: clock["asked"]].copy()
        clock["asked"] = 0
        return asked

    def resize(self, sizes: Mapping[int, Allocation], nice: Mapping[int, tuple[int, float]] | None = None) -> None:
        """Give waiting jobs these sizes. Raises ValueError if no nodes could ever hold one.

        ``nice`` has what is added to a job's nice, and the seconds of waiting in which that decays to 0.
        """
        added = nice or {}
        rows = [(*size_of(allocation).values(), *added.get(number, (0, 0))) for number, allocation in sizes.items()]
        table = np.array(rows, dtype=np.int64).reshape(-1, len(SIZE_FIELDS))
        self.resize_all(np.array(list(sizes), dtype=np.int64), table)

    def resize_all(self, numbers: Numbers, sizes: Numbers) -> None:
        """Likewise, for ``sizes`` (jobs, 7) with the columns SIZE_FIELDS. Raises ValueError likewise."""
        self._refuse(answers.resize(self.world, numbers, sizes), numbers, sizes)

    def run_answered(self, sizes: Numbers) -> None:
        """Run to the end, answering each question by the job's row of ``sizes`` (jobs, 7), columns SIZE_FIELDS.

        It stays in compiled code. Raises ValueError if no nodes could ever hold a size that was asked for.
        """
        sizes = np.ascontiguousarray(sizes)  # the layout that is compiled
        self._refuse(answers.run_answered(self.world, sizes), np.arange(len(sizes)), sizes)
        self.finished = True

    def could_hold(self, sizes: Numbers) -> bool:
        """Whether the empty site could hold each job in its row of ``sizes`` (jobs, 7), columns SIZE_FIELDS."""
        return bool(answers.first_unholdable_of(self.world, np.arange(len(sizes)), sizes) == NOBODY)

    def leave(self, numbers: Sequence[int] | Numbers) -> None:
        """Let waiting jobs begin as they are."""
        answers.leave(self.world, np.asarray(numbers, dtype=np.int64))

    def requeue(self, number: int) -> None:
        """Requeue a running job; it may be resized while it waits. Raises ValueError if it does not run."""
        if not answers.requeue(self.world, number):
            raise ValueError(f"job {number} does not run at {self.now_s} s: only running jobs are requeued")

    def outcomes(self) -> Records:
        """What has become of every job so far: a copy of the records (``engine_records.JOB``)."""
        return self.world.jobs.copy()

    def clone(self, arrivals: int | None = None) -> "Simulator":
        """Return an independent simulation in the same state.

        With ``arrivals`` only the first jobs of the workload come, never fewer than have come already.
        """
        copy = Simulator.__new__(Simulator)
        copy.site, copy.finished, copy.freed = self.site, self.finished, self.freed
        copy.pools, copy.gpu_types, copy.devices = self.pools, self.gpu_types, self.devices
        copy.world = World._make(
            array if name in _NEVER_COPIED else _copied(array)
            for name, array in zip(World._fields, self.world, strict=True)
        )
        if arrivals is not None:
            copy.world.jobs["submit_s"][max(arrivals, int(copy.world.clock[0]["arrived"])) :] = math.inf
        return copy

    def digest(self) -> str:
        """SHA-256 of what has become of all jobs, field by field."""
        digest = hashlib.sha256()
        for name in self.world.jobs.dtype.names or ():
            digest.update(np.ascontiguousarray(self.world.jobs[name]).tobytes())
        return digest.hexdigest()

    def _refuse(self, number: int, numbers: Numbers, sizes: Numbers) -> None:
        if number != NOBODY:
            size = dict(zip(SIZE_FIELDS, sizes[list(numbers).index(number)].tolist(), strict=True))
            raise ValueError(f"job {number} could never run as {size}: stay within what the partition's nodes have")


def _copied(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return a copy; records are copied as bytes, for which numpy takes half as long as for their fields."""
    return array.copy() if array.dtype.names is None else array.view(np.uint8).copy().view(array.dtype)


def _world_of(site: SimulatedSite, table: JobTable) -> World:
    nodes, devices = _nodes_of(site), devices_of(site)
    jobs = table.records.copy()
    count, numbers = len(nodes), len(jobs) + len(nodes)
    names = [partition.name for partition in site.partitions]
    kinds = [kind for kind in site.nodes for _ in range(kind.count)]
    in_partition = np.array([[name in kind.partitions for kind in kinds] for name in names])
    partitions = np.zeros(len(names), dtype=PARTITION)
    partitions["tier"] = [partition.priority_tier for partition in site.partitions]
    partitions["priority_factor"] = [partition.priority_factor for partition in site.partitions]
    users, accounts = _associations_of(site)
    failures = np.zeros(len(site.failures), dtype=FAILURE)
    for row, failure in enumerate(sorted(site.failures, key=lambda each: (each.time_s, each.node))):
        if failure.node >= count:
            raise ValueError(f"node {failure.node} fails, but the site has {count} (0 is the first)")
        failures[row] = (failure.time_s, failure.repaired_s, failure.node)
    nodes["most_free"] = devices.max(axis=1)
    holds = np.zeros(int(nodes["cpus"].sum()), dtype=HOLD)  # a job holds a CPU of a node at least
    holds["next"] = np.arange(1, len(holds) + 1)
    held = np.arange(devices.max() + 1)[:, None] <= devices.T[:, None]
    return World(
        jobs=jobs,
        sizes=table.sizes.copy(),
        nodes=nodes,
        slots=np.zeros((count, int(nodes["cpus"].max())), dtype=SLOT),
        free_devices=devices,
        pools=pools_of(site, table.pools),
        # In the layout of a clone's arrays: for another one, numba would compile the whole engine again.
        units_free_s=np.ascontiguousarray(np.where(held, -math.inf, math.inf)),
        holds=holds,
        partitions=partitions,
        in_partition=in_partition,
        users=users,
        accounts=accounts,
        failures=failures,
        links=table.links,
        clock=_clock_of(jobs, nodes),
        rules=rules_of(site),
        queue=np.zeros(len(jobs) + 1, dtype=np.int64),
        asked=np.zeros(2 * len(jobs) + 1, dtype=np.int64),
        agenda=np.zeros(numbers, dtype=np.int64),
        agenda_place=np.full(numbers, NOBODY, dtype=np.int64),
        agenda_s=np.zeros(numbers),
        curve_points=table.curve_points,
        curve_gpus=table.curve_gpus,
        curve_speedup=table.curve_speedup,
        chosen=np.zeros(count, dtype=np.int64),
        allowed=np.zeros(count, dtype=np.bool_),
        room=np.zeros(count, dtype=np.int64),
    )


def _nodes_of(site: SimulatedSite) -> Records:
    nodes = np.zeros(site.node_count, dtype=NODE)
    first = 0
    for kind in site.nodes:
        mine = nodes[first : first + kind.count]
        mine["cpus"] = mine["free_cpus"] = kind.shape.cpus
        mine["mem_mib"] = mine["free_mem_mib"] = kind.shape.mem_mib
        mine["weight"], mine["speed"], mine["up"] = kind.weight, kind.speed, True
        first += kind.count
    return nodes


def _associations_of(site: SimulatedSite) -> tuple[Records, Records]:
    names = sorted({user.account for user in site.users})
    accounts = np.zeros(len(names), dtype=ACCOUNT)
    accounts["shares"] = [site.account_shares.get(name, 1.0) for name in names]
    users = np.zeros(len(site.users), dtype=USER)
    users["account"] = [names.index(user.account) for user in site.users]
    users["shares"] = [user.shares for user in site.users]
    users["factor"] = 1.0  # without usage all users rank alike
    return users, accounts


def _clock_of(jobs: Records, nodes: Records) -> Records:
    clock = np.zeros(1, dtype=CLOCK)
    start_s = float(jobs["submit_s"][0]) if len(jobs) else 0.0
    for name in ("last_backfill_s", "last_pass_s"):
        clock[name] = -math.inf
    for name in ("now_s", "last_usage_s", "last_calculation_s"):
        clock[name] = start_s
    for name in CLOCK.names or ():
        if name.startswith("next_"):
            clock[name] = math.inf
    clock["total_cpus"] = nodes["cpus"].sum()
    return clock
