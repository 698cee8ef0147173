"""The encoding of a job and a cluster."""

import msgspec
import numpy as np
from hypothesis import given

from rlalloc.allocation import allocation_for
from rlalloc.heuristics import ALTERNATIVES, BASELINE, BASELINE_NAME, REFERENCE_POLICIES
from rlalloc.job import JobView
from rlalloc.observation import FEATURES, as_if_based_on, encode, heuristic_shares
from rlalloc.view import ClusterView

from .strategies import SHAPE, cluster_views, job_views


@given(job_views(), cluster_views())
def test_every_observation_is_finite_and_of_one_shape(job: JobView, cluster: ClusterView) -> None:
    observation = encode(job, cluster)
    assert observation.shape == (len(FEATURES),)
    assert observation.dtype == np.float32
    assert np.isfinite(observation).all()


@given(job_views(), cluster_views())
def test_it_ends_with_the_base_heuristic(job: JobView, cluster: ClusterView) -> None:
    expected = BASELINE(job, cluster)
    found = heuristic_shares(encode(job, cluster))
    assert np.allclose(msgspec.structs.astuple(found), msgspec.structs.astuple(expected), atol=1e-6)
    sizes = REFERENCE_POLICIES["price-by-order"](job, cluster)
    assert expected == msgspec.structs.replace(sizes, urgency=expected.urgency)


@given(job_views(), cluster_views())
def test_every_heuristic_stays_inside_the_bounds(job: JobView, cluster: ClusterView) -> None:
    for heuristic in REFERENCE_POLICIES.values():
        size = allocation_for(heuristic(job, cluster), job.request, job.bounds, SHAPE, lambda _: 1.0)
        assert size.gpus in job.bounds.gpu_counts


@given(job_views(), cluster_views())
def test_it_can_be_based_on_each_heuristic_that_stands_in(job: JobView, cluster: ClusterView) -> None:
    observation = encode(job, cluster)
    for name, heuristic in ALTERNATIVES.items():
        found = heuristic_shares(as_if_based_on(name, observation))
        assert np.allclose(
            msgspec.structs.astuple(found), msgspec.structs.astuple(heuristic(job, cluster)), atol=1e-6
        )
    assert (as_if_based_on(BASELINE_NAME, observation) == observation).all()


def test_names_are_unique() -> None:
    assert len(set(FEATURES)) == len(FEATURES)
