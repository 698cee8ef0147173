"""The CP-SAT packing in cases that can be followed by hand."""

import numpy as np
import pytest
from hypothesis import given, settings

from rlalloc.errors import PolicyError
from rlalloc.heuristics import REFERENCE_POLICIES, Ordered, as_requested, named, packing
from rlalloc.heuristics.named import described, policy_named
from rlalloc.heuristics.order import ORDERS
from rlalloc.heuristics.packing import window_packing
from rlalloc.job import JobView
from rlalloc.view import ClusterView

from .strategies import cluster_views, job_views
from .test_heuristics import RUN_S, cluster, gpus, job

needs_solver = pytest.mark.skipif(
    not packing.solver_is_there(), reason="OR-Tools is not installed: pip install 'rlalloc[ortools]'"
)


@needs_solver
def test_a_job_alone_gets_the_size_that_ends_first() -> None:
    assert gpus(window_packing, job(), cluster()) == 16


@needs_solver
def test_a_job_takes_what_is_free_if_the_rest_is_held_for_long() -> None:
    """Four GPUs are free; the others come free one job after the other, the first after a hundred run times."""
    view = cluster(free_gpus=4, running=7)
    held = np.array([(100 * RUN_S * (1 + number), 4, 16, 1e4) for number in range(7)])
    late = ClusterView(view.time_s, view.shape, view.free, view.totals, held, view.queued)
    assert gpus(window_packing, job(), late) == 4


@needs_solver
def test_the_window_is_packed_together() -> None:
    """32 free GPUs, one job of 24 that waits: 8 at once leave both running; 16 would make one wait for the other."""
    assert gpus(window_packing, job(), cluster(queued=((24, RUN_S),))) == 8


@needs_solver
@settings(max_examples=8, deadline=None)
@given(job_views(), cluster_views())
def test_it_stays_within_the_bounds_and_answers_the_same_twice(one: JobView, view: ClusterView) -> None:
    shares = window_packing(one, view)
    assert all(0 <= share <= 1 for share in (shares.gpu, shares.cpu, shares.mem))
    assert shares == window_packing(one, view)


@needs_solver
def test_what_can_never_fit_gets_what_was_asked() -> None:
    view = cluster(free_gpus=0)
    nothing = ClusterView(0.0, view.shape, view.free[:0], np.zeros(3), view.releases, view.queued)
    assert window_packing(job(), nothing) == as_requested(job(), nothing)


def test_without_the_solver_its_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named, "solver_is_there", lambda: False)
    with pytest.raises(PolicyError, match="pip install"):
        policy_named("cp-sat")


def test_policies_by_name() -> None:
    for name, policy in REFERENCE_POLICIES.items():
        assert policy_named(name) is policy
        for order, urgency_of in ORDERS.items():
            assert policy_named(f"{name}{order}") == Ordered(policy, urgency_of)
    with pytest.raises(PolicyError, match="price-ef"):
        policy_named("nothing of the kind")


def test_each_policy_says_what_it_gives() -> None:
    told = described()
    assert set(told) == set(REFERENCE_POLICIES) | {"cp-sat"}
    assert all(what for what, _ in told.values())
    assert "NSDI 2021" in told["afs-l"][1]
