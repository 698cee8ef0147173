"""One change of one job against the limits of its partitions and coming reservations. Pure functions."""

import math
from collections.abc import Iterable, Iterator

from rlalloc.job import Allocation
from rlallocd.limits.size_change import Change
from rlallocd.slurm import JobRecord, PartitionRecord, ReservationRecord
from rlallocd.submissions.request_sizes import same_memory


def partition_obstacles(
    change: Change, job: JobRecord, partition: PartitionRecord, memory_limits: tuple[int | None, int | None]
) -> Iterator[str]:
    """Every limit of a partition that a change would break, in words.

    ``memory_limits`` are slurm.conf's MaxMemPerNode and MaxMemPerCPU (MiB), where the partition has none.
    """
    old, new = change.request, change.allocation
    name = f"partition {partition.name}"
    of_partition = partition.max_mem_mib_per_node, partition.max_mem_mib_per_cpu
    memory_limits = memory_limits if of_partition == (None, None) else of_partition
    yield from _raised_cpus(job, old, memory_limits[1], name)
    if not _admits(partition, job):
        yield f"{name} does not admit its account or QOS"
    if new.nodes > old.nodes:
        yield from _above("nodes", new.nodes, partition.max_nodes, f"MaxNodes of {name}")
        yield from _above("nodes", new.nodes, partition.total_nodes, f"all nodes of {name}")
    if new.nodes < old.nodes and new.nodes < partition.min_nodes:
        yield f"{new.nodes} nodes is below MinNodes of {name}, {partition.min_nodes}"
    if new.cpus > old.cpus:
        yield from _above("CPUs", new.cpus, partition.total_cpus, f"all CPUs of {name}")
        if partition.max_cpus_per_socket is not None:
            yield f"it would have more CPUs, and {name} has MaxCPUsPerSocket, which rlalloc does not compute"
    if new.cpus_per_node != old.cpus_per_node:
        yield from _above("CPUs a node", new.cpus_per_node, partition.max_cpus_per_node, f"MaxCPUsPerNode of {name}")
    if change.lengthens and partition.max_time_s is not None and new.time_limit_s > partition.max_time_s:
        yield f"a time limit of {new.time_limit_s} s is above MaxTime of {name}, {partition.max_time_s} s"
    if (new.mem_mib_per_node, new.cpus_per_node) != (old.mem_mib_per_node, old.cpus_per_node):
        yield from _memory(change, partition, memory_limits)


def entered_by(
    change: Change, reservations: Iterable[ReservationRecord], now_s: float, wait_s: float
) -> Iterator[ReservationRecord]:
    """The reservations that only the longer time limit of a change would run into, whatever their nodes.

    slurmctld starts no job that may still run when a reservation of its nodes begins. ``wait_s`` is how long the job
    is expected to wait before it starts. One that the request runs into as well is no obstacle: the job waits either
    way.
    """
    if not change.lengthens:
        return
    for reservation in reservations:
        fits_as_submitted = now_s + change.request.time_limit_s <= reservation.start_s
        fits = now_s + wait_s + change.allocation.time_limit_s <= reservation.start_s
        if fits_as_submitted and not fits:
            yield reservation


def _memory(
    change: Change, partition: PartitionRecord, memory_limits: tuple[int | None, int | None]
) -> Iterator[str]:
    """MaxMemPerNode or MaxMemPerCPU. slurmctld would raise the CPUs to keep the latter: not allowed."""
    per_node, per_cpu = memory_limits
    new = change.allocation
    yield from _above("MiB a node", new.mem_mib_per_node, per_node, f"MaxMemPerNode of partition {partition.name}")
    mem_per_cpu = math.ceil(new.mem_mib_per_node / new.cpus_per_node)
    yield from _above("MiB a CPU", mem_per_cpu, per_cpu, f"MaxMemPerCPU of partition {partition.name}")


def _raised_cpus(job: JobRecord, request: Allocation, most: int | None, name: str) -> Iterator[str]:
    """MaxMemPerCPU, where a job names fewer CPUs than it allows for its memory, or DefMemPerCPU is above it.

    slurmctld gives such a job more CPUs: on 22.05 in some fields, and not in its totals, which tell. Those with
    --cpus-per-gpu have their CPUs in no total yet. With --mem-per-gpu, 24.11 keeps it as it is, and would raise its
    CPUs only in the update that gives the request back. With --mem, 24.11 raises them in all fields. But every update
    that lowers the memory gives the job the CPUs that its user named, whatever CPUs the update names. On 22.05, a
    DefMemPerCPU above MaxMemPerCPU also raises the CPUs of jobs with --mem-per-gpu.
    """
    if most is None:
        return
    asked, cpus = job.fields, max(job.fields.cpus_per_gpu * job.gpus, job.cpus)
    mem_mib = asked.mem_mib_per_node * asked.min_nodes or job.mem_mib
    is_above = mem_mib > most * cpus and (asked.mem_mib_per_node or not same_memory(mem_mib, most * cpus))
    limit = f"MaxMemPerCPU of {name}, {most} MiB"
    if is_above or request.mem_mib_per_node > most * request.cpus_per_node:
        why = f"it asks for more memory per CPU than {limit}, so Slurm gives it more CPUs"
    elif asked.mem_mib_per_gpu and asked.min_cpus > cpus:
        why = f"Slurm gives it more CPUs than it names ({limit})"
    else:
        return
    yield f"{why}; no update could restore exactly these CPUs"


def _admits(partition: PartitionRecord, job: JobRecord) -> bool:
    """AllowAccounts, DenyAccounts, AllowQos, DenyQos; groups and hosts do not depend on a job's size."""
    accounts, qos = partition.allow_accounts, partition.allow_qos
    return (
        (accounts is None or job.account in accounts)
        and job.account not in partition.deny_accounts
        and (qos is None or job.qos in qos)
        and job.qos not in partition.deny_qos
    )


def _above(what: str, count: int, limit: int | None, name: str) -> Iterator[str]:
    if limit is not None and count > limit:
        yield f"{count} {what} is above {name}, {limit}"
