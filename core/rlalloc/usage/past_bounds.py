"""Bounds of a job, with what like jobs used as the floors of memory and CPUs. Pure functions."""

import math
from typing import Final, NamedTuple

import msgspec

from rlalloc.bounds import Directives
from rlalloc.job import Allocation, Bounds, Range
from rlalloc.scripts.consent import Consent
from rlalloc.usage.family_kills import Kill
from rlalloc.usage.like_jobs import KINDS
from rlalloc.usage.past_usage import NOTHING_KNOWN, Floor, PastFloors
from rlalloc.usage.profiled_needs import ProfiledFloors

PAST_JOBS: Final = "past jobs"
"""Who says so, where what like jobs used is the floor."""
PROFILE: Final = "profile"
"""Likewise where a profile raised it."""


class KnownNeeds(NamedTuple):
    """What the past says of a job.

    ``kill`` is the one for which its family keeps its requests. ``gpus_too_few`` is with how many GPUs its family ran
    out of a GPU's memory; 0: with none. ``profiled`` is of the profile that names the job.
    """

    floors: PastFloors = NOTHING_KNOWN
    kill: Kill | None = None
    gpus_too_few: int = 0
    profiled: ProfiledFloors | None = None


NO_NEEDS: Final = KnownNeeds()


def with_past_needs(
    bounds: Bounds, request: Allocation, directives: Directives, consent: Consent, needs: KnownNeeds
) -> Bounds:
    """Let what like jobs used be the floor of memory and CPUs, where neither user nor script fixes them.

    Without a floor of the site's own, the request was the floor: it is lowered. A floor of the site's own, and the
    least memory that a user declared, are raised, never lowered, and never above the request. A profile that names
    the job raises both further. A family that goes back keeps its request as the least of everything.
    """
    if needs.kill is not None:
        return _back_to_request(bounds, request, needs.kill)
    bounds = _without_counts_up_to(bounds, request, needs.gpus_too_few)
    told = []
    if (floor := needs.floors.node_mib) is not None and not consent.memory_fixed:
        per_gpu = floor.amount / max(1, request.gpus_per_node)
        memory = _with_floor(bounds.mem_mib_per_gpu, min(per_gpu, request.mem_mib_per_gpu))
        told.append(f"{_told(floor)} {floor.amount / 1024:.1f} GiB a node")
        least = 0.0 if directives.mem_mib_per_gpu is not None else min(floor.amount, request.mem_mib_per_node)
        bounds = msgspec.structs.replace(bounds, mem_mib_per_gpu=memory, mem_mib_per_node=least)
    if (floor := needs.floors.cpus_per_gpu) is not None and not consent.cpus_fixed and not directives.cpus_per_gpu:
        cpus = _with_floor(bounds.cpus_per_gpu, max(1.0, float(math.ceil(floor.amount - 1e-6))))
        told.append(f"{_told(floor)} {floor.amount:.1f} CPUs/GPU")
        bounds = msgspec.structs.replace(bounds, cpus_per_gpu=cpus)
    if needs.profiled is not None:
        bounds = _raised_by_profile(bounds, request, directives, needs.profiled)
    return msgspec.structs.replace(bounds, past="; ".join(told)) if told else bounds


def _raised_by_profile(bounds: Bounds, request: Allocation, directives: Directives, floors: ProfiledFloors) -> Bounds:
    """The bounds with what the profile measured as the least, where that is more than they have."""
    memory, cpus, least_mib = bounds.mem_mib_per_gpu, bounds.cpus_per_gpu, bounds.mem_mib_per_node
    if floors.node_mib is not None:
        per_gpu = min(floors.node_mib / max(1, request.gpus_per_node), request.mem_mib_per_gpu)
        memory = _raised(memory, per_gpu)
        if directives.mem_mib_per_gpu is None:
            least_mib = max(least_mib, min(floors.node_mib, request.mem_mib_per_node))
    if floors.cpus_per_gpu is not None and not directives.cpus_per_gpu:
        cpus = _raised(cpus, min(floors.cpus_per_gpu, request.cpus_per_gpu))
    return msgspec.structs.replace(bounds, mem_mib_per_gpu=memory, cpus_per_gpu=cpus, mem_mib_per_node=least_mib)


def _raised(bound: Range, least: float) -> Range:
    least = min(least, bound.maximum)
    return msgspec.structs.replace(bound, minimum=least, minimum_from=PROFILE) if least > bound.minimum else bound


def _with_floor(bound: Range, floor: float) -> Range:
    """The range with ``floor`` as its least: lowered only where the request was the least."""
    least = min(floor, bound.maximum)
    if least > bound.minimum or (least < bound.minimum and bound.minimum_from == "request"):
        return msgspec.structs.replace(bound, minimum=least, minimum_from=PAST_JOBS)
    return bound


def _told(floor: Floor) -> str:
    return f"{floor.jobs} {KINDS[floor.kind]} and a margin of {floor.margin:.0%}:"


def _without_counts_up_to(bounds: Bounds, request: Allocation, gpus: int) -> Bounds:
    """The bounds without GPU counts that were too few, but for the one that was submitted."""
    counts = tuple(count for count in bounds.gpu_counts if count > gpus or count == request.gpus)
    if gpus == 0 or not counts or counts == bounds.gpu_counts:
        return bounds
    least = msgspec.structs.replace(bounds.gpus, minimum=counts[0], minimum_from=PAST_JOBS)
    return msgspec.structs.replace(bounds, gpu_counts=counts, gpus=least)


def _back_to_request(bounds: Bounds, request: Allocation, kill: Kill) -> Bounds:
    counts = tuple(count for count in bounds.gpu_counts if count >= request.gpus) or bounds.gpu_counts[-1:]
    least = msgspec.structs.replace
    return msgspec.structs.replace(
        bounds,
        gpus=least(bounds.gpus, minimum=counts[0], minimum_from=PAST_JOBS),
        gpu_counts=counts,
        cpus_per_gpu=_with_floor(bounds.cpus_per_gpu, request.cpus_per_gpu),
        mem_mib_per_gpu=_with_floor(bounds.mem_mib_per_gpu, request.mem_mib_per_gpu),
        mem_mib_per_node=float(request.mem_mib_per_node),
        past=f"job {kill.job_id} ended by {kill.cause} in a size that rlalloc chose; requests stay for now",
    )
