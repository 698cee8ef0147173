"""Another size than the requested one only where its gain is known."""

import dataclasses

import msgspec
import numpy as np
import pytest
from hypothesis import given

from rlalloc.heuristics import known_costs_s, known_gain
from rlalloc.heuristics.known_gain import COMING, LEAST_GAIN
from rlalloc.heuristics.workable_sizes import sizes_of
from rlalloc.job import JobView
from rlalloc.speed.family_speeds import FamilySpeeds, SizedRun
from rlalloc.speed.longer_limits import slowdowns
from rlalloc.view import ClusterView

from .strategies import cluster_views, job_views
from .test_heuristics import RUN_S, cluster, gpus, job


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
    flat = msgspec.structs.replace(one, speed=speeds.belief("ada", "train", one.request))
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
