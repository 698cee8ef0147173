"""What to try next where a limit forbids the decided shares. Pure functions."""

from collections.abc import Iterator

import msgspec

from rlalloc.allocation import share_in, shares_of
from rlalloc.job import Allocation, Bounds, Shares


def shares_towards_request(
    decided: Shares, allocation: Allocation, request: Allocation, bounds: Bounds
) -> Iterator[Shares]:
    """Shares from the decided ones towards the request, nearest first; the decided ones are not among them.

    First the GPU counts between the decided one and the request's with the decided CPUs and memory, then the same
    with those of the request: so a limit in the way makes a job grow or shrink less before it makes it stay.
    """
    as_submitted = shares_of(request, bounds)
    low, high = sorted((allocation.gpus, request.gpus))
    counts = [count for count in bounds.gpu_counts if low <= count <= high]
    if allocation.gpus > request.gpus:
        counts.reverse()
    gpu_shares = [share_in(count, bounds.gpus) for count in counts]
    yield from (msgspec.structs.replace(decided, gpu=gpu) for gpu in gpu_shares[1:])
    yield from (msgspec.structs.replace(as_submitted, gpu=gpu, urgency=decided.urgency) for gpu in gpu_shares)
