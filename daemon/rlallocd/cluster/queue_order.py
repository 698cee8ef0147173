"""The order in which Slurm tries waiting jobs."""

from collections.abc import Mapping

from rlallocd.slurm import JobRecord, PartitionRecord

Rank = tuple[int, int, int]


class QueueOrder:
    """First by the PriorityTier of the partition, then by priority, then by job id."""

    def __init__(self, partitions: Mapping[str, PartitionRecord]) -> None:
        self._partitions = partitions
        self._tiers: dict[str, int] = {}

    def rank(self, job: JobRecord, partition: str | None = None) -> Rank:
        """Where a job stands: the lowest is tried first. In one of its partitions, or else in its best one."""
        names = job.partition if partition is None else partition
        if names not in self._tiers:
            tiers = (self._partitions[name].tier for name in names.split(",") if name in self._partitions)
            self._tiers[names] = max(tiers, default=0)
        return -self._tiers[names], -job.priority, job.job_id
