"""Makes the views of partitions that policies see from Slurm's snapshot, each once per snapshot."""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

import numpy as np

from rlalloc.bounds import NodeShape
from rlalloc.speed.family_speeds import FamilySpeeds
from rlalloc.urgency import UrgencyRules
from rlalloc.view import ClusterView, FloatArray
from rlallocd.known_run_times import LIMITS_ONLY, KnownRunTimes
from rlallocd.known_usage import Usage, no_usage
from rlallocd.node_sets import NodeSets
from rlallocd.request_sizes import FORMS_SKIPPED, Skipped
from rlallocd.slurm import JobRecord, NodeRecord

MOST_VIEWS: Final = 256
"""So many views of one snapshot are kept."""
_Key = TypeVar("_Key")


def gpu_types_for(job: JobRecord, view: ClusterView) -> tuple[str, ...]:
    """The GPU types that a job may get: the one that it names, else all of its view."""
    return (job.gpu_type,) if job.gpu_type else view.gpu_types


class _Demand(NamedTuple):
    """What the jobs of a partition hold and ask for: ``ClusterView.releases`` and ``queued``."""

    releases: FloatArray
    queued: FloatArray


class ClusterViews:
    """The views of all partitions at ``now_s`` on a site with these ``rules``, and what each user holds.

    ``run_times`` is what is known of the jobs' run times, ``usage`` what like jobs used, and ``speeds`` how each
    family of jobs scales.
    """

    def __init__(
        self,
        nodes: Sequence[NodeRecord],
        jobs: Sequence[JobRecord],
        now_s: float,
        rules: UrgencyRules,
        run_times: KnownRunTimes = LIMITS_ONLY,
        usage: Usage = no_usage,
        speeds: FamilySpeeds | None = None,
    ) -> None:
        self.run_times = run_times
        self.usage = usage
        self.speeds = speeds or FamilySpeeds()
        self._nodes = nodes
        self._now_s = now_s
        self._rules = rules
        self._jobs: defaultdict[str, list[JobRecord]] = defaultdict(list)
        self._sets = NodeSets(nodes)
        self._views: dict[tuple[str, str, str, str], ClusterView] = {}
        self._of_nodes: dict[tuple[str, tuple[str, ...]], ClusterView] = {}
        self._demand: dict[str, _Demand] = {}
        self._user_running_gpus: Counter[str] = Counter()
        for job in jobs:
            if job.pending or job.running:
                for partition in job.partition.split(","):
                    self._jobs[partition].append(job)
            if job.running:
                self._user_running_gpus[job.user] += job.gpus

    def of(self, partition: str) -> ClusterView:
        """The view of one partition. Raises Skipped if it has no usable GPU node."""
        return self._view((partition, "", "", ""), self._nodes)

    def for_job(self, job: JobRecord) -> ClusterView:
        """The view of the nodes that a job may use, in its first partition.

        Raises Skipped if there are none, or if Slurm may mix devices for it.
        """
        if self._sets.mixes_devices(job):
            raise Skipped(f"{FORMS_SKIPPED['mixed-devices']}; it runs as submitted", "mixed-devices")
        partition = job.partition.split(",")[0]
        key = partition, job.gpu_type, job.features, job.excluded_nodes
        return self._view(key, self._sets.nodes_for(job, partition))

    def _view(self, key: tuple[str, str, str, str], nodes: Sequence[NodeRecord]) -> ClusterView:
        """Views of the same nodes are one, and all of a partition share what its jobs hold and ask for."""
        if key not in self._views:
            same = key[0], tuple(node.name for node in nodes)
            if same not in self._of_nodes:
                _make_room(self._of_nodes)
                self._of_nodes[same] = _view_of(key[0], nodes, self._demand_of(key[0]), self._now_s, self._rules)
            _make_room(self._views)
            self._views[key] = self._of_nodes[same]
        return self._views[key]

    def _demand_of(self, partition: str) -> "_Demand":
        if partition not in self._demand:
            self._demand[partition] = _demand(partition, self._jobs[partition], self._now_s, self.run_times)
        return self._demand[partition]

    def user_running_gpus(self, user: str) -> int:
        """GPUs that a user's jobs hold, in all partitions."""
        return self._user_running_gpus[user]


