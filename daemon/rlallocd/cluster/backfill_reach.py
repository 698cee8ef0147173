"""Which jobs Slurm may start although others wait ahead: as far as a pass of its backfill goes.

Backfill takes the jobs in the order of the queue, and skips those that are one too many of their user, their account
or their partition (``_job_exceeds_max_bf_param`` in slurmctld's backfill.c). slurmctld's other scheduler starts jobs
in the order of each partition's queue, and goes no further than the first one that has to wait.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Final

from rlallocd.cluster.queue_order import QueueOrder, Rank
from rlallocd.slurm import JobRecord, SchedulingRules

_NOT_YET_TRIED: Final = frozenset({"", "None", "BeginTime", "Cleaning"})
_ENDS_THE_PASS: Final = frozenset({"Resources", "Priority"})
"""Reasons of a job behind which schedule() starts no other one in the partition; it goes on behind all others."""
_TRIED: Final = _NOT_YET_TRIED | _ENDS_THE_PASS | {"ReqNodeNotAvail", "Licenses", "Reservation"}
_Key = tuple[str, ...]
_ALL: Final[_Key] = ()


class BackfillReach:
    """How far a pass through all jobs that wait at ``now_s`` goes, whatever resources they wait for."""

    def __init__(self, jobs: Sequence[JobRecord], order: QueueOrder, rules: SchedulingRules, now_s: float) -> None:
        self._order = order
        self._rules = rules
        self._last: dict[_Key, Rank] = {}
        tried = [job for job in jobs if _is_tried(job, now_s)]
        ranked = [(order.rank(job, name), name, job) for job in tried for name in job.partition.split(",")]
        queue = sorted(ranked, key=itemgetter(0, 1))
        self._go_through(queue)
        self._first_waiting: dict[str, Rank] = {
            name: rank
            for rank, name, job in (reversed(queue) if self._last else ())
            # slurmctld's schedule() goes on behind a job that waits for named nodes or in a reservation.
            if job.reason in _ENDS_THE_PASS and not (job.required_nodes or job.reservation)
        }

    def reaches(self, job: JobRecord) -> bool:
        """Whether Slurm would start a job if there were room; the job need not be in the queue yet."""
        return any(self._reaches(job, name) for name in job.partition.split(","))

    def _reaches(self, job: JobRecord, partition: str) -> bool:
        if not self._last:
            return True
        rank = self._order.rank(job, partition)
        if rank <= self._first_waiting.get(partition, rank):
            return True
        keys = (_ALL, *(key for key, _ in self._limits(job, partition)))
        return all(rank <= self._last.get(key, rank) for key in keys)

    def _go_through(self, queue: Sequence[tuple[Rank, str, JobRecord]]) -> None:
        """Find the last job of a pass, and the last one of each user, account and partition."""
        counts: Counter[_Key] = Counter()
        for rank, partition, job in queue:
            limits = tuple(self._limits(job, partition))
            for _ in range(min(job.waiting_tasks, max(1, self._rules.bf_max_job_array_resv))):
                if counts[_ALL] == self._rules.bf_max_job_test:
                    return
                if any(counts[key] >= most for key, most in limits):
                    break
                self._count(counts, limits, rank)
                if job.reason == "Licenses":  # skipped as well, but after it was counted for its user
                    break
                self._count(counts, ((_ALL, self._rules.bf_max_job_test),), rank)

    def _count(self, counts: Counter[_Key], limits: Sequence[tuple[_Key, int]], rank: Rank) -> None:
        for key, most in limits:
            counts[key] += 1
            if counts[key] == most:
                self._last[key] = rank

    def _limits(self, job: JobRecord, partition: str) -> Iterator[tuple[_Key, int]]:
        """How many jobs a pass takes of those that count with this one. An association's limit replaces a user's."""
        rules = self._rules
        if rules.bf_max_job_part:
            yield ("partition", partition), rules.bf_max_job_part
        if rules.bf_max_job_user_part:
            yield ("user in partition", job.user, partition), rules.bf_max_job_user_part
        if rules.bf_max_job_assoc:
            yield ("association", job.user, job.account), rules.bf_max_job_assoc
        elif rules.bf_max_job_user:
            yield ("user", job.user), rules.bf_max_job_user


def _is_tried(job: JobRecord, now_s: float) -> bool:
    return job.pending and job.priority > 0 and job.begin_s <= now_s and job.reason in _TRIED
