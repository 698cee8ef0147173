"""Heuristics that choose among the workable sizes of a job, and what they read of each: expected run time and start.

Many jobs ask for the same on the same nodes: what does not depend on a job's run time and time limit is kept.
"""

import bisect
import functools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from rlalloc.allocation import without_limit
from rlalloc.bounds import NodeShape
from rlalloc.heuristics.workable_sizes import Sizes, sizes_of, sizes_with_memory
from rlalloc.job import Allocation, Bounds, JobView, Shares
from rlalloc.speed import PRIOR
from rlalloc.view import ClusterView, SizesThere, expected_as_requested_s, prior_speed


@functools.cache
def well_fed_speed(gpus: int) -> float:
    """The prior's speed on so many GPUs with all the CPUs that they need, in multiples of one."""
    return PRIOR.at(gpus, PRIOR.cpus_per_gpu_needed)


class Kind:
    """What jobs of one request and bounds have in common, whatever their run times and time limits."""

    def __init__(self, request: Allocation, bounds: Bounds, shape: NodeShape) -> None:
        self.request, self.bounds, self.shape = request, bounds, shape
        self.lean: Sizes = sizes_of(request, bounds, shape)
        self.with_memory: Sizes = sizes_with_memory(request, bounds, shape)
        self.requested_speed = prior_speed(request)
        self.speeds = tuple(prior_speed(size) for size in self.lean.allocations)
        self.speeds_per_gpu = tuple(well_fed_speed(count) / count for count in self.lean.counts)


_kept_kind = functools.lru_cache(maxsize=4096)(Kind)


class Offer:
    """What one job may get on the nodes of a view, at one moment. Lists have a value for each size, ascending."""

    def __init__(self, job: JobView, view: ClusterView) -> None:
        self.job = job
        self.view = view
        self.kind: Kind = _kept_kind(without_limit(job.request), job.bounds, view.shape)
        self.counts = self.kind.lean.counts
        self.places: dict[Callable[[Offer], int], int] = {}
        """Of the sizes that heuristics have chosen so far: some choose what another one does."""

    @cached_property
    def as_requested_s(self) -> float:
        """Expected run time in the size that it asked for."""
        return expected_as_requested_s(self.job)

    @cached_property
    def run_s(self) -> list[float]:
        """Expected run time in each size."""
        one_gpu_s = self.as_requested_s * self.kind.requested_speed
        return [one_gpu_s / speed for speed in self.kind.speeds]

    @cached_property
    def there(self) -> SizesThere:
        """The sizes on these nodes."""
        return self.view.sizes_there(self.kind.lean.allocations)

    def of_least(self, costs: list[float]) -> int:
        """The place of the least cost; of several the largest size."""
        return len(costs) - 1 - min(range(len(costs)), key=costs[::-1].__getitem__)

    def at_most(self, gpus: float) -> int:
        """The place of the largest size up to so many GPUs; the smallest where there is none."""
        return max(0, bisect.bisect_right(self.counts, gpus) - 1)


@dataclass(frozen=True)
class OfSizes:
    """A heuristic that chooses among the workable sizes: the place of one, ascending.

    CPUs are cut to what a GPU needs; memory to the lower bound or, ``with_memory``, as ``memory_share`` says.
    """

    choose: Callable[[Offer], int]
    with_memory: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "__doc__", self.choose.__doc__)

    def __call__(self, job: JobView, view: ClusterView) -> Shares:
        """Return the shares of the size."""
        return self.answer(Offer(job, view))

    def answer(self, offer: Offer) -> Shares:
        """Likewise."""
        return self.sizes(offer).shares[self.place(offer)]

    def place(self, offer: Offer) -> int:
        """Return the place of the size."""
        if len(offer.counts) == 1:
            return 0
        if self.choose not in offer.places:
            offer.places[self.choose] = self.choose(offer)
        return offer.places[self.choose]

    def sizes(self, offer: Offer) -> Sizes:
        """Return the sizes that it chooses among."""
        return offer.kind.with_memory if self.with_memory else offer.kind.lean
