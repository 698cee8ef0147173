"""The encoding of a job and a cluster, now and from what was stored earlier."""

import dataclasses
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import find, given
from hypothesis import strategies as st

from rlalloc import observation
from rlalloc.allocation import allocation_for
from rlalloc.devices import Device
from rlalloc.heuristics import (
    BASELINE,
    BASELINE_NAME,
    REFERENCE_POLICIES,
    SERVED_HEURISTICS,
    largest,
)
from rlalloc.job import JobView, Shares
from rlalloc.objective import TERM_NAMES, Weights
from rlalloc.objective.weights import features_of
from rlalloc.observation import (
    DECLARED,
    FEATURES,
    POOL_FEATURES,
    WEIGHT_FEATURES,
    EncodedBatch,
    answer_columns,
    as_stored,
    encode,
    recalled,
)
from rlalloc.policy.policy_inputs import PolicyInputs, baseline_shares
from rlalloc.store.migrations.versions.r0003_feature_names import NAMES_OF_0_1
from rlalloc.view import ClusterView

from .strategies import SHAPE, cluster_views, job_views


@given(job_views(), cluster_views())
def test_every_encoding_is_finite_and_of_one_shape(job: JobView, cluster: ClusterView) -> None:
    question = encode(job, cluster)
    assert question.features.shape == (len(FEATURES),)
    assert question.features.dtype == np.float32
    assert np.isfinite(question.features).all()


@given(job_views(), cluster_views())
def test_each_served_heuristic_is_asked(job: JobView, cluster: ClusterView) -> None:
    question = encode(job, cluster)
    assert question.alternatives == {name: answer(job, cluster) for name, answer in SERVED_HEURISTICS.items()}
    sizes = REFERENCE_POLICIES["known-gain"](job, cluster)
    baseline = question.alternatives[BASELINE_NAME]
    assert baseline == msgspec.structs.replace(sizes, urgency=baseline.urgency)


@given(job_views(), cluster_views())
def test_every_heuristic_stays_inside_the_bounds(job: JobView, cluster: ClusterView) -> None:
    for heuristic in REFERENCE_POLICIES.values():
        size = allocation_for(heuristic(job, cluster), job.request, job.bounds, SHAPE, lambda _: 1.0)
        assert size.gpus in job.bounds.gpu_counts


@given(job_views(), cluster_views())
def test_a_network_reads_its_inputs_by_name(job: JobView, cluster: ClusterView) -> None:
    """Whatever their order, and of whatever heuristic it is a residual around."""
    question = encode(job, cluster)
    names = ("waited", "equal-share+smallest-area-first:gpu_share", "free_gpus", *answer_columns(BASELINE_NAME))
    row = PolicyInputs(names).row(question)
    equal = question.alternatives["equal-share+smallest-area-first"]
    saw = question.by_name()
    assert row[:3] == pytest.approx((saw["waited"], equal.gpu, saw["free_gpus"]))
    expected = msgspec.structs.astuple(BASELINE(job, cluster))
    assert msgspec.structs.astuple(baseline_shares(row)) == pytest.approx(expected, abs=1e-6)
    around = PolicyInputs(answer_columns("equal-share+smallest-area-first")).row(question)
    assert around == pytest.approx(msgspec.structs.astuple(equal))


def test_features_are_declared_once_each_with_its_meaning() -> None:
    assert len(set(FEATURES)) == len(FEATURES)
    assert all(feature.meaning and ":" not in feature.name for feature in DECLARED)
    assert [name.removeprefix("weight_") for name in WEIGHT_FEATURES] == list(TERM_NAMES)
    assert not PolicyInputs().missing()


@given(job_views(), cluster_views())
def test_the_objective_is_among_the_features(job: JobView, cluster: ClusterView) -> None:
    objective = Weights(energy=0.1)
    saw = encode(job, cluster, objective).by_name()
    assert [saw[name] for name in WEIGHT_FEATURES] == pytest.approx(features_of(objective.array).tolist())


@given(job_views(), cluster_views())
def test_what_was_stored_is_encoded_anew_by_name(job: JobView, cluster: ClusterView) -> None:
    """A newer feature has its default, one that is gone is dropped, a new heuristic was not asked."""
    question = encode(job, cluster)
    names = (*FEATURES[5:], "moon_phase")
    values = np.append(question.features[5:], np.float32(0.5)).tobytes()
    answers = {name: shares for name, shares in question.alternatives.items() if not name.startswith("equal-share")}
    again = recalled(names, values, answers)
    assert again is not None
    assert (again.features[:5] == [feature.default for feature in DECLARED[:5]]).all()
    assert (again.features[5:] == question.features[5:]).all()
    assert again.alternatives == answers


NAMES_OF_0_1_HEURISTICS = {name.rpartition(":")[0] for name in NAMES_OF_0_1 if ":" in name}


