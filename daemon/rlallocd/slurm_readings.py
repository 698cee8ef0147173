"""What a cycle reads from slurmctld, how much of it is read again, and what the readings cost."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, TypeVar

from rlallocd.process.interval import Interval
from rlallocd.slurm import Holder, JobRecord, NodeRecord, PartitionRecord, SiteLimits, Slurm, SlurmError
from rlallocd.submissions.job_tag import read_tag

_log = logging.getLogger(__name__)

_Read = TypeVar("_Read")
_PARTITIONS_EVERY_S: Final = 60.0
_NODES_EVERY_S: Final = 15.0
"""Every snapshot shows jobs that start and end, and then nodes are read again. Without such a change they are read
after this time, for nodes that go down; while one is down or has yet to report, in each cycle."""
_OF_RESERVED_NODES: Final = frozenset({"ReqNodeNotAvail", "Reservation"})
_RESERVATIONS_IN_THE_WAY_FOR_S: Final = 10.0
"""Where a job of ours waits for nodes that others may have reserved, reservations are read again after this time."""


class SlurmReadings:
    """Reads jobs in each cycle, and the rest when it may have changed.

    Since ``begin``, ``calls`` counts for the budget and ``reading_s`` is slurmctld's time. ``progress`` is called
    after each reading.
    """

    def __init__(self, slurm: Slurm, counters: Counter[str], progress: Callable[[], None]) -> None:
        self._slurm = slurm
        self._counters = counters
        self._progress = progress
        self._partitions: dict[str, PartitionRecord] = {}
        self._partitions_read = Interval()
        self._nodes: tuple[NodeRecord, ...] = ()
        self._nodes_read = Interval()
        self._holding: frozenset[tuple[int, int, str]] = frozenset()
        self._job_ids: frozenset[int] = frozenset()
        self.new_jobs: frozenset[int] = frozenset()
        """Ids of the jobs that the last reading of all jobs showed and the one before it did not."""
        self.calls = 0
        self.reading_s = 0.0

    def begin(self) -> None:
        """A cycle begins: nothing has been read in it."""
        self.calls, self.reading_s = 0, 0.0

    def forget_partitions(self) -> None:
        """Read the partitions again in the next cycle."""
        self._partitions_read.expire()

    def renew_partitions(self) -> bool:
        """Read the partitions again if that is due; whether they were. Raises SlurmError."""
        if not self._partitions_read.passed(_PARTITIONS_EVERY_S):
            return False
        self._partitions = self._read(self._slurm.partitions)
        self._partitions_read.restart()
        return True

    @property
    def partitions(self) -> Mapping[str, PartitionRecord]:
        """The partitions as last read, by name."""
        return self._partitions

    def jobs(self) -> tuple[JobRecord, ...]:
        """All jobs of now. Raises SlurmError."""
        jobs = self._read(self._slurm.jobs)
        job_ids = frozenset(job.job_id for job in jobs)
        self.new_jobs, self._job_ids = job_ids - self._job_ids, job_ids
        return jobs

    def nodes_beside(self, jobs: Sequence[JobRecord]) -> tuple[NodeRecord, ...]:
        """The nodes as last read, or read again where a job has started or ended since. Raises SlurmError."""
        holding = frozenset((job.job_id, job.started_s, job.state) for job in jobs if job.running)
        passing = any(node.awaited or not node.usable for node in self._nodes)
        old = passing or self._nodes_read.passed(_NODES_EVERY_S)
        if old or holding != self._holding:
            self._nodes = self._read(self._slurm.nodes)
            self._nodes_read.restart()
            self._holding = holding
        return self._nodes

    def limits(self, jobs: Sequence[JobRecord], decided: Collection[tuple[int, int]]) -> SiteLimits | None:
        """The limits of the users whose jobs we decide; None, and no job is changed, if they cannot be read."""
        ours = [
            job
            for job in jobs
            if (job.pending or (job.running and (job.job_id, job.submitted_s) not in decided))
            and read_tag(job.admin_comment)
        ]
        if not ours:
            return None
        if any(job.pending and job.reason in _OF_RESERVED_NODES for job in ours):
            self._slurm.forget_reservations(older_than_s=_RESERVATIONS_IN_THE_WAY_FOR_S)
        try:
            licenses = any(job.pending and job.licenses for job in ours)
            holders = {Holder(job.user, job.account, job.qos, job.partition) for job in ours}
            limits = self._read(lambda: self._slurm.limits(holders, licenses=licenses))
        except SlurmError as err:
            self._counters["limits_unread"] += 1
            _log.warning("cannot read limits, jobs run as submitted: %s", err)
            return None
        self._counters["licenses_unread"] += limits.licenses is None
        return limits

    def counted(self, read: Callable[[], _Read]) -> _Read:
        """Count the calls of a reading: those of Slurm's commands, or one for pyslurm."""
        before = sum(self._slurm.calls.values())
        try:
            return read()
        finally:
            self.calls += max(1, sum(self._slurm.calls.values()) - before)
            self._progress()

    def _read(self, read: Callable[[], _Read]) -> _Read:
        """Read from slurmctld: the calls count in the budget, the time in the share for readings."""
        asked_s = time.monotonic()
        try:
            return self.counted(read)
        finally:
            self.reading_s += time.monotonic() - asked_s
