"""From shares to an allocation inside the bounds, and back; urgency is no part of it. Pure functions.

A share of 0 is the lower bound and 1 the upper one; between them the scale is logarithmic, since twice as many
is the same step wherever it starts.
"""

import functools
import math
from bisect import bisect_left
from collections.abc import Callable
from typing import Final

import msgspec

from rlalloc.bounds import NodeShape
from rlalloc.job import Allocation, Bounds, Range, Shares

_LEAST_OF_LOGARITHM: Final = 1e-9
"""On a log scale, smaller values count as this."""

_MIB_PER_GIB = 1024
SlowdownOf = Callable[[Allocation], float]

TIME_LIMIT_MARGIN = 1.15
"""A shrunk job's time limit grows by the slowdown to allow and this much again."""


def allocation_for(
    shares: Shares, request: Allocation, bounds: Bounds, shape: NodeShape, slowdown_of: SlowdownOf
) -> Allocation:
    """Turn ``shares`` into nodes, GPUs, tasks, CPUs and memory that a node of ``shape`` can hold.

    ``slowdown_of(allocation)`` is the run time to allow over that as submitted, an upper quantile of what is expected
    (``rlalloc.speed.longer_limits``); where it is above 1 the time limit grows with it, so that no job is killed for
    our decision. The limit never shrinks.
    """
    sized = size_for(shares, request, bounds, shape)
    slowdown = slowdown_of(sized)
    return msgspec.structs.replace(sized, time_limit_s=longer_limit_s(request.time_limit_s, slowdown))


def longer_limit_s(requested_s: int, slowdown: float) -> int:
    """Return the time limit [s] of a job that runs ``slowdown`` times as long: whole minutes, with a margin."""
    return requested_s if slowdown <= 1.0 else math.ceil(requested_s * slowdown * TIME_LIMIT_MARGIN / 60) * 60


def size_for(shares: Shares, request: Allocation, bounds: Bounds, shape: NodeShape) -> Allocation:
    """Likewise, with the time limit of the request."""
    sized = _size_for(shares.gpu, shares.cpu, shares.mem, without_limit(request), bounds, shape)
    return msgspec.structs.replace(sized, time_limit_s=request.time_limit_s)


@functools.lru_cache(maxsize=8192)
def without_limit(size: Allocation) -> Allocation:
    """The size without its time limit: many jobs then share one computation."""
    return msgspec.structs.replace(size, time_limit_s=0)


@functools.lru_cache(maxsize=8192)
def _size_for(
    gpu: float, cpu: float, mem: float, request: Allocation, bounds: Bounds, shape: NodeShape
) -> Allocation:
    """Kept, for heuristics, encoding and decision ask for the same."""
    gpus = gpus_for(gpu, bounds)
    nodes, gpus_per_node = _layout(gpus, request, shape)
    tasks_per_node = _tasks_per_node(gpus_per_node, request, bounds)
    cpus_per_node = min(shape.cpus, _of_node(cpu, bounds.cpus_per_gpu, 1, request.cpus_per_gpu, gpus_per_node))
    of_gpus_mib = _of_node(mem, bounds.mem_mib_per_gpu, _MIB_PER_GIB, request.mem_mib_per_gpu, gpus_per_node)
    mem_mib = min(shape.mem_mib, max(of_gpus_mib, _ceil(bounds.mem_mib_per_node)))
    return Allocation(
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        tasks_per_node=tasks_per_node,
        cpus_per_task=_cpus_per_task(cpus_per_node, tasks_per_node, bounds, gpus_per_node, shape),
        mem_mib_per_node=max(1, mem_mib),
        time_limit_s=request.time_limit_s,
    )


def gpus_for(share: float, bounds: Bounds) -> int:
    """Return the workable number of GPUs that is nearest to a GPU share."""
    gpus = _interpolate(share, bounds.gpus)
    place = bisect_left(bounds.gpu_counts, gpus)
    return min(bounds.gpu_counts[max(0, place - 1) : place + 1], key=lambda count: abs(math.log(count / gpus)))


