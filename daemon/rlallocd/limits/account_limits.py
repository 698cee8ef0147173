"""One change of one job against the limits of its associations and QOS. Pure functions.

A limit of one job is compared wherever the job's count changes, down as well as up: changed CPUs, memory or nodes
free the job of it, so a job that waits above such a limit must not slip below our update and start. A limit that jobs
share is compared with their use of it; but one that the update would free the job of cannot be kept by comparing now,
since the job may start much later: what it is on is not changed.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

import msgspec

from rlalloc.job import Allocation
from rlallocd.limits.binding_limits import Binding, Ceiling
from rlallocd.limits.size_change import BILLING, Change, needs_more_of_a_node
from rlallocd.slurm import JobRecord

_TIMES_MINUTES: Final = ("MaxTRESMins", "GrpTRESMins", "GrpTRESRunMins", "MaxTRESRunMins")


class Claims(NamedTuple):
    """The sizes that other jobs of the same user or account wait for. GPUs and shards are all ``gres``."""

    sizes: Sequence[Allocation | JobRecord] = ()

    def count(self, tres: str) -> int:
        """All of one TRES, whatever the type of GPU."""
        counted = _COUNTS.get(tres.partition("/")[0])
        return 0 if counted is None else math.ceil(sum(map(counted, self.sizes)))

    def minutes_of(self, tres: str) -> int:
        """The minutes of all time limits times one TRES, whatever the type of GPU."""
        count = _COUNTS.get(tres.partition("/")[0])
        return 0 if count is None else math.ceil(sum(count(size) * (size.time_limit_s // 60) for size in self.sizes))


_COUNTS: Final[Mapping[str, Callable[[Allocation | JobRecord], float]]] = {
    "gres": attrgetter("gpus"),
    "cpu": attrgetter("cpus"),
    "mem": attrgetter("mem_mib"),
    "node": attrgetter("nodes"),
}
NO_CLAIMS: Final = Claims()


def account_obstacles(
    change: Change, binding: Binding, capacity: Mapping[str, int], claims: Claims = NO_CLAIMS
) -> Iterator[str]:
    """Every limit that a change would break, in words.

    ``capacity`` is what the whole cluster has of CPUs, memory and nodes: a shared limit above it cannot be met.
    A job must not grow into what ``claims`` need.
    """
    yield from _of_one_job(change, binding)
    yield from _least(change, binding)
    yield from _minutes_of_one_job(change, binding)
    yield from _shared(change, binding, capacity, claims)
    yield from _shared_minutes(change, binding, claims)


def _of_one_job(change: Change, binding: Binding) -> Iterator[str]:
    yield from _not_computed(change, (*binding.per_job, *binding.per_node))
    for ceiling in binding.per_job:
        if change.touches(ceiling.tres):
            yield from _above(ceiling, change.new(ceiling.tres))
    for ceiling in binding.per_node:
        if change.touches(ceiling.tres) or change.changes("node"):
            yield from _above(ceiling, change.new(ceiling.tres) // change.allocation.nodes)


def _least(change: Change, binding: Binding) -> Iterator[str]:
    for ceiling in binding.least:
        if ceiling.tres == BILLING and change.shrinks:
            yield f"{ceiling.name} is on billing, which rlalloc does not compute"
        elif change.new(ceiling.tres) < min(ceiling.limit, change.old(ceiling.tres)):
            yield f"{change.new(ceiling.tres)} {ceiling.tres} is below {ceiling.name}, {ceiling.limit}"


def _minutes_of_one_job(change: Change, binding: Binding) -> Iterator[str]:
    yield from _not_computed(change, binding.per_job_minutes)
    minutes = _minutes(change.allocation.time_limit_s, binding)
    if change.lengthens:
        for ceiling in binding.wall:
            yield from _above(ceiling, minutes)
    for ceiling in binding.per_job_minutes:
        if change.lengthens or change.touches(ceiling.tres):
            yield from _above(ceiling, change.new(ceiling.tres) * minutes)


def _shared(change: Change, binding: Binding, capacity: Mapping[str, int], claims: Claims) -> Iterator[str]:
    yield from _not_computed(change, binding.shared)
    for ceiling in binding.shared:
        if ceiling.tres in change.freed:
            if ceiling.limit < capacity[ceiling.tres]:
                yield _frees(ceiling)
        elif change.new(ceiling.tres) > change.old(ceiling.tres) or _takes_another_node(change, ceiling, capacity):
            claimed = msgspec.structs.replace(ceiling, used=ceiling.used + claims.count(ceiling.tres))
            yield from _above(claimed, change.new(ceiling.tres))


def _takes_another_node(change: Change, ceiling: Ceiling, capacity: Mapping[str, int]) -> bool:
    """Whether a job may need other nodes than its request, and the limit may have no room for them."""
    if ceiling.tres != "node" or ceiling.limit >= capacity["node"]:
        return False
    return needs_more_of_a_node(change.request, change.allocation) and change.old("node") <= ceiling.limit


def _shared_minutes(change: Change, binding: Binding, claims: Claims) -> Iterator[str]:
    yield from _not_computed(change, (*binding.shared_minutes, *binding.shared_running_minutes))
    minutes = _minutes(change.allocation.time_limit_s, binding)
    before = _minutes(change.request.time_limit_s, binding)
    if change.lengthens:
        yield from (_frees(ceiling) for ceiling in binding.shared_wall)
    yield from (_frees(ceiling) for ceiling in binding.shared_minutes if ceiling.tres in change.freed)
    for ceiling in (*binding.shared_minutes, *binding.shared_running_minutes):
        if change.new(ceiling.tres) * minutes > change.old(ceiling.tres) * before:
            claimed = math.ceil(claims.minutes_of(ceiling.tres) * binding.usage_factor)
            claimed_too = msgspec.structs.replace(ceiling, used=ceiling.used + claimed)
            yield from _above(claimed_too, change.new(ceiling.tres) * minutes)


def _not_computed(change: Change, ceilings: Iterable[Ceiling]) -> Iterator[str]:
    """Limits on what a size does not tell: billing moves with the size, and all do with the time limit.

    Of anything else (licenses, other GRES …) the job keeps what it asked for.
    """
    for ceiling in ceilings:
        longer = change.lengthens and ceiling.name.startswith(_TIMES_MINUTES)
        if not change.counts(ceiling.tres) and (longer or (ceiling.tres == BILLING and change.grows)):
            yield f"{ceiling.name} is on {ceiling.tres}, which rlalloc does not compute"


def _above(ceiling: Ceiling, count: int) -> Iterator[str]:
    if ceiling.used + count > ceiling.limit:
        in_use = f" with {ceiling.used} in use or claimed" if ceiling.used else ""
        yield f"{count} {ceiling.tres}{in_use} is above {ceiling.name}, {ceiling.limit}"


def _frees(ceiling: Ceiling) -> str:
    return f"an operator's update of its {ceiling.tres} would exempt it from {ceiling.name}"


def _minutes(time_limit_s: int, binding: Binding) -> int:
    return math.ceil(time_limit_s // 60 * binding.usage_factor)
