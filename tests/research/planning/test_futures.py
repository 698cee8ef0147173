"""The present of a view, and futures of it, in cases that can be followed by hand."""

import msgspec
import numpy as np
import pytest

from rlalloc.bounds import Directives, SiteBounds, bounds_for
from rlalloc.heuristics import price_ef
from rlalloc.job import Allocation, JobView, Shares
from rlalloc.run_time import EXPECTED_FRACTION_OF_LIMIT
from rlalloc.urgency import UrgencyRules
from rlalloc.view import ClusterView
from rlalloc_research.planning.cluster_now import present_of
from rlalloc_research.planning.futures import Future, FutureSettings, Outlook
from rlalloc_research.planning.recent_jobs import Recent
from rlalloc_simulator.driving import drive
from rlalloc_simulator.engine import Simulator, table_of
from tests.simulator.engine.by_hand import SHAPE, size
from tests.trainer.sites import site_workload

AS_EXPECTED = FutureSettings(spread=0.0)
AT_ONCE = (0, 0.0)


def test_the_present_has_every_running_job_and_what_is_free() -> None:
    """At each decision of a busy workload, on nodes that are all alike: nothing is left over, nothing is made up."""
    workload = site_workload(3)
    shape = workload.site.nodes[0].shape
    running = []

    def look(job: JobView, view: ClusterView) -> Shares:
        present = present_of(view)
        running.append(len(view.releases))
        on_nodes = np.zeros_like(present.capacity)
        np.add.at(on_nodes, present.nodes, present.held)
        assert (present.capacity - on_nodes == view.free).all()
        assert (present.capacity[:, 0] == shape.gpus).all()
        of_jobs = np.zeros((len(view.releases), 3))
        np.add.at(of_jobs, present.owners, present.held)
        np.testing.assert_array_equal(of_jobs[:, 0], view.releases[:, 1])
        np.testing.assert_allclose(of_jobs[:, 1:], view.releases[:, 2:], atol=2)  # parts are rounded
        return price_ef(job, view)

    drive(Simulator(workload.site, table_of(workload.jobs, workload.site)), workload.jobs, look)
    assert max(running) > 5


def view_of(*, releases: object = (), queued: object = (), behind: int = 0) -> ClusterView:
    """One node of 8 GPUs, 8 CPUs and 8,000 MiB."""
    rows = np.array(releases, dtype=np.float64).reshape(-1, 4)
    whole = np.array([SHAPE.gpus, SHAPE.cpus, SHAPE.mem_mib], dtype=np.float64)
    waiting = np.array(queued, dtype=np.float64).reshape(-1, 2)
    return ClusterView(0.0, SHAPE, (whole - rows[:, 1:].sum(axis=0))[None, :], whole, rows, waiting, behind)


def view_of_job(request: Allocation) -> JobView:
    return JobView("train", request, bounds_for(request, Directives(gpus=(1, 8)), SiteBounds(), SHAPE), 0.0, 0)


def outlook(
    request: Allocation, view: ClusterView, settings: FutureSettings, recent: Recent | None = None
) -> Outlook:
    return Outlook(view_of_job(request), view, present_of(view), recent or Recent(10), settings)


def drawn(request: Allocation, view: ClusterView, settings: FutureSettings = AS_EXPECTED) -> Future:
    return outlook(request, view, settings).future(np.random.default_rng(0))


def test_alone_a_job_costs_its_expected_run_time() -> None:
    request = size(4, 1000)
    assert drawn(request, view_of()).cost_s(request, AT_ONCE) == pytest.approx(440.0)


def test_how_much_longer_it_takes_in_fewer_gpus_is_drawn() -> None:
    """No curve is known: half of the GPUs take between as long and twice as long, the same for all candidates."""
    half = size(2, 2000)
    future = outlook(size(4, 1000), view_of(), AS_EXPECTED)
    generator = np.random.default_rng(0)
    costs_s = {round(future.future(generator).cost_s(half, AT_ONCE), 3) for _ in range(40)}
    assert 3 <= len(costs_s) <= 6
    assert min(costs_s) > 440.0
    assert max(costs_s) <= 880.0


