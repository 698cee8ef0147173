"""Late decisions: who is asked in a pass, against what, and who gets another size; by hand, nodes of 8 GPUs."""

import dataclasses
from collections.abc import Mapping

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlalloc.allocation import allocation_for, shares_of
from rlalloc.bounds import Directives, NodeShape, SiteBounds, bounds_for
from rlalloc.heuristics import known_costs_s
from rlalloc.job import Allocation, ChosenType, JobView, Shares
from rlalloc.late_decisions import (
    Ask,
    LateRules,
    PoolNow,
    Resized,
    Waiting,
    decide_pass,
    gain_of,
    while_it_waits,
)
from rlalloc.pool import Pool, Stock, could_start, without
from rlalloc.pool_reservations import FreeGpus
from rlalloc.view import ClusterView, FloatArray, mean_as_requested_s

SHAPE = NodeShape(gpus=8, cpus=64, mem_mib=512_000)
RULES = LateRules(min_gain=-100.0)
NOBODY_RUNS = np.empty((0, 2))


def size(gpus: int, limit_s: int = 3600, nodes: int = 1) -> Allocation:
    return Allocation(nodes, gpus, 1, gpus, 1000 * gpus, limit_s)


def waiting(gpus: int, limit_s: int = 3600, *, least: int | None = 1) -> Waiting:
    """A job that asked for what it has; one GPU is its least unless ``least`` says otherwise, None: not ours."""
    asked = size(gpus, limit_s)
    return Waiting(asked, 1000.0, asked, None, None if least is None else size(least, limit_s))


def cluster(*free_gpus: int) -> ClusterView:
    free = np.array([(gpus, 8 * gpus, 64_000 * gpus) for gpus in free_gpus], dtype=np.float64)
    totals = np.array([8, 64, 512_000], dtype=np.float64) * len(free_gpus)
    return ClusterView(0.0, SHAPE, free, totals, np.empty((0, 4)), np.empty((0, 2)))


def answering(*gpus: int, seen: list[tuple[int, ClusterView]] | None = None) -> Ask:
    """Answers the job at each place with so many GPUs, its time limit unchanged; notes what it was shown."""

    def ask(place: int, view: ClusterView) -> Allocation:
        if seen is not None:
            seen.append((place, view))
        return size(gpus[place])

    return ask


def run(
    queue: list[Waiting], view: ClusterView, limits: FloatArray, ask: Ask, rules: LateRules = RULES
) -> dict[int, Resized]:
    """A pass over jobs that may all use the nodes of ``view``."""
    now = PoolNow(Pool(np.arange(len(view.free))), view, limits, len(queue))
    return decide_pass(queue, (now,), np.ones((1, 1)), Stock(view.free), ask, rules)


def sizes(queue: list[Waiting], view: ClusterView, ask: Ask, limits: FloatArray = NOBODY_RUNS) -> dict[int, int]:
    decided = run(queue, view, limits, ask)
    return {place: resized.size.gpus for place, resized in decided.items()}


def test_a_job_that_does_not_fit_shrinks_into_what_is_free() -> None:
    assert sizes([waiting(8)], cluster(2), answering(2)) == {0: 2}


def test_an_answer_that_cannot_start_now_changes_nothing() -> None:
    assert sizes([waiting(8)], cluster(2), answering(4)) == {}


def test_where_nothing_could_start_nobody_is_asked() -> None:
    seen: list[tuple[int, ClusterView]] = []
    queue = [waiting(8, least=4), waiting(2, least=None), Waiting(None, 0.0)]
    assert sizes(queue, cluster(2, 3), answering(4, 4, 4, seen=seen)) == {}
    assert not seen


def test_each_is_shown_what_those_ahead_leave_and_who_still_waits() -> None:
    seen: list[tuple[int, ClusterView]] = []
    queue = [waiting(8), waiting(4), waiting(16, least=None), waiting(1)]
    limits = np.array([(100_000.0, 8.0)])
    assert sizes(queue, cluster(8), answering(2, 4, 0, 2, seen=seen), limits) == {0: 2, 3: 2}
    free = {place: float(view.free[:, 0].sum()) for place, view in seen}
    assert free == {0: 8.0, 1: 6.0, 3: 2.0}
    ahead = {place: view.queued[:, 0].tolist() for place, view in seen}
    assert ahead == {0: [], 1: [], 3: [16.0]}
    assert {place: view.behind for place, view in seen} == {0: 3, 1: 2, 3: 0}


