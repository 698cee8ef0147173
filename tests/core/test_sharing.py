"""GPUs are shared out step by step as among all jobs that wait, at a fraction of the cost."""

import functools
import heapq
import math

import msgspec
import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from rlalloc.heuristics import afs_l, marginal_gain
from rlalloc.heuristics.offers import well_fed_speed as _speed
from rlalloc.heuristics.sharing import shared_gpus
from rlalloc.heuristics.workable_sizes import at_most
from rlalloc.job import JobView, Shares
from rlalloc.view import ClusterView, expected_as_requested_s
from tests.core.test_heuristics import cluster, gpus, job


def claims(one: JobView, view: ClusterView) -> tuple[list[float], list[tuple[int, ...]]]:
    """Works [s on one GPU] and workable counts of all that wait, ``one`` first; those of others: powers of two."""
    works_s = [expected_as_requested_s(one) * _speed(one.request.gpus)]
    works_s += [run_s * _speed(int(held)) for held, run_s in view.queued.tolist()]
    usual = tuple(count for count in (1, 2, 4, 8, 16, 32, 64) if count <= view.totals[0])
    return works_s, [one.bounds.gpu_counts] + [usual] * len(view.queued)


def step_by_step(one: JobView, view: ClusterView) -> int:
    """What ``one`` gets where each step goes to the job that it saves most for each GPU."""
    works_s, ladders = claims(one, view)
    held = [0] * len(ladders)
    left = shared_gpus(view) - sum(ladder[0] for ladder in ladders)
    heap = [(-math.inf, number, 0) for number in range(len(ladders))]
    while heap and left >= 1:
        _, number, step = heapq.heappop(heap)
        ladder = ladders[number]
        more = ladder[step] - ladder[step - 1] if step else 0
        if more > left:
            continue
        held[number], left = step, left - more
        if step + 1 < len(ladder):
            now, then = ladder[step], ladder[step + 1]
            saved_s = works_s[number] / _speed(now) - works_s[number] / _speed(then)
            if saved_s > 0:
                heapq.heappush(heap, (-saved_s / (then - now), number, step + 1))
    return ladders[0][held[0]]


def in_a_tournament(one: JobView, view: ClusterView) -> Shares:
    """AFS-L as in the paper: for each step, all that wait are compared two at a time."""
    works_s, ladders = claims(one, view)
    held = [0] * len(ladders)
    left = shared_gpus(view)

    def more(number: int) -> float:
        ladder, has = ladders[number], held[number]
        then = next((count for count in ladder if count > has), None)
        return math.inf if then is None or (has and _speed(then) <= _speed(has)) else then - has

    def first(one: int, two: int) -> int:
        if not held[one] and not held[two]:
            return one if works_s[one] <= works_s[two] else two
        lengths_s = [works_s[each] / _speed(held[each] or ladders[each][0]) for each in (one, two)]
        shorter, longer = (two, one) if lengths_s[0] > lengths_s[1] else (one, two)
        if not held[shorter]:
            return shorter
        of_longer = 1 - (_speed(held[longer]) if held[longer] else 0) / _speed(held[longer] + 1)
        of_shorter = _speed(held[shorter] + 1) / _speed(held[shorter]) - 1
        return longer if of_longer > of_shorter else shorter

    while open_ := [number for number in range(len(ladders)) if more(number) <= left]:
        top = functools.reduce(first, open_)
        left, held[top] = left - more(top), held[top] + int(more(top))
    return at_most(held[0], one)


def in_single_steps(one: JobView, view: ClusterView) -> Shares:
    return at_most(step_by_step(one, view), one)


counts = st.sets(st.integers(1, 64), min_size=1, max_size=6).map(lambda some: tuple(sorted(some)))
queues = st.lists(st.tuples(st.integers(1, 16), st.floats(1, 1e5)), max_size=30)


@given(counts=counts, free=st.integers(0, 16), running=st.integers(0, 12), queue=queues)
@example(counts=(1, 2, 4, 8), free=16, running=0, queue=[(1, 1000.0), (4, 1000.0), (2, 500.0)])
@example(counts=(1, 2, 4), free=9, running=4, queue=[(8, 1.0)] * 3)
def test_as_among_all(counts: tuple[int, ...], free: int, running: int, queue: list[tuple[int, float]]) -> None:
    plain = job()
    one = msgspec.structs.replace(plain, bounds=msgspec.structs.replace(plain.bounds, gpu_counts=counts))
    view = cluster(free_gpus=free, running=running, queued=tuple(queue))
    assert gpus(marginal_gain, one, view) == gpus(in_single_steps, one, view)
    assert gpus(afs_l, one, view) == gpus(in_a_tournament, one, view)


def test_a_long_queue() -> None:
    random = np.random.default_rng(0)
    queue = tuple((int(random.choice((1, 2, 4, 8))), float(random.uniform(10, 1e5))) for _ in range(2_000))
    plain = job()
    for work_s in (1.0, 1e2, 1e4, 1e6):
        request = msgspec.structs.replace(plain.request, time_limit_s=int(work_s) + 1)
        one = msgspec.structs.replace(plain, request=request)
        view = cluster(free_gpus=16, running=5, queued=queue)
        assert gpus(marginal_gain, one, view) == gpus(in_single_steps, one, view)
