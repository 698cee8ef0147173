"""What policies see of the cluster: for each job the nodes that it may use, and who competes for them."""

import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Final, TypeVar

import numpy as np

from rlalloc.pool import FloatArray, Pool
from rlalloc.speed.family_speeds import FamilySpeeds
from rlalloc.urgency import UrgencyRules
from rlalloc.view import ClusterView
from rlallocd.cluster.backfill_reach import BackfillReach
from rlallocd.cluster.holdings import Holdings
from rlallocd.cluster.licenses import Licenses
from rlallocd.cluster.node_access import NO_FACTS, Access, NodeAccess, SiteFacts
from rlallocd.cluster.node_pools import NodePools
from rlallocd.cluster.queue_order import QueueOrder
from rlallocd.cluster.waiting_jobs import WaitingJobs
from rlallocd.knowledge.known_run_times import LIMITS_ONLY, KnownRunTimes
from rlallocd.knowledge.known_usage import Usage, no_usage
from rlallocd.slurm import GpuDefaults, JobRecord, PartitionRecord
from rlallocd.submissions.request_sizes import FORMS_SKIPPED, Skipped, size_on

MOST_VIEWS: Final = 256
"""So many views of one snapshot are kept."""
_EXACT_PLACES: Final = 64
"""Up to this place of the queue each job has a view of its own; beyond, those at about the same place share one."""
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def gpu_types_for(job: JobRecord, view: ClusterView) -> tuple[str, ...]:
    """The GPU types that a job may get: the one that it names, else all of its view."""
    return (job.gpu_type,) if job.gpu_type else view.gpu_types


def require_alike(job: JobRecord, pools: NodePools) -> None:
    """Raise Skipped if Slurm may mix devices for a job."""
    if pools.mixes_devices(job):
        raise Skipped(f"{FORMS_SKIPPED['mixed-devices']}; it runs as submitted", "mixed-devices")


