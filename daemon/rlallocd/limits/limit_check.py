"""Whether a user could have had a decided allocation: all limits of a site, for one job. Pure functions."""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

import msgspec

from rlalloc.job import Allocation
from rlallocd.cluster.node_demands import open_to
from rlallocd.cluster.node_pools import NodePools
from rlallocd.cluster.open_nodes import OpenNodes
from rlallocd.limits.account_limits import NO_CLAIMS, Claims, account_obstacles
from rlallocd.limits.binding_limits import binding_of
from rlallocd.limits.partition_limits import entered_by, partition_obstacles
from rlallocd.limits.size_change import Change
from rlallocd.slurm import JobRecord, NodeRecord, PartitionRecord, SiteLimits
from rlallocd.submissions.request_sizes import Skipped

_NOT_NOW: Final = ("JobHeldUser", "JobHeldAdmin", "Dependency", "DependencyNeverSatisfied")


class SiteView(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What is known of a site's limits at ``now_s``; ``limits`` is None where they could not be read.

    ``memory_limits`` are slurm.conf's MaxMemPerNode and MaxMemPerCPU in MiB. ``granted`` are the sizes that jobs were
    given since ``jobs`` were read.
    """

    now_s: float
    nodes: Sequence[NodeRecord]
    partitions: Mapping[str, PartitionRecord]
    limits: SiteLimits | None
    memory_limits: tuple[int | None, int | None] = (None, None)
    jobs: Sequence[JobRecord] = ()
    granted: Mapping[int, Allocation] = {}
    pools: NodePools | None = None

    @cached_property
    def node_pools(self) -> NodePools:
        """Its nodes, by what jobs ask of them."""
        return self.pools or NodePools(self.nodes)

    @cached_property
    def open_nodes(self) -> OpenNodes:
        """Its nodes and reservations, for what fits now."""
        return OpenNodes(self.node_pools, self.limits.reservations if self.limits is not None else (), self.now_s)


def obstacle(job: JobRecord, request: Allocation, allocation: Allocation, site: SiteView, wait_s: float) -> str:
    """Why the job may not be made ``allocation``, or an empty string.

    A job that asks for several partitions must be within the limits of all of them. ``wait_s`` is how long it is
    expected to wait.
    """
    if allocation == request:
        return ""
    try:
        return next(_obstacles(job, Change(job, request, allocation), site, wait_s), "")
    except Skipped as err:
        return str(err)


def _obstacles(job: JobRecord, change: Change, site: SiteView, wait_s: float) -> Iterator[str]:
    if site.limits is None:
        yield "the site's limits could not be read"
        return
    yield from site.node_pools.unfit(job, change.allocation)
    if job.required_nodes and change.allocation.nodes < change.request.nodes:
        # The update would clear the list, because Slurm refuses a list of more nodes than the job has.
        yield f"it names nodes ({job.required_nodes}), and with fewer nodes it could run on any nodes"
    if (why := site.open_nodes.why_not(job, change.allocation)) and not site.open_nodes.why_not(job, change.request):
        yield why
    for name in job.partition.split(","):
        partition = site.partitions.get(name)
        if partition is None:
            yield f"slurmctld reports no partition {name}"
            return
        yield from partition_obstacles(change, job, partition, site.memory_limits)
        for reservation in entered_by(change, site.limits.reservations, site.now_s, wait_s):
            inside = [each for each in site.nodes if each.name in reservation.nodes and name in each.partitions]
            if open_to(job, inside):
                yield f"its longer time limit would run into reservation {reservation.name}"
        if site.limits.enforced:
            binding = binding_of(job, name, partition.qos, site.limits)
            capacity = _capacity(site.nodes) if binding.shared else {}
            shared = binding.shared or binding.shared_minutes or binding.shared_running_minutes
            grows = change.grows or change.lengthens
            claims = _claims(job, site, site.limits) if shared and grows else NO_CLAIMS
            yield from account_obstacles(change, binding, capacity, claims)


def _claims(job: JobRecord, site: SiteView, limits: SiteLimits) -> Claims:
    """What other jobs of the user or account wait for, or got since the use was read."""
    return Claims(
        [
            site.granted.get(each.job_id) or each
            for each in site.jobs
            if (each.user == job.user or each.account == job.account)
            and each.job_id != job.job_id
            and each.is_shard == job.is_shard
            and (
                (each.pending and each.reason not in _NOT_NOW)
                or (each.running and each.started_s >= math.floor(limits.read_s))
            )
        ]
    )


def _capacity(nodes: Sequence[NodeRecord]) -> dict[str, int]:
    """CPUs, memory (MiB) and nodes of the whole cluster."""
    return {
        "cpu": sum(node.cpus for node in nodes),
        "mem": sum(node.mem_mib for node in nodes),
        "node": len(nodes),
    }