def partition_view(
    partition: str,
    nodes: Sequence[NodeRecord],
    jobs: Sequence[JobRecord],
    now_s: float,
    rules: UrgencyRules,
    run_times: KnownRunTimes = LIMITS_ONLY,
) -> ClusterView:
    """The view of one partition at ``now_s``, on a site with these ``rules``.

    Raises Skipped if it has no usable GPU node.
    """
    mine = [job for job in jobs if partition in job.partition.split(",")]
    return _view_of(partition, nodes, _demand(partition, mine, now_s, run_times), now_s, rules)


def _demand(partition: str, jobs: Sequence[JobRecord], now_s: float, run_times: KnownRunTimes) -> _Demand:
    rows = sorted((run_times.remaining_s(job, now_s), job.gpus, job.cpus, job.mem_mib) for job in jobs if job.running)
    return _Demand(
        releases=np.array(rows, dtype=np.float64).reshape(-1, 4),
        queued=_demands(queue_of(partition, jobs, now_s), run_times),
    )


def _view_of(
    partition: str, nodes: Sequence[NodeRecord], demand: _Demand, now_s: float, rules: UrgencyRules
) -> ClusterView:
    usable = [node for node in nodes if node.usable and node.gpus and partition in node.partitions]
    if not usable:
        raise Skipped(f"partition {partition} has no usable GPU node for it", "no-gpu-node")
    largest = max(usable, key=lambda node: (node.gpus, node.cpus, node.mem_mib))
    has = np.array([(node.gpus, node.cpus, node.mem_mib) for node in usable], dtype=np.float64)
    used = np.array([(node.gpus_used, node.cpus_used, node.mem_mib_used) for node in usable], dtype=np.float64)
    return ClusterView(
        time_s=now_s,
        shape=NodeShape(gpus=largest.gpus, cpus=largest.cpus, mem_mib=largest.mem_mib),
        free=has - used,
        totals=has.sum(axis=0),
        releases=demand.releases,
        queued=demand.queued,
        urgency_counts=rules.nice_band > 0,
        gpu_types=_gpu_types(usable),
    )


def _make_room(views: dict[_Key, ClusterView]) -> None:
    """Forget the oldest view where there are too many: a site may have as many constraints as jobs."""
    if len(views) >= MOST_VIEWS:
        del views[next(iter(views))]


def _gpu_types(nodes: Iterable[NodeRecord]) -> tuple[str, ...]:
    """The types of all nodes, each once; none where a node's is unknown: its GPUs may be the smallest."""
    types = [node.gpu_types for node in nodes]
    return tuple(sorted({name for each in types for name in each})) if all(types) else ()


def queue_of(partition: str, jobs: Sequence[JobRecord], now_s: float) -> tuple[JobRecord, ...]:
    """The jobs that wait for GPUs of a partition, in the order in which Slurm tries them."""
    waiting = (
        job
        for job in jobs
        if job.pending
        and job.gpus
        and job.begin_s <= now_s
        and job.priority > 0
        and job.reason != "Dependency"
        and partition in job.partition.split(",")
    )
    return tuple(sorted(waiting, key=lambda job: (-job.priority, job.job_id)))


def seen_from(
    place: int, queue: Sequence[JobRecord], view: ClusterView, run_times: KnownRunTimes = LIMITS_ONLY
) -> ClusterView:
    """The view from a place in the queue: jobs ahead with their sizes, jobs behind only as a number."""
    return dataclasses.replace(view, queued=_demands(queue[:place], run_times), behind=len(queue) - place - 1)


def _demands(queue: Iterable[JobRecord], run_times: KnownRunTimes) -> FloatArray:
    return np.array([(job.gpus, run_times.expected_s(job)) for job in queue], dtype=np.float64).reshape(-1, 2)
