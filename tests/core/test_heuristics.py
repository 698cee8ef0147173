"""Reference policies: what each gives in cases that can be followed by hand, and that none leaves the bounds."""

import dataclasses
from functools import partial

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rlalloc.allocation import allocation_for
from rlalloc.bounds import Directives, SiteBounds, bounds_for
from rlalloc.heuristics import (
    ALTERNATIVES,
    BASELINE,
    REFERENCE_POLICIES,
    Heuristic,
    Ordered,
    PriceConstants,
    adaptive_efficiency_threshold,
    afs_l,
    capped_price,
    earliest_finish,
    efficiency_threshold,
    equal_share,
    first_come_first_served,
    fixed,
    marginal_gain,
    price_by_order,
    price_ef,
    round_robin,
    sharing,
    shortest_job_first,
    steep_price,
)
from rlalloc.heuristics.efficiency import ADAPTIVE_THRESHOLD, most_efficient, most_efficient_by_queue
from rlalloc.heuristics.named import policy_named
from rlalloc.heuristics.offers import OfSizes
from rlalloc.heuristics.price import EQUAL_PARTS, STEEP_PRICE, of_least_cost
from rlalloc.heuristics.sharing import equal_part
from rlalloc.job import Allocation, JobView
from rlalloc.run_time import EXPECTED_FRACTION_OF_LIMIT
from rlalloc.speed import PRIOR
from rlalloc.view import ClusterView

from .strategies import SHAPE, cluster_views, job_views

REQUEST = Allocation(1, 4, 1, 32, 128_000, 10_000)
RUN_S = EXPECTED_FRACTION_OF_LIMIT * REQUEST.time_limit_s


def job(low: int = 1, high: int = 16, request: Allocation = REQUEST) -> JobView:
    """A moldable job that declares what a GPU needs."""
    directives = Directives(gpus=(low, high), cpus_per_gpu=(1.0, 8.0), mem_mib_per_gpu=(1024.0, 32_000.0))
    return JobView("train", request, bounds_for(request, directives, SiteBounds(), SHAPE), 0.0, 0)


def cluster(
    *,
    nodes: int = 4,
    free_gpus: int = 32,
    running: int = 0,
    queued: tuple[tuple[int, float], ...] = (),
    behind: int = 0,
) -> ClusterView:
    """Nodes of SHAPE whose first ones have ``free_gpus`` GPUs; running jobs hold 4 each."""
    nodes = 4
    whole = np.array([SHAPE.gpus, SHAPE.cpus, SHAPE.mem_mib], dtype=np.float64)
    free = np.tile(whole, (nodes, 1))
    free[:, 0] = [min(8, max(0, free_gpus - 8 * number)) for number in range(nodes)]
    return ClusterView(
        time_s=0.0,
        shape=SHAPE,
        free=free,
        totals=whole * nodes,
        releases=np.array([(600.0 * (1 + number), 4, 16, 1e4) for number in range(running)]).reshape(-1, 4),
        queued=np.array(queued, dtype=np.float64).reshape(-1, 2),
        behind=behind,
    )


def gpus(policy: Heuristic, one: JobView, view: ClusterView) -> int:
    return allocation_for(policy(one, view), one.request, one.bounds, SHAPE, lambda _: 1.0).gpus


@given(job_views(), cluster_views())
def test_no_policy_leaves_the_bounds(one: JobView, view: ClusterView) -> None:
    for policy in REFERENCE_POLICIES.values():
        shares = policy(one, view)
        assert all(0 <= share <= 1 for share in msgspec.structs.astuple(shares))
        assert gpus(policy, one, view) in one.bounds.gpu_counts
        ordered = Ordered(policy)(one, view)
        assert 0 <= ordered.urgency <= shares.urgency == 1.0
        assert msgspec.structs.replace(ordered, urgency=1.0) == shares


def test_a_steep_price_is_the_dearer_the_larger_the_share() -> None:
    steep, plain = PriceConstants(share_power=2.0), PriceConstants(share_power=1.0)
    small, large = (steep.price_s(share, 600.0, 3) / plain.price_s(share, 600.0, 3) for share in (0.1, 0.5))
    assert small == pytest.approx(0.1)
    assert large == pytest.approx(0.5)


@pytest.mark.parametrize(("free_gpus", "in_use", "own_price"), [(32, 0.0, 15.0), (16, 0.5, 25.0), (0, 1.0, 95.0)])
def test_what_stands_in_for_jobs_to_come_is_dear_in_a_full_cluster(
    free_gpus: int, in_use: float, own_price: float
) -> None:
    view = cluster(free_gpus=free_gpus)
    assert view.gpus_in_use == pytest.approx(in_use)
    assert STEEP_PRICE.where(view.gpus_in_use).own_price == pytest.approx(own_price)
    assert msgspec.structs.replace(STEEP_PRICE.where(in_use), own_price=15.0) == STEEP_PRICE