class ClusterViews:
    """The views of all jobs on the nodes of ``pools`` at ``now_s``, on a site with these ``rules``.

    ``run_times`` is what is known of the jobs' run times, ``usage`` what like jobs used, and ``speeds`` how each
    family of jobs scales. ``facts`` is what else is known of the site.
    """

    def __init__(
        self,
        pools: NodePools,
        jobs: Sequence[JobRecord],
        now_s: float,
        rules: UrgencyRules,
        run_times: KnownRunTimes = LIMITS_ONLY,
        usage: Usage = no_usage,
        speeds: FamilySpeeds | None = None,
        facts: SiteFacts = NO_FACTS,
    ) -> None:
        self.run_times = run_times
        self.usage = usage
        self.speeds = speeds or FamilySpeeds()
        self.now_s = now_s
        self.pools = pools
        self._jobs = jobs
        self._rules = rules
        self._facts = facts
        self._pool_of: dict[Access, Pool] = {}
        self._whole: dict[Access, ClusterView] = {}
        self._seen: dict[tuple[Access, int, int], ClusterView] = {}
        self._gpu_defaults: dict[str, tuple[GpuDefaults, ...]] = {}
        self._cpus_per_core: dict[str, int] = {}

    def for_job(self, job: JobRecord) -> ClusterView:
        """The view of the nodes that a job may use, from its place in the queue.

        Raises Skipped if there are none, or if Slurm may mix devices for it.
        """
        return self.seen_with(self.access_of(job), job)

    def access_of(self, job: JobRecord) -> Access:
        """The nodes that a job may use, and on which terms; of several partitions, where it would start first.

        Raises Skipped as above.
        """
        require_alike(job, self.pools)
        return self.access_in_queue(job)

    def access_in_queue(self, job: JobRecord) -> Access:
        """Likewise of any job that waits. Raises Skipped if there is no usable node for it."""
        possible = [self._access.of(job, partition) for partition in job.partition.split(",")]
        usable = [access for access in possible if access.pool.pool.places.size]
        if not usable:
            raise Skipped(
                f"partition {job.partition} has no usable GPU node{job.needs.which_nodes} for it", "no-gpu-node"
            )
        return min(usable, key=lambda access: self._wait_s(access, job)) if len(usable) > 1 else usable[0]

    def seen_with(self, access: Access, job: JobRecord) -> ClusterView:
        """The view of these nodes, from a job's place in the queue."""
        place, is_queued = self.waiting.place_of(job)
        competing = self.waiting.competing_for(access.pool)
        before, own = competing.rows_at(place)
        others = len(competing.demands) - (own if is_queued else 0)
        ahead = min(_shared_place(before), others)
        key = access, ahead, others
        if key not in self._seen:
            _make_room(self._seen)
            queued = competing.demands[:ahead]
            self._seen[key] = dataclasses.replace(self.whole(access), queued=queued, behind=others - ahead)
        return self._seen[key]

    def whole(self, access: Access) -> ClusterView:
        """The view of these nodes without those who wait for them."""
        if access not in self._whole:
            _make_room(self._whole)
            if access.opens_s:
                self._whole[access] = closed_for(self.whole(access._replace(opens_s=0.0)), access.opens_s)
            else:
                self._whole[access] = self._view(access)
        return self._whole[access]

    def pool(self, access: Access) -> Pool:
        """The nodes of these terms as the rows of a stock."""
        if access not in self._pool_of:
            _make_room(self._pool_of)
            pool = self._access.pool(access)
            self._pool_of[access] = pool.all_closed() if access.opens_s else pool
        return self._pool_of[access]

    def limits(self, access: Access) -> FloatArray:
        """Seconds until each job that runs there reaches its limit, or a node opens, and the devices; (rows, 2).

        None where the licences are not free: backfill reserves nothing for a job without them.
        """
        if access.opens_s:
            return np.empty((0, 2))
        held = self.holdings.limits(self.pool(access), self._access.preempted(access))
        return np.concatenate((held, self._access.openings(access)[:, :2]))

    @functools.cached_property
    def holdings(self) -> Holdings:
        """What running jobs hold."""
        return Holdings(self.pools, [job for job in self._jobs if job.running], self.now_s, self.run_times)

    @functools.cached_property
    def waiting(self) -> WaitingJobs:
        """The jobs that wait for GPUs."""
        return WaitingJobs(self.pools, self._jobs, self._order, self.now_s, self.run_times)

    @functools.cached_property
    def backfill(self) -> BackfillReach:
        """Which of the waiting jobs Slurm tries to start out of order."""
        return BackfillReach(self._jobs, self._order, self._facts.scheduling, self.now_s)

    @functools.cached_property
    def _order(self) -> QueueOrder:
        return QueueOrder(self._facts.partitions)

    @functools.cached_property
    def _access(self) -> NodeAccess:
        facts = self._facts
        licenses = Licenses(facts.licenses, facts.reservations, self._jobs, self._order, self.now_s, self.run_times)
        return NodeAccess(self.pools, self.holdings, licenses, facts, self.now_s)

    def rank(self, job: JobRecord) -> int:
        """Where a job stands in the queue, or would stand."""
        return self.waiting.place_of(job)[0]

    def gives_sockets(self, job: JobRecord) -> bool:
        """Whether slurm.conf, or one of a job's partitions instead, gives a job all CPUs of its sockets."""
        of_site = self._facts.scheduling.gives_sockets
        own = [each.gives_sockets for each in self._partitions_of(job.partition)]
        return any(of_site if each is None else each for each in own or [None])

    def cpus_per_core(self, job: JobRecord) -> int:
        """The most CPUs that Slurm counts for a core of any node with GPUs of a job's partitions."""
        if job.partition not in self._cpus_per_core:
            names = set(job.partition.split(","))
            nodes = [node for node in self.pools.nodes if node.devices and not names.isdisjoint(node.partitions)]
            self._cpus_per_core[job.partition] = max((node.cpus_per_core for node in nodes), default=1)
        return self._cpus_per_core[job.partition]

    def has_its_nodes_alone(self, job: JobRecord) -> bool:
        """Whether one of a job's partitions gives each job whole nodes, whatever it asks for."""
        return any(partition.whole_nodes for partition in self._partitions_of(job.partition))

    def may_share_its_nodes(self, job: JobRecord) -> bool:
        """Whether one of a job's partitions lets jobs share nodes, or none is known."""
        partitions = self._partitions_of(job.partition)
        return not partitions or not all(partition.whole_nodes for partition in partitions)

    def gpu_defaults_for(self, job: JobRecord) -> tuple[GpuDefaults, ...]:
        """What Slurm gives a job for each GPU by default: for each of its partitions, in the order of its request."""
        if job.partition not in self._gpu_defaults:
            of_site = self._facts.gpu_defaults
            of = {each.name: each.gpu_defaults for each in self._partitions_of(job.partition)}
            found = tuple(of.get(name, of_site).before(of_site) for name in job.partition.split(","))
            self._gpu_defaults[job.partition] = found
        return self._gpu_defaults[job.partition]

    def _partitions_of(self, names: str) -> list[PartitionRecord]:
        known = self._facts.partitions
        return [known[name] for name in names.split(",") if name in known]

    def user_running_gpus(self, user: str) -> int:
        """Whole GPUs that a user's jobs hold, in all partitions."""
        return self._user_running_gpus[user]

    @functools.cached_property
    def _user_running_gpus(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for job in self._jobs:
            if job.running and job.device.whole:
                counts[job.user] += job.gpus
        return counts

    def _view(self, access: Access) -> ClusterView:
        pool, its = self.pool(access), access.pool
        releases = self.holdings.releases(pool, self._access.preempted(access))
        openings = self._access.openings(access)
        if len(openings):
            releases = np.concatenate((releases, openings))
            releases = releases[np.lexsort(releases.T[::-1])]
        return ClusterView(
            time_s=self.now_s,
            shape=its.shape,
            free=pool.open(self.pools.free),
            totals=its.has.sum(axis=0),
            releases=releases,
            queued=np.empty((0, 2)),
            urgency_counts=self._rules.nice_band > 0,
            gpu_types=its.gpu_types,
            device=its.device,
            cluster_nodes=self.pools.with_devices,
            type_speeds=self._facts.type_speeds,
        )

    def _wait_s(self, access: Access, job: JobRecord) -> float:
        """Seconds until the job's request could start there; infinite if it never can."""
        view = self.seen_with(access, job)
        try:
            return view.expected_wait_s(size_on(job, view.shape))
        except Skipped:
            return math.inf


def closed_for(view: ClusterView, seconds: float) -> ClusterView:
    """The view of a job that no node can take for so long; if that is infinite, until the last running job ends."""
    ends_s = view.releases[:, 0]
    if math.isinf(seconds):
        seconds = float(ends_s.max(initial=0.0))
    releases = np.concatenate(([[seconds, *view.free_in_all]], view.releases))
    releases[:, 0] = np.maximum(releases[:, 0], seconds)
    return dataclasses.replace(view, free=np.zeros_like(view.free), releases=releases)


def _shared_place(rows: int) -> int:
    """A number of rows ahead that jobs near each other in a long queue share: at most an eighth more."""
    if rows <= _EXACT_PLACES:
        return rows
    step = 1 << (rows.bit_length() - 4)
    return -(-rows // step) * step


def _make_room(known: dict[_Key, _Value]) -> None:
    """Forget the oldest where there are too many: a site may have as many constraints as jobs."""
    if len(known) >= MOST_VIEWS:
        del known[next(iter(known))]
