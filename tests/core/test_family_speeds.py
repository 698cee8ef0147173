"""What a family's own runs say of how it scales."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlalloc.job import Allocation
from rlalloc.speed import family_speeds
from rlalloc.speed.family_speeds import RUNS, FamilySpeeds, SizedRun
from rlalloc.speed.longer_limits import slowdown_to_allow, slowdowns
from rlalloc.speed.speed_prior import PRIOR_BELIEF


def size(gpus: int) -> Allocation:
    return Allocation(max(1, gpus // 8), min(gpus, 8), 1, 8 * min(gpus, 8), 1024, 3600)


ASKED = size(32)


def runs(exponent: float, counts: tuple[int, ...] = (32, 8), each: int = 8, name: str = "train-7b") -> list[SizedRun]:
    """Runs whose speed is a power of the GPUs, with the spread of like jobs."""
    generator = np.random.default_rng(0)
    spread = np.exp(0.2 * generator.standard_normal((each, len(counts))))
    return [
        SizedRun(
            (100 * turn + gpus, 0),
            "ann",
            f"{name}_{turn}",
            ASKED,
            gpus,
            max(1, gpus // 8),
            3600 * (32 / gpus) ** exponent * factor,
        )
        for turn, factors in enumerate(spread.tolist())
        for gpus, factor in zip(counts, factors, strict=True)
    ]


def told(these: list[SizedRun]) -> FamilySpeeds:
    speeds = FamilySpeeds()
    for run in these:
        speeds.add(run)
    return speeds


@pytest.mark.parametrize("exponent", [0.1, 0.5, 0.95])
def test_the_expectation_moves_to_what_the_family_showed(exponent: float) -> None:
    belief = told(runs(exponent)).of("ann", "train-7b_9", ASKED).belief
    assert np.median(slowdowns(ASKED, size(8), belief)) == pytest.approx(4**exponent, rel=0.35)
    assert slowdown_to_allow(ASKED, size(8), belief) >= 4**exponent


def test_what_scales_badly_needs_a_shorter_limit_and_a_little_is_not_enough() -> None:
    prior, much, little = (
        slowdown_to_allow(ASKED, size(8), told(seen).of("ann", "train-7b_9", ASKED).belief)
        for seen in ([], runs(0.1), runs(0.1, each=1))
    )
    assert much < little < prior


def test_another_family_and_one_size_say_nothing() -> None:
    speeds = told(runs(0.1))
    for other in (("bob", "train-7b_9", ASKED), ("ann", "serve", ASKED), ("ann", "train-7b_9", size(16))):
        assert speeds.of(*other).belief is PRIOR_BELIEF
    assert told(runs(0.1, counts=(8,))).of("ann", "train-7b_9", ASKED).belief is PRIOR_BELIEF


def test_a_time_out_in_a_smaller_size_brings_back_the_prior() -> None:
    killed = SizedRun((1, 0), "ann", "train-7b_3", ASKED, 8, 1, 9000.0, timed_out=True)
    assert told([*runs(0.1), killed]).of("ann", "train-7b_9", ASKED).belief is PRIOR_BELIEF
    as_asked = killed._replace(gpus=32, nodes=4)
    assert told([*runs(0.1), as_asked]).of("ann", "train-7b_9", ASKED).belief is not PRIOR_BELIEF


def test_a_run_that_is_told_again_counts_once() -> None:
    once, again = (
        told(runs(0.1, each=1) * times).of("ann", "train-7b_9", ASKED).belief.covariance for times in (1, 5)
    )
    np.testing.assert_array_equal(once, again)


def test_odd_runs_are_left_out() -> None:
    odd = [SizedRun((1, 0), "ann", "x", ASKED, 0, 1, 60.0), SizedRun((2, 0), "ann", "x", ASKED, 8, 1, 0.0)]
    assert told(odd).of("ann", "x", ASKED).belief is PRIOR_BELIEF


@given(st.lists(st.tuples(st.sampled_from([1, 2, 8, 32, 128, 4096]), st.floats(1e-3, 1e9)), min_size=1, max_size=20))
def test_wild_run_times_leave_a_belief_that_can_be_used(wild: list[tuple[int, float]]) -> None:
    seen = [
        SizedRun((place, 0), "ann", "x", ASKED, gpus, max(1, gpus // 8), run_s)
        for place, (gpus, run_s) in enumerate(wild)
    ]
    allowed = slowdown_to_allow(ASKED, size(8), told(seen).of("ann", "x", ASKED).belief)
    assert 1.0 < allowed <= 4.0 + 1e-9


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(family_speeds, "FAMILIES", 2)
    speeds = told([*runs(0.1, name="first"), *runs(0.1, name="second"), *runs(0.1, name="third")])
    assert speeds.of("ann", "first_9", ASKED).belief is PRIOR_BELIEF
    assert speeds.of("ann", "third_9", ASKED).belief is not PRIOR_BELIEF
    # Old runs in another size are forgotten once there are enough new ones.
    for number in range(RUNS):
        speeds.add(SizedRun((number, 1), "ann", "third_9", ASKED, 32, 4, 3600.0))
    assert speeds.of("ann", "third_9", ASKED).belief is PRIOR_BELIEF
