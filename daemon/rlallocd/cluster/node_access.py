"""On which terms a job may use nodes: reservations, nodes of one user, powered-down nodes, preemption, licences."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from rlalloc.pool import FloatArray, Pool
from rlalloc.speed.type_speeds import BUILT_IN, TypeSpeeds
from rlallocd.cluster.holdings import Holdings
from rlallocd.cluster.licenses import Licenses
from rlallocd.cluster.node_pools import NodePool, NodePools
from rlallocd.slurm import GpuDefaults, JobRecord, LicenseRecord, PartitionRecord, ReservationRecord, SchedulingRules

Flags = NDArray[np.bool_]


class SiteFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a site beside its nodes and jobs.

    ``preempts`` names, for each QOS, those whose running jobs its jobs may preempt. ``gpu_defaults`` are those of
    slurm.conf, ``type_speeds`` says how fast its GPUs are.
    """

    partitions: Mapping[str, PartitionRecord] = {}
    reservations: tuple[ReservationRecord, ...] = ()
    preempts: Mapping[str, frozenset[str]] = {}
    scheduling: SchedulingRules = SchedulingRules()
    licenses: Mapping[str, LicenseRecord] | None = {}
    gpu_defaults: GpuDefaults = GpuDefaults()
    type_speeds: TypeSpeeds = BUILT_IN


NO_FACTS: Final = SiteFacts()


class Preempts(NamedTuple):
    """Whose running jobs may be ended for a job: those of these QOS, and of preemptable partitions below a tier."""

    qos: frozenset[str] = frozenset()
    below_tier: int = 0


class Access(NamedTuple):
    """A pool of nodes, and on which terms a job may use them.

    ``reserved`` are the numbers of the reservations that the job may not run into, ``user`` is its user where some
    nodes take only one user's jobs; else empty. ``opens_s`` is the seconds until its licences are free; infinite
    where nobody knows.
    """

    pool: NodePool
    reserved: tuple[int, ...] = ()
    preempts: Preempts = Preempts()
    user: str = ""
    opens_s: float = 0.0


class NodeAccess:
    """The terms for all jobs of one snapshot, taken at ``now_s``."""

    def __init__(
        self, pools: NodePools, holdings: Holdings, licenses: Licenses, facts: SiteFacts, now_s: float
    ) -> None:
        self._pools = pools
        self._holdings = holdings
        self._licenses = licenses
        self._facts = facts
        self._now_s = now_s
        self._asleep = np.array([node.asleep for node in pools.nodes], dtype=np.bool_)
        self._has_owners = any(node.owner for node in pools.nodes)
        self._reserved = {
            number: np.array([node.name in each.nodes for node in pools.nodes], dtype=np.bool_)
            for number, each in enumerate(facts.reservations)
            if each.end_s > now_s
        }

    def of(self, job: JobRecord, partition: str) -> Access:
        """On which terms a job may use the nodes of one of its partitions."""
        pool = self._pools.for_job(job, partition)
        ends_s = self._now_s + job.most_s
        reserved = tuple(
            number
            for number, nodes in self._reserved.items()
            if self._facts.reservations[number].start_s < ends_s and nodes[pool.pool.places].any()
        )
        user = job.user if self._has_owners else ""
        return Access(pool, reserved, self._preempts(job, partition), user, self._licenses.free_after_s(job))

    def pool(self, access: Access) -> Pool:
        """The nodes, closed where the job may use them later only, with what preemption would free.

        Licences are not looked at.
        """
        pool = access.pool.pool
        closed = self._opens_after_s(access)[pool.places] > 0.0
        preempted = self.preempted(access)
        return dataclasses.replace(
            pool,
            closed=closed if closed.any() else None,
            lent=None if preempted is None else self._holdings.on_nodes(pool, preempted),
        )

    def openings(self, access: Access) -> FloatArray:
        """Seconds until each closed node opens, and what it has then: as releases, shape (nodes, 4)."""
        pool = access.pool.pool
        after_s = self._opens_after_s(access)[pool.places]
        later = np.flatnonzero((after_s > 0.0) & np.isfinite(after_s))
        # Jobs that boot a node stay on it; those of a reservation are gone when it ends.
        free = np.where(self._asleep[pool.places, None], pool.of(self._pools.free), access.pool.has)
        return np.column_stack((after_s[later], free[later]))

    def preempted(self, access: Access) -> Flags | None:
        """Which running jobs may be ended for the job; None where none may."""
        qos, below_tier = access.preempts
        if not qos and not below_tier:
            return None
        return self._holdings.chosen(lambda job: job.qos in qos or self._is_below(job, below_tier))

    def _opens_after_s(self, access: Access) -> FloatArray:
        """Seconds until the job may use each node of the site, 0 for now; infinite where nobody knows."""
        after_s = np.where(self._asleep, self._facts.scheduling.resume_timeout_s, 0.0)
        for number in access.reserved:
            end_s = self._facts.reservations[number].end_s - self._now_s
            after_s = np.maximum(after_s, np.where(self._reserved[number], end_s, 0.0))
        if access.user:
            others = [node.owner not in ("", access.user) for node in self._pools.nodes]
            after_s[np.array(others, dtype=np.bool_)] = math.inf
        return after_s

    def _preempts(self, job: JobRecord, partition: str) -> Preempts:
        by = self._facts.scheduling.preempts_by
        if by == "qos":
            return Preempts(qos=self._facts.preempts.get(job.qos, frozenset()))
        if by == "partition" and partition in self._facts.partitions:
            return Preempts(below_tier=self._facts.partitions[partition].tier)
        return Preempts()

    def _is_below(self, job: JobRecord, tier: int) -> bool:
        partition = self._facts.partitions.get(job.partition)
        return partition is not None and partition.preemptable and partition.tier < tier
