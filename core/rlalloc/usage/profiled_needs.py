"""What a profile says of the host memory and CPUs of the jobs that it names. Pure functions.

A profile measures another program than the job's own, with other data. So it raises the floors of such a job and
never lowers them: what a job may be trimmed to, past jobs say.
"""

import itertools
import math
from typing import Final, NamedTuple

from rlalloc.job import Allocation
from rlalloc.speed.profile_file import Measured, Profile, Size

_AS_LITTLE: Final = 0.02
"""A data loader with fewer CPUs is fed as well if this much more of the time, at most, is spent waiting for it."""


class ProfiledFloors(NamedTuple):
    """The least memory of a node [MiB] and CPUs per GPU by the profile of that name; None where it does not say."""

    profile: str
    node_mib: float | None
    cpus_per_gpu: int | None


def floors_of_profile(profile: Profile, request: Allocation, margin: float) -> ProfiledFloors:
    """What a job that it names needs in the requested size; ``margin`` goes on top of memory (0.1: a tenth)."""
    points = [(point.size, point.measured) for point in profile.points if point.measured is not None]
    node_mib = _node_mib(points, max(1, request.gpus_per_node))
    return ProfiledFloors(profile.name, None if node_mib is None else node_mib * (1.0 + margin), _cpus(points))


def _node_mib(points: list[tuple[Size, Measured]], gpus: int) -> float | None:
    """The peak of a node with so many GPUs: linear between those measured, in proportion beyond the most.

    Below the fewest it stays. Of one count, the point with the highest peak tells.
    """
    peaks: dict[int, float] = {}
    for size, measured in points:
        here = math.ceil(size.gpus / size.nodes)
        peaks[here] = max(peaks.get(here, 0.0), float(measured.host_mem_mib))
    if not peaks:
        return None
    counts = sorted(peaks)
    if gpus <= counts[0]:
        return peaks[counts[0]]
    for low, high in itertools.pairwise(counts):
        if gpus <= high:
            return peaks[low] + (peaks[high] - peaks[low]) * (gpus - low) / (high - low)
    return peaks[counts[-1]] * gpus / counts[-1]


def _cpus(points: list[tuple[Size, Measured]]) -> int | None:
    """The fewest CPUs per GPU from which on more of them do not shorten the stalls; of all layouts, the most.

    None where no layout was measured with more than one number of CPUs.
    """
    stalls: dict[tuple[int, int, int], dict[int, float]] = {}
    for size, measured in points:
        stalls.setdefault((size.gpus, size.nodes, size.mem_mib_per_gpu), {})[size.cpus_per_gpu] = measured.stalled
    enough = [_enough(of_layout) for of_layout in stalls.values() if len(of_layout) > 1]
    return max(enough, default=None)


def _enough(stalled: dict[int, float]) -> int:
    allowed = min(stalled.values()) + _AS_LITTLE
    counts = sorted(stalled)
    too_few = [place for place, count in enumerate(counts) if stalled[count] > allowed]
    return counts[min(too_few[-1] + 1, len(counts) - 1)] if too_few else counts[0]