def shares_of(allocation: Allocation, bounds: Bounds) -> Shares:
    """Return the shares that lead to ``allocation``, 1 where a range is a single point, and the fullest urgency."""
    return _shares_of(without_limit(allocation), bounds)


@functools.lru_cache(maxsize=8192)
def _shares_of(allocation: Allocation, bounds: Bounds) -> Shares:
    return Shares(
        gpu=share_in(allocation.gpus, bounds.gpus),
        cpu=share_in(allocation.cpus_per_gpu, bounds.cpus_per_gpu),
        mem=share_in(allocation.mem_mib_per_gpu, bounds.mem_mib_per_gpu),
    )


def _cpus_per_task(
    cpus_per_node: int, tasks_per_node: int, bounds: Bounds, gpus_per_node: int, shape: NodeShape
) -> int:
    """An equal part for each task: rounded down, or up where that would be below the lower bound."""
    part = cpus_per_node // tasks_per_node
    if part * tasks_per_node < _ceil(bounds.cpus_per_gpu.minimum * gpus_per_node):
        part = min(part + 1, shape.cpus // tasks_per_node)
    return max(1, part)


def _of_node(share: float, bound: Range, unit: int, asked: float, gpus: int) -> int:
    """CPUs or MiB for ``gpus`` GPUs, in steps a GPU: rounded down, but never below the lower bound."""
    return max(_floor(_whole(share, bound, unit, asked) * gpus), _ceil(bound.minimum * gpus))


def _whole(share: float, bound: Range, unit: int, asked: float) -> float:
    """A value in ``bound``, up to the next step where there is one below the upper end.

    Steps are whole units, and what was ``asked`` for: who asks for 4000 MiB is not to get 4096, which fewer nodes
    have left. A thousandth of a unit is forgiven: shares come as float32, and 4.000002 CPUs means 4.
    """
    value = _interpolate(share, bound)
    step: float = math.ceil(value / unit - 1e-3) * unit
    if abs(value - asked) <= 1e-3 * unit:
        step = asked
    elif value < asked:
        step = min(step, asked)
    return min(bound.maximum, max(bound.minimum, step))


def _interpolate(share: float, bound: Range) -> float:
    low = max(bound.minimum, _LEAST_OF_LOGARITHM)
    if bound.maximum <= low:
        return float(bound.maximum)
    clipped = min(1.0, max(0.0, share))
    return float(low * (bound.maximum / low) ** clipped)


def share_in(value: float, bound: Range) -> float:
    """Return where ``value`` lies in ``bound`` on a log scale, clipped to [0, 1]; 1 where it is one point."""
    low = max(bound.minimum, _LEAST_OF_LOGARITHM)
    if bound.maximum <= low:
        return 1.0
    share = math.log(max(value, _LEAST_OF_LOGARITHM) / low) / math.log(bound.maximum / low)
    return min(1.0, max(0.0, share))


def _ceil(value: float) -> int:
    """Round up, forgiving likewise."""
    return math.ceil(value - 1e-6)


def _floor(value: float) -> int:
    """Round down, forgiving the error of a log and an exp: 15.999999999 means 16."""
    return math.floor(value + 1e-6)


def _layout(gpus: int, request: Allocation, shape: NodeShape) -> tuple[int, int]:
    """Nodes and GPUs a node: the request's own layout for its own count, else as few nodes as can be."""
    if gpus == request.gpus:
        return request.nodes, request.gpus_per_node
    if gpus <= shape.gpus:
        return 1, gpus
    return gpus // shape.gpus, shape.gpus


def _tasks_per_node(gpus_per_node: int, request: Allocation, bounds: Bounds) -> int:
    if gpus_per_node == request.gpus_per_node:
        return request.tasks_per_node
    return gpus_per_node if bounds.task_per_gpu else request.tasks_per_node
