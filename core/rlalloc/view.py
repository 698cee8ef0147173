"""The cluster at one moment, as far as a decision depends on it.

The daemon makes a view from Slurm's snapshot and the simulator from its own state; all that policies and the
observation encoding know of the cluster is in it.
"""

import bisect
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from rlalloc.allocation import without_limit
from rlalloc.bounds import NodeShape
from rlalloc.devices import ANY_GPU, Device
from rlalloc.job import Allocation
from rlalloc.run_time import RunTimeEstimate, expected_s, mean_s
from rlalloc.speed import PRIOR
from rlalloc.speed.type_speeds import BUILT_IN, TypeSpeeds

FloatArray = NDArray[np.float64]


class ExpectedJob(Protocol):
    """What is known of a job's run time: its request, and an estimate; None where only its time limit is known."""

    @property
    def request(self) -> Allocation:
        """The size that it asked for."""
        ...

    @property
    def run_time(self) -> RunTimeEstimate | None:
        """Its run time in that size."""
        ...


@dataclass(frozen=True, eq=False)
class ClusterView:
    """The nodes that a job may use, at ``time_s``; arrays hold GPUs, CPUs and MiB in this order.

    GPUs are devices of the job's kind: whole GPUs of the types that it may get, or slices.

    free      (nodes, 3)  what each node has left for it
    totals    (3,)        what the nodes have in all
    releases  (running, 4)  seconds until a job on these nodes is expected to end, then what it holds there; ascending
    queued    (pending, 2)  GPUs wanted here and expected run time [s] of each job that waits ahead
    behind    jobs of lower priority that wait for these nodes, too
    gpu_types  the types of the nodes' GPUs, as Slurm names them; empty where one has none
    type_speeds  how fast types of GPU are, as far as rlalloc or the site knows
    device     what counts as a GPU here
    cluster_nodes  how many usable nodes with GPUs the whole cluster has; 0 where nobody says
    urgency_counts  whether the site lets a policy's urgency order its queue (``rlalloc.urgency``)
    """

    time_s: float
    shape: NodeShape
    free: FloatArray
    totals: FloatArray
    releases: FloatArray
    queued: FloatArray
    behind: int = 0
    urgency_counts: bool = False
    gpu_types: tuple[str, ...] = ()
    device: Device = ANY_GPU
    cluster_nodes: int = 0
    type_speeds: TypeSpeeds = BUILT_IN

    @property
    def crowd(self) -> int:
        """How many other jobs wait, ahead or behind: what a job takes, all of them have to do without."""
        return len(self.queued) + self.behind

    @cached_property
    def backlog_s(self) -> float:
        """Seconds that all nodes would need to work off the queue."""
        if self.queued.size == 0:
            return 0.0
        return float((self.queued[:, 0] * self.queued[:, 1]).sum() / max(1.0, self.totals[0]))

    @cached_property
    def queued_gpus(self) -> float:
        """GPUs that all those ahead ask for."""
        return float(np.add.reduce(self.queued[:, 0]))

    def freed_gpus_within(self, seconds: float) -> float:
        """GPUs of the jobs that are expected to end within so many seconds."""
        return self._freed_gpus[bisect.bisect_right(self._ends_s, seconds)]

    @cached_property
    def free_in_all(self) -> FloatArray:
        """What all nodes together have left, shape (3,)."""
        return np.asarray(np.add.reduce(self.free, axis=0))

    @cached_property
    def gpus_in_use(self) -> float:
        """The part of all GPUs that is not free, 0 to 1."""
        gpus, _, _ = self._totals
        return 1.0 - float(self.free_in_all[0]) / gpus

    def fits_now(self, allocation: Allocation) -> bool:
        """Whether enough nodes have room for ``allocation`` at this moment."""
        return self.fit_now((allocation,))[0]

    def fit_now(self, allocations: Sequence[Allocation]) -> list[bool]:
        """Likewise, of each."""
        needs = np.array([(each.gpus_per_node, each.cpus_per_node, each.mem_mib_per_node) for each in allocations])
        with_room = np.logical_and.reduce(self.free[:, None, :] >= needs, axis=2).sum(axis=0).tolist()
        return [nodes >= each.nodes for nodes, each in zip(with_room, allocations, strict=True)]

    def expected_wait_s(self, allocation: Allocation) -> float:
        """Seconds until ``allocation`` could start: none if it fits, else releases and the queue before it.

        An estimate: fragmentation and backfill are left out. If running jobs never free enough, the limit of
        the last one stands in for the unknown.
        """
        return self.sizes_there((without_limit(allocation),)).wait_s[0]

    def freed_after_s(self, allocations: Sequence[Allocation]) -> list[float]:
        """Seconds until running jobs have left enough for each of ``allocations``, if nobody else takes it."""
        return self.sizes_there(allocations).freed_s

    def sizes_there(self, allocations: Sequence[Allocation]) -> "SizesThere":
        """When each of ``allocations`` could start, and what it takes; kept, for many jobs ask for the same."""
        key = tuple(allocations)
        if key not in self._known:
            self._known[key] = self._sizes_there(key)
        return self._known[key]

    def _sizes_there(self, allocations: tuple[Allocation, ...]) -> "SizesThere":
        fit, freed_s = self.fit_now(allocations), [0.0] * len(allocations)
        if not all(fit) and len(self.releases):
            needs = np.array([(each.gpus, each.cpus, each.mem_mib) for each in allocations], dtype=np.float64)
            # What is available only grows: the first time when there is enough of a resource is found by bisection.
            first = np.zeros(len(needs), dtype=np.int64)
            for resource, available in enumerate(self._available):
                first = np.maximum(first, available.searchsorted(needs[:, resource]))
            last = len(self.releases) - 1
            freed_s = [
                0.0 if fits else self._ends_s[min(place, last)]
                for fits, place in zip(fit, first.tolist(), strict=True)
            ]
        wait_s = [0.0 if fits else each + self.backlog_s for fits, each in zip(fit, freed_s, strict=True)]
        return SizesThere(freed_s, wait_s, [self.dominant_share(each) for each in allocations])

    def dominant_share(self, allocation: Allocation) -> float:
        """The largest part of the nodes' GPUs, CPUs or memory that ``allocation`` takes (Ghodsi 2011)."""
        gpus, cpus, mem_mib = self._totals
        return max(allocation.gpus / gpus, allocation.cpus / cpus, allocation.mem_mib / mem_mib)

    @cached_property
    def encoded(self) -> dict[object, object]:
        """What ``rlalloc.observation`` keeps of jobs that it has encoded on this view."""
        return {}

    @cached_property
    def _known(self) -> dict[tuple[Allocation, ...], "SizesThere"]:
        return {}

    @cached_property
    def _totals(self) -> tuple[float, float, float]:
        gpus, cpus, mem_mib = (max(1.0, total) for total in self.totals.tolist())
        return gpus, cpus, mem_mib

    @cached_property
    def _freed_gpus(self) -> list[float]:
        """GPUs of the first releases: of none, of one, and so on."""
        return [0.0, *np.add.accumulate(self.releases[:, 1]).tolist()]

    @cached_property
    def _available(self) -> FloatArray:
        """What is free after each release, shape (3, running)."""
        return self.free_in_all[:, None] + np.add.accumulate(self.releases[:, 1:].T, axis=1)

    @cached_property
    def _ends_s(self) -> list[float]:
        return cast(list[float], self.releases[:, 0].tolist())


