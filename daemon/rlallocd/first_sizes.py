"""What a new job gets of the policy's answer: all of it if it can start, else it waits as requested.

The rules are those of ``rlalloc.late_decisions``; a pass decides the job again when it could start.
"""

from collections.abc import Iterator, Sequence

from rlalloc.job import Allocation, JobView, Shares
from rlalloc.late_decisions import DEPTH, first_shares, left_by
from rlalloc.view import ClusterView, FloatArray
from rlallocd.candidates import WAITS_FOR_RESOURCES, Candidate
from rlallocd.cluster_views import queue_of
from rlallocd.request_sizes import Skipped, size_of
from rlallocd.slurm import JobRecord


class FirstSizes:
    """Gives what is free to the new jobs of one cycle, in their order, after those that wait and could start."""

    def __init__(self, jobs: Sequence[JobRecord], now_s: float, *, late: bool) -> None:
        """``jobs`` is the snapshot. Unless ``late``, each new job gets the whole answer."""
        self._jobs = jobs
        self._now_s = now_s
        self._late = late
        self._left: dict[int, tuple[ClusterView, FloatArray]] = {}
        self._queues: dict[str, list[Allocation]] = {}

    def shares(
        self, candidate: Candidate, job: JobView, cluster: ClusterView, allocation: Allocation, answer: Shares
    ) -> Shares:
        """The shares that a job gets of an ``answer``, which means ``allocation``."""
        if not self._late or not _may_wait(candidate):
            return answer
        _, left = self._left.get(id(cluster)) or (cluster, left_by(self._waiting(candidate.partition), cluster.free))
        shares = first_shares(answer, allocation, job.request, job.bounds, left)
        taken = allocation if shares == answer or allocation.gpus == job.request.gpus else job.request
        # The view is kept, so that no other one gets its id.
        self._left[id(cluster)] = cluster, left_by([taken], left)
        return answer if taken is allocation else shares

    def _waiting(self, partition: str) -> list[Allocation]:
        if partition not in self._queues:
            self._queues[partition] = list(_sizes(queue_of(partition, self._jobs, self._now_s)[:DEPTH]))
        return self._queues[partition]


def _may_wait(candidate: Candidate) -> bool:
    """Whether a pass may decide it again: it is enforced, no array, and waits for nothing but resources."""
    job = candidate.job
    waits_for_others = job.held or job.reason == "Dependency" or candidate.begin_s > 0
    return candidate.mode == "enforce" and not job.is_array and not waits_for_others


def _sizes(queue: Sequence[JobRecord]) -> Iterator[Allocation]:
    for job in queue:
        if job.reason in WAITS_FOR_RESOURCES:
            try:
                yield size_of(job)
            except Skipped:
                continue