def test_no_job_may_delay_one_ahead_of_it() -> None:
    """Eight GPUs come free in 1000 s for the first job. The second may use the two that are free now until then."""
    running = np.array([(1000.0, 8.0)])
    long, short = [waiting(10, least=None), waiting(4)], [waiting(10, least=None), waiting(4, 900)]
    assert sizes(long, cluster(0, 2), answering(0, 2), running) == {}
    view = cluster(0, 2)
    decided = run(short, view, running, lambda _place, _view: size(2, 900))
    assert {place: each.size.gpus for place, each in decided.items()} == {1: 2}


def test_a_size_on_a_type_of_gpu_takes_nodes_of_that_type() -> None:
    """Two nodes of different types with four free GPUs each. The first job takes those of the second node."""
    view = cluster(4, 4)
    of_all, of_type = Pool(np.arange(2)), Pool(np.array([1]))
    pools = (
        PoolNow(of_all, view, NOBODY_RUNS, 3),
        PoolNow(of_type, cluster(4), NOBODY_RUNS, 3),
    )
    shared = np.array([[1.0, 0.5], [1.0, 1.0]])
    queue = [waiting(8)._replace(on_types={"a100": 1}), waiting(8), waiting(8)._replace(on_types={"a100": 1})]
    seen: list[tuple[int, ClusterView]] = []

    def choose_type(_place: int, views: Mapping[str, ClusterView]) -> Allocation:
        typed = msgspec.structs.replace(size(4), gpu_type=ChosenType("a100", "n1", "", 2.0, 1.2))
        seen_there.append((float(views["a100"].free[:, 0].sum()), views["a100"].crowd))
        return typed

    seen_there: list[tuple[float, int]] = []
    ask = answering(4, 2, 2, seen=seen)
    decided = decide_pass(queue, pools, shared, Stock(view.free), ask, RULES, choose_type=choose_type)
    types = {place: each.size.gpu_type and each.size.gpu_type.name for place, each in decided.items()}
    assert types == {0: "a100", 1: None, 2: None}
    assert [each.free[:, 0].tolist() for _, each in seen] == [[4.0, 4.0], [4.0, 0.0], [2.0, 0.0]]
    assert seen_there == [(4.0, 2), (0.0, 0)]


def test_a_type_of_gpu_counts_with_the_lower_bound_of_its_speed_up() -> None:
    job, view = waiting(8), cluster(8)
    typed = msgspec.structs.replace(size(8), gpu_type=ChosenType("a100", "n1", "", 2.0, 1.25))
    seen = JobView("train", size(8), bounds_for(size(8), Directives(), SiteBounds(), SHAPE), 0.0, 0)
    (present_s,) = known_costs_s(seen, (size(8),), view)
    assert gain_of(job, typed, view) == pytest.approx(0.2 * mean_as_requested_s(seen) / present_s)
    assert gain_of(job._replace(size=typed), typed, view) == 0.0


def test_a_size_has_to_save_enough() -> None:
    """Eight GPUs for four, in a pass that leaves all free: it runs faster, but takes more of the cluster."""
    queue = [waiting(1)]
    gain = run(queue, cluster(8), NOBODY_RUNS, answering(2), LateRules(min_gain=-10.0))[0].gain
    for least, taken in ((gain - 0.01, 1), (gain + 0.01, 0)):
        decided = run(queue, cluster(8), NOBODY_RUNS, answering(2), LateRules(min_gain=least))
        assert len(decided) == taken


def test_an_earlier_start_that_slurm_expects_counts_for_the_present_size() -> None:
    releases = np.array([(5000.0, 8, 0, 0)])
    view = dataclasses.replace(cluster(2, 0), releases=releases)
    job = waiting(8, 600)
    ours, later, sooner = (gain_of(job._replace(starts_within_s=at), size(2), view) for at in (None, 9000.0, 100.0))
    assert later == ours > 0.15
    assert sooner < LateRules().min_gain