@given(job_views(), cluster_views())
def test_the_price_is_steep_where_the_queue_keeps_its_own_order(one: JobView, view: ClusterView) -> None:
    own, ordered = (dataclasses.replace(view, urgency_counts=counts) for counts in (False, True))
    assert price_by_order(one, own) == steep_price(one, own)
    assert price_by_order(one, ordered) == price_ef(one, ordered)


@given(job_views(), cluster_views())
def test_a_capped_price_gives_less_or_the_same(one: JobView, view: ClusterView) -> None:
    capped, most = gpus(capped_price, one, view), max(EQUAL_PARTS * equal_part(view), one.bounds.gpu_counts[0])
    assert capped == min(gpus(price_by_order, one, view), capped) <= most


@pytest.mark.parametrize(("running", "capped"), [(0, 8), (4, 8), (5, 4), (20, 1)])
def test_where_many_run_a_job_gets_little_more_than_an_equal_part(running: int, capped: int) -> None:
    """32 GPUs; 1.25 parts of 5 jobs' are 8, of 6 jobs' 6.7, which is 4 in workable counts."""
    view = cluster(running=running)
    assert (gpus(price_by_order, job(), view), gpus(capped_price, job(), view)) == (8, capped)


@pytest.mark.parametrize(
    ("free_gpus", "waiting", "plain", "steep"), [(32, 0, 8, 8), (0, 0, 8, 2), (32, 4, 4, 2), (0, 10, 4, 1)]
)
def test_a_steep_price_makes_jobs_smaller_where_it_is_full(
    free_gpus: int, waiting: int, plain: int, steep: int
) -> None:
    view = cluster(free_gpus=free_gpus, queued=((4, RUN_S),) * waiting)
    assert (gpus(price_ef, job(), view), gpus(steep_price, job(), view)) == (plain, steep)


@given(job_views(), cluster_views())
def test_what_stands_in_for_the_base_gives_its_cpus_and_memory(one: JobView, view: ClusterView) -> None:
    """So an observation need not tell them again."""
    base = BASELINE(one, view)
    for name, policy in ALTERNATIVES.items():
        shares = policy(one, view)
        assert (shares.cpu, shares.mem) == (base.cpu, base.mem)
        assert policy_named(name)(one, view) == shares


@pytest.mark.parametrize(("count", "given_"), [(1, 1), (4, 4), (7, 4), (100, 16)])
def test_fixed(count: int, given_: int) -> None:
    """The nearest workable count below."""
    assert gpus(fixed(count), job(), cluster()) == given_


def test_fixed_stays_above_the_least() -> None:
    assert gpus(fixed(1), job(low=4), cluster()) == 4