@given(job_views(), cluster_views())
def test_what_rlalloc_0_1_stored_is_encoded_anew(job: JobView, cluster: ClusterView) -> None:
    """Its observations held the heuristics' answers: two shares of each, and all of the baseline's at the end."""
    question = encode(job, cluster)
    values = PolicyInputs(NAMES_OF_0_1).row(question)
    again = recalled(NAMES_OF_0_1, values.tobytes(), None)
    assert again is not None
    known = [place for place, name in enumerate(FEATURES) if name in NAMES_OF_0_1]
    assert (again.features[known] == question.features[known]).all()
    assert again.alternatives.keys() == NAMES_OF_0_1_HEURISTICS
    for name, shares in again.alternatives.items():
        expected = msgspec.structs.astuple(question.alternatives[name])
        assert msgspec.structs.astuple(shares) == pytest.approx(expected, abs=1e-6)
    stored, answers = as_stored(NAMES_OF_0_1, values.tobytes(), None)
    assert set(stored) == {name for name in NAMES_OF_0_1 if ":" not in name}
    assert set(answers) <= set(SERVED_HEURISTICS)
    assert (PolicyInputs(NAMES_OF_0_1).row(again) == values).all()


@given(job_views(), cluster_views(), st.floats(0.0, 1e5), st.integers(0, 64))
def test_jobs_that_are_alike_share_what_does_not_depend_on_who_waits_for_how_long(
    job: JobView, cluster: ClusterView, waited_s: float, gpus: int
) -> None:
    encode(job, cluster)
    other = msgspec.structs.replace(job, waited_s=waited_s, user_running_gpus=gpus)
    beside, alone = encode(other, cluster), encode(other, dataclasses.replace(cluster))
    assert beside.by_name() == alone.by_name()
    assert beside.alternatives == alone.alternatives


@pytest.mark.parametrize("values", [b"", b"1234"])
def test_what_cannot_be_read_is_not_encoded(values: bytes) -> None:
    assert recalled(FEATURES, values, None) is None


def test_a_decision_of_heuristics_that_are_gone_is_not_encoded() -> None:
    values = np.zeros(len(FEATURES), "<f4").tobytes()
    assert recalled(FEATURES, values, {"gone": Shares(0.5, 0.5, 0.5, 0.5)}) is None
    assert recalled(FEATURES, values, {BASELINE_NAME: Shares(0.5, 0.5, 0.5, 0.5)}) is not None


@given(job_views(), cluster_views())
def test_a_new_heuristic_changes_no_feature_and_no_network(job: JobView, cluster: ClusterView) -> None:
    before = encode(job, cluster)
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(SERVED_HEURISTICS, "largest", largest)
        after = encode(job, dataclasses.replace(cluster))
        assert after.alternatives["largest"] == largest(job, cluster)
        assert (after.features == before.features).all()
        assert (PolicyInputs().row(after) == PolicyInputs().row(before)).all()
        again = recalled(FEATURES, before.features.tobytes(), before.alternatives)
        assert again is not None
        assert again.alternatives == before.alternatives


@given(job_views(), cluster_views())
def test_a_new_feature_changes_no_network(job: JobView, cluster: ClusterView) -> None:
    before = EncodedBatch.of([encode(job, cluster)])
    names = ("moon_phase", *before.feature_names)
    features = np.column_stack((np.array([0.7], np.float32), before.features))
    after = before._replace(feature_names=names, features=features)
    assert (PolicyInputs().rows(after) == PolicyInputs().rows(before)).all()


def test_stored_features_are_known_by_a_number_that_follows_from_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (
        observation.schema_id(FEATURES) == observation.SCHEMA_ID != observation.schema_id((*FEATURES, "moon_phase"))
    )
    assert 0 < observation.SCHEMA_ID < 2**31  # the column is a signed integer


@pytest.fixture(scope="module")
def any_question() -> tuple[JobView, ClusterView]:
    """A job and a cluster of four nodes: the simplest that hypothesis finds, which takes seconds."""
    return find(job_views(), lambda _: True), find(cluster_views(), lambda each: len(each.free) == 4)


@pytest.mark.parametrize(
    ("pool", "expected"),
    [
        ({}, (0, 0, 0, 0)),
        ({"gpu_types": ("h100",), "cluster_nodes": 16}, (0.37, 0, -0.25, 0)),
        ({"gpu_types": ("a100", "h100")}, (0.185, 0, 0, 0)),
        ({"gpu_types": ("v100",)}, (-0.351, -0.441, 0, 0)),
        ({"gpu_types": ("v100", "unheard-of")}, (0, 0, 0, 0)),
        ({"gpu_types": ("1g.10gb",), "device": Device("mig", "1g.10gb")}, (0, -1.025, 0, 1)),
        ({"device": Device("shard")}, (0, 0, 0, 1)),
    ],
)
def test_what_the_nodes_are_is_among_the_features(
    pool: dict[str, Any], expected: tuple[float, ...], any_question: tuple[JobView, ClusterView]
) -> None:
    """What is not known is as if it were nothing special; so is what was stored before there were such features."""
    job, view = any_question
    saw = encode(job, dataclasses.replace(view, **pool)).by_name()
    assert [saw[name] for name in POOL_FEATURES] == pytest.approx(expected, abs=0.001)
    old = tuple(name for name in FEATURES if name not in POOL_FEATURES)
    again = recalled(old, np.array([saw[name] for name in old], "<f4").tobytes(), encode(job, view).alternatives)
    assert again is not None
    assert again.by_name() == saw | dict.fromkeys(POOL_FEATURES, 0.0)
