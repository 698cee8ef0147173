"""The terms of the objective, each alone; their weighted sum; and what the policy is told of the weights."""

import math
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlalloc.objective import (
    DEFAULT_WEIGHTS,
    TERM_NAMES,
    TERMS,
    Consequences,
    PowerModel,
    Resources,
    Weights,
    costs_of,
)
from rlalloc.objective.terms import Setting
from rlalloc.objective.weights import features_of, relative
from rlalloc.reward import WORST_REWARD, rewards

CLUSTER = Setting(Resources(gpus=64, cpus=640, mem_mib=6_400_000), PowerModel(gpu_busy_w=400, gpu_idle_w=100))
JOB = {
    "serving": 0.0,
    "jct_s": 660.0,
    "wait_s": 60.0,
    "others_s": 40.0,
    "reference_s": 940.0,
    "run_time_s": 600.0,
    "slowdown": 1.5,
    "nodes": 2.0,
    "gpus": 16.0,
    "gpu_s": 9600.0,
    "cpu_s": 192_000.0,
    "mem_mib_s": 960_000_000.0,
    "gpu_s_used": 6000.0,
    "cpu_s_used": 96_000.0,
    "mem_mib_s_used": 240_000_000.0,
    "user_gpus": 8.0,
    "energy_j": math.nan,
    "out_of_memory": 0.0,
    "timeout": 0.0,
}
UNKNOWN = ("gpu_s_used", "cpu_s_used", "mem_mib_s_used", "user_gpus", "energy_j")


def cost(term: str, **changes: float) -> float:
    return float(TERMS[term](Consequences.of_one(**JOB | changes), CLUSTER)[0])


@pytest.mark.parametrize(
    ("term", "seconds"),
    [
        ("jct", 660 + 40),
        ("wait", 60 + 40),
        ("slowdown", 600 * max(1, 700 / 940)),
        ("gpu_held", 16 * 600),
        ("cpu_held", 192_000 / 10),  # the cluster has ten CPUs a GPU
        ("mem_held", 9600),
        ("gpu_waste", 9600 - 6000),
        ("cpu_waste", 96_000 / 10),
        ("mem_waste", 7200),
        ("energy", (6000 * 400 + 3600 * 100) / 400),
        ("latency", 0),
        ("network", 600),
        ("fairness", 9600 * (8 + 8) / 64),
        ("out_of_memory", 0),
        ("timeout", 0),
    ],
)
def test_each_term_by_hand(term: str, seconds: float) -> None:
    assert cost(term) == pytest.approx(seconds)


def test_every_term_has_a_weight() -> None:
    assert tuple(TERMS) == TERM_NAMES


def test_slowdown_is_bounded() -> None:
    assert cost("slowdown", reference_s=1, jct_s=20, others_s=0) == 600 * 2
    assert cost("slowdown", reference_s=1e6) == 600


def test_accounted_energy_counts_before_the_power_model() -> None:
    assert cost("energy", energy_j=8000) == 20
    assert cost("energy", energy_j=math.nan, gpu_s_used=9600) == 9600


def test_latency_is_of_serving_jobs() -> None:
    """Half as fast again as asked: a third of each of 600 s is waited longer, after 60 s without any answer."""
    assert cost("latency", serving=1) == pytest.approx(60 + 600 / 3)
    assert cost("latency", serving=1, slowdown=0.5) == 60


def test_one_node_has_no_traffic() -> None:
    assert cost("network", nodes=1) == 0
    assert cost("network", nodes=3) == 2 * cost("network", nodes=2)


def test_fairness_is_the_growth_of_the_squares() -> None:
    """Two jobs of one user, one after the other, and both together: together adds the same to ½ Σ held² (per GPU)."""
    one = cost("fairness", user_gpus=0, gpus=8, gpu_s=8 * 600)
    second = cost("fairness", user_gpus=8, gpus=8, gpu_s=8 * 600)
    both = cost("fairness", user_gpus=0, gpus=16, gpu_s=16 * 600)
    assert one + second == pytest.approx(both)
    assert second > cost("fairness", user_gpus=0, gpus=8, gpu_s=8 * 600)


@pytest.mark.parametrize("term", ["out_of_memory", "timeout"])
def test_a_kill_costs_more_than_waiting_for_it_all_again(term: str) -> None:
    assert cost(term, **{term: 1.0}) == 5 * (60 + 940)