def test_the_gain_is_the_part_of_the_expected_cost_that_is_saved() -> None:
    view = dataclasses.replace(cluster(2, 0), releases=np.array([(5000.0, 8, 0, 0)]))
    job = waiting(8, 600)
    seen = JobView("train", size(8, 600), bounds_for(size(8, 600), Directives(), SiteBounds(), SHAPE), 0.0, 0)
    present_s, proposed_s = known_costs_s(seen, (size(8, 600), size(2, 600)), view)
    assert present_s > 5000 > proposed_s
    assert gain_of(job, size(2, 600), view) == pytest.approx(1 - proposed_s / present_s)


def test_a_pass_asks_about_so_many() -> None:
    seen: list[tuple[int, ClusterView]] = []
    queue = [waiting(2) for _ in range(5)]
    run(queue, cluster(8), NOBODY_RUNS, answering(2, 2, 2, 2, 2, seen=seen), LateRules(head=3, min_gain=-100.0))
    assert [place for place, _ in seen] == [0, 1, 2]


WIDE = Directives(gpus=(1, 16), cpus_per_gpu=(1, 16), mem_mib_per_gpu=(2000, 16_000))
"""Around a request of four CPUs and 8000 MiB a GPU."""


def first(answer: Shares, allocation: Allocation, free: int, *, slower_below: float = 0.0) -> tuple[Shares, Shares]:
    """What a new job of eight GPUs gets of an answer, and what it asked for; it is slower with fewer CPUs a GPU."""
    request = msgspec.structs.replace(size(8), cpus_per_task=32, mem_mib_per_node=64_000)
    bounds = bounds_for(request, WIDE, SiteBounds(), SHAPE)

    def allocate(shares: Shares) -> Allocation:
        return allocation_for(shares, request, bounds, SHAPE, lambda given: 1.0 + (given.cpus_per_gpu < slower_below))

    starts = could_start(allocation, cluster(free).free)
    return answer if starts else while_it_waits(answer, request, bounds, allocate), shares_of(request, bounds)


def test_a_new_job_gets_the_answer_if_it_starts_and_else_waits_with_the_gpus_that_it_asked_for() -> None:
    answer = Shares(0.5, 0.1, 0.1, 0.7)
    assert first(answer, size(4), 4)[0] == answer
    got, asked = first(answer, size(4), 2)
    assert got == Shares(asked.gpu, 0.1, 0.1, 0.7)


def test_a_job_that_waits_gets_no_more_cpus_and_memory_than_it_asked_for() -> None:
    """With more it could wait for nodes that its request does not need."""
    got, asked = first(Shares(0.5, 1.0, 1.0, 0.7), size(4), 0)
    assert got == Shares(asked.gpu, asked.cpu, asked.mem, 0.7)
    assert (asked.cpu, asked.mem) < (1.0, 1.0)


def test_a_job_that_waits_gets_no_longer_time_limit() -> None:
    """Backfill would no longer start it in a gap that its request fits."""
    got, asked = first(Shares(0.5, 0.1, 0.1, 0.7), size(4), 0, slower_below=4.0)
    assert got == Shares(asked.gpu, asked.cpu, 0.1, 0.7)


def test_what_jobs_leave_is_taken_from_the_fullest_nodes() -> None:
    stock, pool = Stock(cluster(8, 3).free), Pool(np.arange(2))
    for each in (size(2), size(9), size(3)):
        stock.take(pool, each)
    assert stock.left(pool)[:, 0].tolist() == [5.0, 1.0]
    assert without(cluster(8, 8).free, size(8, nodes=2))[:, 0].tolist() == [0.0, 0.0]


@given(st.lists(st.integers(0, 8), min_size=1, max_size=5), st.integers(1, 8), st.integers(1, 3), st.integers(1, 12))
def test_tasks_of_an_array_take_what_as_many_jobs_take(free: list[int], gpus: int, nodes: int, tasks: int) -> None:
    one_by_one, together, pool = Stock(cluster(*free).free), Stock(cluster(*free).free), Pool(np.arange(len(free)))
    task = size(gpus, nodes=nodes)
    have_room = together.has_room(pool, task, tasks)
    placed = sum(bool(len(one_by_one.take(pool, task))) for _ in range(tasks))
    together.take_tasks(pool, task, tasks)
    assert together.left(pool).tolist() == one_by_one.left(pool).tolist()
    if nodes == 1 or placed == tasks:
        assert have_room == (placed == tasks)


