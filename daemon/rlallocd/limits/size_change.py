"""A change of one job, in the counts that Slurm's limits are about. Pure functions."""

from functools import cached_property
from typing import Final

from rlalloc.job import Allocation
from rlallocd.slurm import JobRecord

BILLING: Final = "billing"
_GPU: Final = "gres/gpu"
_SHARD: Final = "gres/shard"
_ALL: Final = ("cpu", "mem", "node", _GPU, _SHARD)


class Change:
    """From the request to a decided allocation, TRES by TRES (memory in MiB)."""

    def __init__(self, job: JobRecord, request: Allocation, allocation: Allocation) -> None:
        self.request = request
        self.allocation = allocation
        self._device = job.device
        self._fields = job.fields

    @cached_property
    def freed(self) -> frozenset[str]:
        """The TRES whose limits slurmctld never checks again once an operator has changed them.

        Only CPUs, memory and nodes, and only where a field of the job is set to something else (slurmctld's
        _update_job sets limit_set.tres): memory per CPU that becomes the same per node is something else, too.
        """
        asked, size = self._fields, self.allocation
        as_it_is = {
            "cpu": asked.min_cpus == size.cpus,
            "mem": asked.mem_mib_per_node == size.mem_mib_per_node,
            "node": asked.min_nodes == asked.max_nodes == size.nodes,
        }
        return frozenset(tres for tres, same in as_it_is.items() if not same or self.changes(tres))

    @property
    def lengthens(self) -> bool:
        """Whether the time limit grows, which frees the job of all limits on time in the same way."""
        return self.allocation.time_limit_s > self.request.time_limit_s

    @property
    def grows(self) -> bool:
        """Whether anything grows that a billing weight could be on."""
        return any(self.new(tres) > self.old(tres) for tres in _ALL)

    @property
    def shrinks(self) -> bool:
        """Whether anything shrinks that a billing weight could be on."""
        return any(self.new(tres) < self.old(tres) for tres in _ALL)

    def counts(self, tres: str) -> bool:
        """Whether a size says how much of this TRES the job has; of others it keeps what it asked for."""
        return tres in _ALL or tres.startswith((f"{_GPU}:", f"{_SHARD}:"))

    def changes(self, tres: str) -> bool:
        """Whether the job gets another count of it."""
        return self.new(tres) != self.old(tres)

    def touches(self, tres: str) -> bool:
        """Whether the limits per job have to be checked here, because slurmctld may no longer do it."""
        return self.changes(tres) or tres in self.freed

    def old(self, tres: str) -> int:
        """What the request has of a TRES; 0 of one that is not counted."""
        return self._count(self.request, tres)

    def new(self, tres: str) -> int:
        """What the allocation has of it, likewise."""
        return self._count(self.allocation, tres)

    def _count(self, size: Allocation, tres: str) -> int:
        name, _, gpu_type = tres.partition(":")
        if name in (_GPU, _SHARD):
            of_kind = (name == _SHARD) == (self._device.kind == "shard")
            # A job that names no type may get GPUs of any.
            return size.gpus if of_kind and (not gpu_type or self._device.type in ("", gpu_type)) else 0
        return {"cpu": size.cpus, "mem": size.mem_mib, "node": size.nodes}.get(tres, 0)


def needs_more_of_a_node(request: Allocation, allocation: Allocation) -> bool:
    """Whether an allocation takes more nodes than a request, or more of anything on each of them.

    For a limit on the nodes of several jobs, Slurm counts a node once, however many of them run on it
    (_get_unique_job_node_cnt, acct_policy.c). So a request may start on a node in use when there is no room for
    another node.
    """
    counts = (
        (each.nodes, each.gpus_per_node, each.cpus_per_node, each.mem_mib_per_node) for each in (request, allocation)
    )
    return any(more > less for less, more in zip(*counts, strict=True))