@pytest.mark.parametrize("term", TERM_NAMES)
@given(values=st.lists(st.floats(0, 1e7), min_size=len(JOB), max_size=len(JOB)), unknown=st.booleans())
def test_costs_are_never_negative(term: str, values: list[float], unknown: bool) -> None:
    job = dict(zip(JOB, values, strict=True))
    if unknown:
        job |= dict.fromkeys(UNKNOWN, math.nan)
    assert not TERMS[term](Consequences.of_one(**job), CLUSTER)[0] < 0


def test_costs_are_columns_of_the_terms_asked_for() -> None:
    jobs = Consequences.of_one(**JOB)
    assert costs_of(jobs, CLUSTER).shape == (1, len(TERM_NAMES))
    assert costs_of(jobs, CLUSTER, ("wait", "jct")).tolist() == [[100, 700]]
    assert len(jobs.rows(np.array([False]))) == 0
    assert replace(jobs, jct_s=np.array([1.0])).jct_s[0] == 1


class TestReward:
    COSTS = np.array([[0.7, 0.1, *[math.nan] * (len(TERM_NAMES) - 2)]])

    def reward(self, **weights: float) -> float:
        given = dict.fromkeys(TERM_NAMES, 0.0) | weights
        return float(rewards(-self.COSTS, Weights(**given).array)[0])

    def test_it_is_the_weighted_sum_over_the_largest_weight(self) -> None:
        assert self.reward(jct=1) == pytest.approx(-0.7)
        assert self.reward(jct=1, wait=1) == pytest.approx(-0.8)
        assert self.reward(jct=2, wait=4) == self.reward(jct=0.5, wait=1) == pytest.approx(-0.45)

    def test_what_is_not_known_counts_only_where_it_has_a_weight(self) -> None:
        assert math.isnan(self.reward(jct=1, energy=0.1))
        assert not math.isnan(self.reward(jct=1))

    def test_each_row_may_have_weights_of_its_own(self) -> None:
        costs = np.array([[1.0, 2.0], [1.0, 2.0]])
        assert rewards(-costs, np.array([[1.0, 0.0], [0.0, 3.0]])).tolist() == [-1, -2]

    def test_bounded(self) -> None:
        assert rewards(np.array([[-1e9], [1e9]]), np.array([1.0])).tolist() == [WORST_REWARD, -WORST_REWARD]

    @pytest.mark.parametrize("killed", ["out_of_memory", "timeout"])
    def test_by_default_a_killed_job_is_the_worst(self, killed: str) -> None:
        jobs = Consequences.of_one(**JOB | {killed: 1.0})
        scaled = costs_of(jobs, CLUSTER) / jobs.scale_s[:, None]
        assert rewards(-scaled, DEFAULT_WEIGHTS.array)[0] == WORST_REWARD

    def test_by_default_it_is_completion_time_and_price(self) -> None:
        jobs = Consequences.of_one(**JOB)
        scaled = costs_of(jobs, CLUSTER) / jobs.scale_s[:, None]
        assert rewards(-scaled, DEFAULT_WEIGHTS.array)[0] == pytest.approx(-(660 + 40) / (60 + 940))


class TestWeights:
    def test_only_ratios_are_shown(self) -> None:
        some = Weights(jct=1, energy=0.1)
        tenfold = Weights(jct=10, energy=1, out_of_memory=10, timeout=10)
        np.testing.assert_array_equal(features_of(some.array), features_of(tenfold.array))

    def test_a_factor_of_ten_is_a_third(self) -> None:
        shown = dict(zip(TERM_NAMES, features_of(Weights(jct=1, wait=0.1, energy=0.01).array), strict=True))
        assert (shown["jct"], shown["slowdown"]) == (1, 0)
        assert shown["wait"] == pytest.approx(2 / 3)
        assert shown["energy"] == pytest.approx(1 / 3)

    def test_none_at_all_is_refused(self) -> None:
        with pytest.raises(ValueError, match="at least one"):
            relative(np.zeros(3))

    def test_a_term_that_is_not_there_is_refused(self) -> None:
        with pytest.raises(msgspec.ValidationError, match="sped"):
            msgspec.convert({"sped": 1.0}, Weights)