@pytest.mark.parametrize(("running", "waiting", "given_"), [(0, 0, 16), (3, 0, 8), (3, 3, 4), (30, 30, 1)])
def test_equal_share(running: int, waiting: int, given_: int) -> None:
    """32 GPUs by all jobs, this one included; those behind count too."""
    view = cluster(running=running, queued=((4, 100.0),) * (waiting // 2), behind=waiting - waiting // 2)
    assert gpus(equal_share, job(), view) == given_


@pytest.mark.parametrize(("free", "waiting", "given_"), [(32, 0, 16), (8, 1, 4), (8, 7, 1), (0, 0, 1)])
def test_round_robin(free: int, waiting: int, given_: int) -> None:
    """The free GPUs by the waiting jobs, this one included."""
    assert gpus(round_robin, job(), cluster(free_gpus=free, queued=((4, 100.0),) * waiting)) == given_


@pytest.mark.parametrize(("free", "given_"), [(32, 4), (3, 2), (1, 1), (0, 4)])
def test_first_come_first_served(free: int, given_: int) -> None:
    """What fits now, never more than was asked; the request if nothing does."""
    assert gpus(first_come_first_served, job(), cluster(free_gpus=free)) == given_


@pytest.mark.parametrize(
    ("others", "given_"), [((), 16), ((1.1, 2.0), 16), ((0.5, 2.0), 4), ((0.1, 0.2), 1), ((0.1, 0.2, 0.3, 2.0), 2)]
)
def test_shortest_job_first(others: tuple[float, ...], given_: int) -> None:
    """Range 1 to 16: the share is the part of the others that are not shorter, on a log scale."""
    assert gpus(shortest_job_first, job(), cluster(queued=tuple((4, RUN_S * other) for other in others))) == given_


def test_marginal_gain_takes_what_nobody_else_wants() -> None:
    assert gpus(marginal_gain, job(), cluster()) == 16
    assert gpus(marginal_gain, job(), cluster(free_gpus=4, running=7)) == 4


def test_marginal_gain_parts_evenly_between_equals() -> None:
    """Four like jobs, 32 free GPUs: eight each."""
    assert gpus(marginal_gain, job(), cluster(queued=((4, RUN_S),) * 3)) == 8


def test_marginal_gain_gives_more_to_who_gains_more() -> None:
    """Seven others that run far shorter leave 16 of 32 GPUs; if they run far longer, they take four each first."""
    shorter, longer = ((4, RUN_S / 100),) * 7, ((4, RUN_S * 100),) * 7
    assert gpus(marginal_gain, job(), cluster(queued=shorter)) == 16
    assert gpus(marginal_gain, job(), cluster(queued=longer)) == 4


def test_afs_l_takes_what_nobody_else_wants() -> None:
    assert gpus(afs_l, job(), cluster()) == 16
    assert gpus(afs_l, job(), cluster(free_gpus=4, running=7)) == 4


def test_afs_l_parts_evenly_between_equals() -> None:
    """Four like jobs, 32 free GPUs: eight each."""
    assert gpus(afs_l, job(), cluster(queued=((4, RUN_S),) * 3)) == 8


def test_afs_l_gives_a_first_gpu_to_the_shorter() -> None:
    """Two GPUs, three jobs: one of the others goes before if it is shorter, both if both are."""
    longer, shorter = (1, 100 * RUN_S), (1, RUN_S / 100)
    view = cluster(free_gpus=2, running=200, queued=(longer, longer))
    assert sharing.shared_gpus(view) == 2.0
    assert gpus(afs_l, job(), view) == 2
    assert gpus(afs_l, job(), cluster(free_gpus=2, running=200, queued=(shorter, shorter))) == 1


@given(st.integers(1, 32), st.integers(1, 32), st.floats(1, 1e6), st.floats(1, 1e6))
def test_afs_l_leaves_the_smaller_sum_of_both_completion_times(
    gpus_a: int, gpus_b: int, work_a: float, work_b: float
) -> None:
    """Of two jobs with GPUs and one more to give; once the shorter has ended, the longer gets that one."""

    def speed(count: int) -> float:
        return PRIOR.at(count, 8.0)

    if work_a / speed(gpus_a) > work_b / speed(gpus_b):
        gpus_a, gpus_b, work_a, work_b = gpus_b, gpus_a, work_b, work_a
    now_a, more_a, now_b, more_b = speed(gpus_a), speed(gpus_a + 1), speed(gpus_b), speed(gpus_b + 1)
    end_a_with_more = work_a / more_a
    to_a = end_a_with_more + end_a_with_more + (work_b - now_b * end_a_with_more) / more_b
    to_b = work_a / now_a + work_b / more_b
    assume(abs(to_a - to_b) > 1e-9 * to_a)
    one, two = (
        sharing._Claim(sharing._steps_of((count,))[1], work_s)
        for count, work_s in ((gpus_a, work_a), (gpus_b, work_b))
    )
    assert sharing._first_of_two(one, two) is (one if to_a < to_b else two)


def with_threshold(threshold: float) -> Heuristic:
    return OfSizes(partial(most_efficient, threshold=threshold))


def test_efficiency_threshold() -> None:
    """The prior's speed-ups over linear: 0.98 on 4, 0.87 on 8, 0.74 on 16 GPUs (bert, Pollux)."""
    one = job()
    for threshold, count in ((0.99, 2), (0.95, 4), (0.8, 8), (0.7, 16), (0.0, 16)):
        assert gpus(with_threshold(threshold), one, cluster()) == count
    assert gpus(efficiency_threshold, one, cluster()) == 4  # 0.89: between the two


def test_efficiency_is_measured_from_the_smallest_size() -> None:
    """From 8 on, 16 GPUs reach 0.85 of linear."""
    assert gpus(with_threshold(0.8), job(low=8), cluster()) == 16


def test_the_adaptive_threshold_shrinks_jobs_as_the_queue_grows() -> None:
    sizes = [gpus(adaptive_efficiency_threshold, job(), cluster(behind=behind)) for behind in (0, 4, 20, 400)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == gpus(with_threshold(ADAPTIVE_THRESHOLD), job(), cluster())
    assert sizes[-1] < sizes[0]
    assert (
        gpus(OfSizes(partial(most_efficient_by_queue, threshold=1.0)), job(), cluster()) == 2
    )  # the prior is linear up to 2


def test_earliest_finish_takes_all_that_makes_it_faster() -> None:
    assert gpus(earliest_finish, job(), cluster()) == 16


def test_earliest_finish_does_not_wait_for_more_than_it_gains() -> None:
    """Four GPUs are free at once; eight would be only after the first of the running jobs ends."""
    short = msgspec.structs.replace(REQUEST, time_limit_s=600)
    assert gpus(earliest_finish, job(request=short), cluster(free_gpus=4, running=7)) == 4


def test_a_price_makes_jobs_smaller() -> None:
    crowded = cluster(queued=((4, RUN_S),) * 10)
    assert gpus(price_ef, job(), crowded) < gpus(earliest_finish, job(), crowded)
    free = PriceConstants(own_price=0.0, queue_price=0.0)
    assert OfSizes(partial(of_least_cost, constants=free))(job(), crowded) == earliest_finish(job(), crowded)
