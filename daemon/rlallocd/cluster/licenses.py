"""When the licences are free that jobs ask for. Slurm starts no job without them, whatever nodes are free."""

import heapq
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from rlallocd.cluster.queue_order import QueueOrder
from rlallocd.knowledge.known_run_times import KnownRunTimes
from rlallocd.slurm import JobRecord, LicenseRecord, ReservationRecord, SiteLimits, license_counts
from rlallocd.submissions.job_tag import read_tag
from rlallocd.submissions.request_sizes import Skipped

_MOST_WAITING: Final = 200
"""Of more that wait for one licence, the others start with the last of these; of an array, each task is one."""
_LEAST_S: Final = 1.0
"""A job that is past its limit holds its licences for so much longer at least."""
_MAY_TAKE_ONE: Final = frozenset({"", "None", "Cleaning", "Licenses", "Priority"})
"""Reasons of jobs that may take a licence as soon as it is free: those that wait for nodes take none."""


class _Wanted(NamedTuple):
    """A job, or one task of an array, and how many licences of one name it wants."""

    job: JobRecord
    licenses: int


def require_licenses_read(job: JobRecord, limits: SiteLimits | None) -> None:
    """Raise Skipped for a job that asks for licences while these could not be read."""
    if job.licenses and limits is not None and limits.licenses is None:
        raise Skipped("the site's licences could not be read (scontrol show licenses)", "licenses-unread")


class Licenses:
    """The licences of a site at ``now_s``, who holds them, and who waits for them.

    Slurm gives free licences to the first job in the queue for which they are enough, and keeps none for a job that
    needs more. Reserved ones are not free for a job outside that would run into the reservation (``license_job_test``
    and ``job_test_lic_resv`` in slurmctld). Where they could not be read (None), all
    count as free: jobs that ask for some are then left alone (require_licenses_read).
    """

    def __init__(
        self,
        records: Mapping[str, LicenseRecord] | None,
        reservations: Sequence[ReservationRecord],
        jobs: Sequence[JobRecord],
        order: QueueOrder,
        now_s: float,
        run_times: KnownRunTimes,
    ) -> None:
        self._records = records or {}
        self._reservations = [each for each in reservations if each.licenses and each.end_s > now_s]
        self._jobs = [job for job in jobs if job.licenses] if records else []
        self._order = order
        self._now_s = now_s
        self._run_times = run_times
        self._starts_s: dict[str, dict[int, float]] = {}
        self._alone_s: dict[tuple[str, int, int, str], float] = {}
        self._holders: dict[str, list[tuple[float, int]]] = {}

    def free_after_s(self, job: JobRecord) -> float:
        """Seconds until a job may have the licences that it asks for, 0 for now; infinite where nobody knows.

        Licences that Slurm does not report count as free.
        """
        if not job.licenses or not self._records:
            return 0.0
        asked = license_counts(job.licenses).items()
        waits_s = [self._wait_s(name, _Wanted(job, count)) for name, count in asked if name in self._records]
        return (min if "|" in job.licenses else max)(waits_s, default=0.0)

    def _wait_s(self, name: str, wanted: _Wanted) -> float:
        if name not in self._starts_s:
            waiting = self._waiting(name)
            tasks = (each for each in waiting for _ in range(each.job.waiting_tasks))
            first_s = self._started(name, list(itertools.islice(tasks, _MOST_WAITING)))
            last_s = max(first_s.values(), default=0.0)
            self._starts_s[name] = {each.job.job_id: last_s for each in waiting} | first_s
        starts_s, job_id = self._starts_s[name], wanted.job.job_id
        return starts_s[job_id] if job_id in starts_s else self._alone(name, wanted)

    def _alone(self, name: str, wanted: _Wanted) -> float:
        """Seconds until a job gets its licences that waits for something else, and so comes in nobody's way."""
        job = wanted.job
        key = name, wanted.licenses, job.time_limit_s, job.reservation
        if key not in self._alone_s:
            self._alone_s[key] = self._started(name, [wanted])[job.job_id]
        return self._alone_s[key]

    def _started(self, name: str, waiting: Sequence[_Wanted]) -> dict[int, float]:
        """Seconds until each of these jobs, in the order of the queue, gets its licences."""
        record, held = self._records[name], self._held(name)
        free = record.total - record.deficit - max(record.used, sum(count for _, count in held))
        returned = [*held, *((each.end_s - self._now_s, 0) for each in self._reservations)]
        heapq.heapify(returned)
        starts_s: dict[int, float] = {}
        after_s = 0.0
        while waiting:
            left = []
            for each in waiting:
                if each.licenses + self._reserved(name, each.job, after_s) > free:
                    left.append(each)
                    continue
                starts_s.setdefault(each.job.job_id, after_s)
                free -= each.licenses
                run_s = self._lasts_s(each.job, self._run_times.expected_s(each.job))
                heapq.heappush(returned, (after_s + run_s, each.licenses))
            waiting = left
            if not returned:
                break
            after_s = returned[0][0]
            while returned and returned[0][0] <= after_s:
                free += heapq.heappop(returned)[1]
        return {each.job.job_id: math.inf for each in waiting} | starts_s

    def _held(self, name: str) -> list[tuple[float, int]]:
        """Seconds until each running job is expected to return this licence, and how many."""
        if name not in self._holders:
            counts = [(job, _count(job, name)) for job in self._jobs if job.running]
            self._holders[name] = [
                (self._lasts_s(job, self._run_times.remaining_s(job, self._now_s)), count)
                for job, count in counts
                if count
            ]
        return self._holders[name]

    def _lasts_s(self, job: JobRecord, expected_s: float) -> float:
        """Seconds that a job holds its licences: more than none, and infinite where nothing is known of its end."""
        if not job.time_limit_s and job.job_id not in self._run_times.by_id:
            return math.inf
        return max(_LEAST_S, expected_s)

    def _waiting(self, name: str) -> list[_Wanted]:
        found = [
            _Wanted(job, count) for job in self._jobs if (count := _count(job, name)) and self._may_take_one(job)
        ]
        return sorted(found, key=lambda each: self._order.rank(each.job))

    def _may_take_one(self, job: JobRecord) -> bool:
        """Whether a job waits for nothing but licences, its turn or rlalloc."""
        if not job.pending or not job.priority:
            return False
        if job.begin_s <= self._now_s:
            return job.reason in _MAY_TAKE_ONE or job.reason == "BeginTime"
        tag = read_tag(job.admin_comment)
        return tag is not None and job.begin_s == tag.begin

    def _reserved(self, name: str, job: JobRecord, after_s: float) -> int:
        """How many of the licences are reserved for others at some time while the job runs, if it starts then."""
        until_s = after_s + (job.time_limit_s or math.inf)
        return sum(
            each.licenses.get(name, 0)
            for each in self._reservations
            if each.name not in job.reservation.split(",")
            and each.start_s - self._now_s < until_s
            and each.end_s - self._now_s > after_s
        )


def _count(job: JobRecord, name: str) -> int:
    """How many of a licence a job takes; of alternatives, nobody knows."""
    return 0 if "|" in job.licenses else license_counts(job.licenses).get(name, 0)