def test_it_waits_for_what_runs() -> None:
    """Six of eight GPUs come free after 200 s: four GPUs wait for them, two do not."""
    request = size(4, 1000)
    there = view_of(releases=[(200.0, 6, 6, 6000)])
    assert drawn(request, there).cost_s(request, AT_ONCE) == pytest.approx(640.0)
    assert drawn(size(2, 1000), there).cost_s(size(2, 1000), AT_ONCE) == pytest.approx(440.0)


def test_all_of_a_running_job_ends_at_once() -> None:
    """It holds two nodes: two jobs of a node each start at the same time in every future, however long it goes on."""
    busy = ClusterView(
        0.0,
        SHAPE,
        np.zeros((2, 3)),
        2.0 * np.array([SHAPE.gpus, SHAPE.cpus, SHAPE.mem_mib]),
        np.array([[500.0, 16, 16, 16_000]]),
        np.array([[8, 100.0]]),
    )
    one = size(8, 1000)
    coming = outlook(one, busy, FutureSettings(spread=1.0))
    generator = np.random.default_rng(0)
    for _ in range(10):
        simulator = coming.future(generator).after(one, AT_ONCE)
        starts_s = simulator.outcomes()["first_start_s"][-2:]
        assert starts_s[0] == starts_s[1] > 0


def test_those_ahead_come_first_and_count() -> None:
    """One ahead wants all GPUs for 100 s: it is done after 100 s, the job after 540 s."""
    request = size(4, 1000)
    assert drawn(request, view_of(queued=[(8, 100.0)])).cost_s(request, AT_ONCE) == pytest.approx(640.0)


def test_where_urgency_counts_a_job_can_step_back_and_others_step_back_for_it() -> None:
    """All is taken for 100 s. One ahead is expected to run for a day: it steps back, unless the job does.

    The job takes 440 s first, then the other one is done a day later; or the job comes a day later.
    """
    rules = UrgencyRules(nice_band=1000, patience=4.0, starvation_limit_s=86_400.0)
    request, day_s = size(8, 1000), 86_400.0
    there = view_of(releases=[(100.0, 8, 8, 8000)], queued=[(8, day_s)])
    future = drawn(request, there, msgspec.structs.replace(AS_EXPECTED, urgency=rules))
    first_s, last_s = future.cost_s(request, AT_ONCE), future.cost_s(request, (1000, 86_400.0))
    assert last_s == pytest.approx(2 * (100.0 + day_s) + 440.0)
    assert first_s == pytest.approx(2 * (100.0 + 440.0) + day_s)


def test_later_jobs_are_like_recent_ones_and_come_as_often() -> None:
    """Jobs of 100 s, one each 50 s: in a horizon of ten run times some twenty more come and take 100 s each."""
    recent = Recent(50)
    one = size(1, round(100 / EXPECTED_FRACTION_OF_LIMIT))
    for number in range(20):
        recent.add(view_of_job(one), one, 50.0 * number)
    assert recent.mean_gap_s == pytest.approx(50.0)
    coming = outlook(one, view_of(), FutureSettings(spread=0.0, horizon=10.0), recent)
    generator = np.random.default_rng(0)
    costs_s = [coming.future(generator).cost_s(one, AT_ONCE) for _ in range(50)]
    assert np.mean(costs_s) / 100.0 == pytest.approx(1 + 20, rel=0.1)


def test_a_job_that_is_asked_about_again_came_once_and_a_new_workload_forgets_the_old_one() -> None:
    recent = Recent(3)
    one = view_of_job(size(2))
    recent.add(one, size(2), 100.0)
    recent.add(msgspec.structs.replace(one, waited_s=60.0), size(4), 160.0)
    assert [(job.arrived_s, job.given.gpus) for job in recent.jobs] == [(100.0, 4)]
    assert recent.mean_gap_s == float("inf")
    recent.add(one, size(1), 20.0)
    assert [job.given.gpus for job in recent.jobs] == [1]