class SizesThere(NamedTuple):
    """Some sizes on the nodes of a view: a value for each.

    ``freed_s`` is when running jobs have left enough for it, if nobody else takes that; ``wait_s`` counts the queue
    before it, too. ``dominant`` is its dominant share.
    """

    freed_s: list[float]
    wait_s: list[float]
    dominant: list[float]


def expected_as_requested_s(job: ExpectedJob) -> float:
    """Run time [s] that is expected of a job in the size that it asked for."""
    return expected_s(job.request.time_limit_s, math.nan if job.run_time is None else job.run_time.median_s)


def mean_as_requested_s(job: ExpectedJob) -> float:
    """Likewise its mean, which counts where the job takes something from others for as long as it runs."""
    return mean_s(job.request.time_limit_s, job.run_time)


def expected_run_time_s(job: ExpectedJob, allocation: Allocation) -> float:
    """Likewise under ``allocation``."""
    return expected_as_requested_s(job) * prior_speed(job.request) / prior_speed(allocation)


def prior_speed(size: Allocation) -> float:
    """What is assumed of a job's speed in a size, in multiples of one GPU."""
    return _prior_speed(max(1, size.gpus), size.cpus_per_gpu)


_prior_speed = functools.lru_cache(maxsize=8192)(PRIOR.at)
"""Kept: all ask for the same."""


def slowdown(request: Allocation, allocation: Allocation) -> float:
    """Predicted run time under ``allocation`` over that as submitted."""
    return prior_speed(request) / prior_speed(allocation)