def test_tasks_on_several_nodes_each_use_a_node_once() -> None:
    stock, pool = Stock(cluster(8, 1).free), Pool(np.arange(2))
    assert [stock.has_room(pool, size(1, nodes=2), tasks) for tasks in (1, 2)] == [True, False]


def typed(limits: FloatArray = NOBODY_RUNS) -> tuple[list[PoolNow], FloatArray, Stock]:
    """Three pools of a site of two a100 nodes (all GPUs in use but one) and two v100 nodes: a100, v100 and any."""
    free = cluster(1, 0, 4, 4)
    pools = [
        PoolNow(Pool(np.array(places)), dataclasses.replace(free, free=free.free[places]), limits, 9)
        for places in ([0, 1], [2, 3], [0, 1, 2, 3])
    ]
    shared = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [0.5, 0.5, 1.0]])
    return pools, shared, Stock(free.free)


def test_a_job_of_one_type_does_not_start_on_idle_nodes_of_another() -> None:
    seen: list[tuple[int, ClusterView]] = []
    queue = [waiting(8), waiting(8)._replace(pool=1), waiting(8)._replace(pool=2)]
    pools, shared, stock = typed()
    decided = decide_pass(queue, pools, shared, stock, answering(4, 4, 4, seen=seen), RULES)
    assert {place: each.size.gpus for place, each in decided.items()} == {1: 4, 2: 4}
    assert [view.free[:, 0].tolist() for _, view in seen] == [[1, 0], [4, 4], [1, 0, 0, 4]]


def test_who_waits_ahead_counts_by_the_part_of_its_nodes_that_are_shared() -> None:
    seen: list[tuple[int, ClusterView]] = []
    long = np.array([(90_000.0, 8.0)])
    queue = [
        waiting(16, least=None),
        waiting(12, least=None)._replace(pool=1),
        waiting(12, least=None)._replace(pool=2),
        waiting(8)._replace(pool=1),
    ]
    pools, shared, stock = typed(long)
    decide_pass(queue, pools, shared, stock, answering(0, 0, 0, 1, seen=seen), RULES)
    ((_, view),) = seen
    assert view.queued[:, 0].tolist() == [12.0, 6.0]
    assert view.behind == 9 - 2 - 1


def test_a_reservation_of_one_pool_holds_back_only_those_that_share_its_nodes() -> None:
    """The first job gets all a100 in 1000 s; a job of 2000 s may take of the v100, not of the a100."""
    first = waiting(16, least=None)
    for pool, resized in ((0, {}), (1, {1: 1})):
        pools, shared, stock = typed(np.array([(1000.0, 15.0)]))
        decided = decide_pass(
            [first, waiting(8, 2000)._replace(pool=pool)], pools, shared, stock, answering(0, 1), RULES
        )
        assert {place: each.size.gpus for place, each in decided.items()} == resized


def test_beyond_the_window_of_backfill_there_are_no_reservations() -> None:
    queue, view = [waiting(16, least=None), waiting(4)], cluster(8)
    running = np.array([(1000.0, 8.0)])
    rules = LateRules(min_gain=-100.0, window_s=900.0)
    assert run(queue, view, running, answering(0, 2)) == {}
    assert list(run(queue, view, running, answering(0, 2), rules)) == [1]


@given(
    st.integers(0, 20),
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=8),
    st.lists(st.tuples(st.integers(1, 25), st.integers(1, 40)), max_size=8),
)
def test_reservations_never_take_more_gpus_than_there_are(
    free: int, running: list[tuple[int, int]], jobs: list[tuple[int, int]]
) -> None:
    """Compared with a count second by second, which shares nothing with it."""
    limits = np.array(running, dtype=np.float64).reshape(-1, 2)
    gpus = FreeGpus(float(free), limits)
    by_second = np.full(800, free) + sum((np.arange(800) >= end_s) * held for end_s, held in running)
    for wanted, limit_s in jobs:
        start_s = gpus.start_s(wanted, limit_s)
        fits = [at for at in range(500) if (by_second[at : at + limit_s] >= wanted).all()]
        assert start_s == (fits[0] if fits else np.inf)
        if fits:
            gpus.take(start_s, wanted, limit_s)
            by_second[fits[0] : fits[0] + limit_s] -= wanted
