"""Another size than the requested one only where its gain is known."""

import dataclasses

import msgspec
import numpy as np
import pytest
from hypothesis import given

from rlalloc.allocation import size_for
from rlalloc.heuristics import known_costs_s, known_gain
from rlalloc.heuristics.known_gain import COMING, LEAST_GAIN
from rlalloc.heuristics.workable_sizes import sizes_of
from rlalloc.job import JobView, Range
from rlalloc.run_time import RunTimeEstimate
from rlalloc.speed.family_speeds import FamilySpeeds, SizedRun
from rlalloc.speed.longer_limits import slowdowns
from rlalloc.view import ClusterView

from .strategies import SHAPE, cluster_views, job_views
from .test_heuristics import REQUEST, RUN_S, cluster, gpus, job


def costs_s(one: JobView, view: ClusterView) -> dict[int, float]:
    sizes = sizes_of(one.request, one.bounds, view.shape)
    return dict(zip(sizes.counts, known_costs_s(one, sizes.allocations, view), strict=True))


@given(job_views(), cluster_views())
def test_a_departure_saves_a_part_of_the_cost(one: JobView, view: ClusterView) -> None:
    given_gpus, by_count = gpus(known_gain, one, view), costs_s(one, view)
    if given_gpus != one.request.gpus and one.request.gpus in by_count:
        assert by_count[given_gpus] < (1.0 - LEAST_GAIN) * by_count[one.request.gpus]


def test_a_job_that_fits_with_nobody_waiting_gets_what_it_asked_for() -> None:
    assert gpus(known_gain, job(), cluster()) == 4


def test_a_larger_size_counts_with_the_lower_bound_of_its_speed_up() -> None:
    """The run time that 95% of the believed curves stay below, where the median would have been much less."""
    sizes = sizes_of(job().request, job().bounds, cluster().shape)
    larger = sizes.allocations[sizes.counts.index(8)]
    ratios = slowdowns(job().request, larger)
    share = cluster().dominant_share(larger)
    assert costs_s(job(), cluster())[8] == pytest.approx(RUN_S * np.quantile(ratios, 0.95) * (1 + COMING * share))
    assert np.quantile(ratios, 0.95) > np.quantile(ratios, 0.5)


def test_a_family_that_runs_as_fast_on_fewer_gpus_gets_fewer() -> None:
    one, speeds = job(), FamilySpeeds()
    for number in range(60):
        speeds.add(SizedRun((number, 0), "ada", "train", one.request, (2, 4, 8)[number % 3], 1, 3600.0))
    flat = msgspec.structs.replace(one, speed=speeds.of("ada", "train", one.request).belief)
    assert gpus(known_gain, flat, cluster()) == 2
    assert gpus(known_gain, one, cluster()) == 4


@pytest.mark.parametrize("behind", [0, 40])
def test_each_job_that_waits_makes_a_share_dearer_by_the_run_time(behind: int) -> None:
    one = job()
    plain, crowded = costs_s(one, cluster()), costs_s(one, cluster(behind=behind))
    assert crowded[4] - plain[4] == pytest.approx(behind * RUN_S * 4 / 32)


def test_jobs_that_wait_make_a_job_smaller_and_never_larger() -> None:
    sizes = [gpus(known_gain, job(), cluster(behind=behind)) for behind in (0, 5, 20, 80)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < 4


def test_a_run_time_of_a_long_tail_costs_more_than_its_median() -> None:
    """The job may hold its GPUs for long, so the same median with a longer tail is dearer, up to the time limit."""
    sure, unsure = (
        msgspec.structs.replace(job(), run_time=RunTimeEstimate(1000.0, 1000.0, high_s, ""))
        for high_s in (1000.0, 2000.0)
    )
    beyond = msgspec.structs.replace(job(), run_time=RunTimeEstimate(1000.0, 1000.0, 1e9, ""))
    factor = costs_s(sure, cluster())[4] / 1000.0
    assert costs_s(unsure, cluster())[4] == pytest.approx(1300.0 * factor)
    assert costs_s(beyond, cluster())[4] == pytest.approx((700.0 + 0.3 * REQUEST.time_limit_s) * factor)


def test_memory_is_cut_to_a_gpus_part_of_the_node_and_no_further() -> None:
    """Less frees no GPU for others. A lower bound that is above the part holds, and so does a smaller request."""
    part = SHAPE.mem_mib / SHAPE.gpus

    def memory(asked: float, least: float) -> float:
        request = msgspec.structs.replace(REQUEST, mem_mib_per_node=int(asked * REQUEST.gpus))
        mem = Range(least, asked, "test", "test")
        one = msgspec.structs.replace(
            job(), request=request, bounds=msgspec.structs.replace(job().bounds, mem_mib_per_gpu=mem)
        )
        view = cluster()
        return size_for(known_gain(one, view), request, one.bounds, view.shape).mem_mib_per_gpu

    assert memory(1.9 * part, 0.1 * part) == pytest.approx(part, rel=0.01)
    assert memory(1.9 * part, 1.5 * part) == pytest.approx(1.5 * part, rel=0.01)
    assert memory(0.5 * part, 0.1 * part) == pytest.approx(0.5 * part, rel=0.01)


def test_what_cannot_start_now_waits_until_enough_is_free() -> None:
    """The releases are 600 s apart, 4 GPUs each; the queue before it does not count: it may be passed."""
    full = dataclasses.replace(cluster(free_gpus=0, running=8), queued=np.array([(8.0, 1e6)]))
    one = job()
    without_wait = dict.fromkeys((1, 4, 8))
    for count in without_wait:
        allocation = sizes_of(one.request, one.bounds, full.shape)
        size = allocation.allocations[allocation.counts.index(count)]
        without_wait[count] = full.freed_after_s((size,))[0]
    assert without_wait == {1: 600.0, 4: 600.0, 8: 1200.0}


@given(job_views(), cluster_views())
def test_what_fits_waits_for_nothing_and_the_rest_for_no_longer_than_the_last_release(
    one: JobView, view: ClusterView
) -> None:
    allocations = sizes_of(one.request, one.bounds, view.shape).allocations
    last_s = float(view.releases[-1, 0]) if len(view.releases) else 0.0
    for fits, freed_s in zip(view.fit_now(allocations), view.freed_after_s(allocations), strict=True):
        assert freed_s == 0.0 if fits else 0.0 <= freed_s <= last_s
