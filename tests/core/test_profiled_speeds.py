"""What a profile says of the job that it names, of other jobs on such GPUs, and of all the rest."""

import msgspec
import numpy as np
import pytest

from rlalloc.speed.cpus_needed import CPUS_NEEDED
from rlalloc.speed.family_speeds import FamilySpeeds
from rlalloc.speed.longer_limits import slowdown_to_allow, slowdowns
from rlalloc.speed.profile_file import AppliesTo
from rlalloc.speed.speed_belief import SpeedBelief
from rlalloc.speed.speed_prior import PRIOR_BELIEF
from tests.core.profiles import on_cpus, profile
from tests.core.test_family_speeds import ASKED, runs, size

NAMED = AppliesTo(jobs=("train-7b*",), users=("ann",))
A100 = AppliesTo(gpu_types=("a100*",))


def median(belief: SpeedBelief, gpus: int = 8) -> float:
    return float(np.median(slowdowns(ASKED, size(gpus), belief)))


@pytest.mark.parametrize("exponent", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_a_named_job_scales_as_the_profile_was_measured(exponent: float) -> None:
    speeds = FamilySpeeds([profile(exponent, NAMED)])
    known = speeds.of("ann", "train-7b_9", ASKED)
    assert median(known.belief) == pytest.approx(4**exponent, rel=0.05)
    assert 4**exponent <= slowdown_to_allow(ASKED, size(8), known.belief) <= 4.0
    assert known.source == "profile gpt-25m-a100, which names it"


def test_other_names_users_and_gpus_get_the_prior() -> None:
    speeds = FamilySpeeds([profile(0.1, NAMED), profile(0.1, A100)])
    for user, name, types in (
        ("bob", "train-7b_9", ()),
        ("ann", "serve", ("h100",)),
        ("ann", "serve", ("a100-80", "h100")),  # the partition has both
        ("ann", "serve", ()),
    ):
        assert speeds.of(user, name, ASKED, types).belief is PRIOR_BELIEF


def test_others_on_such_gpus_move_towards_the_profile_and_stay_uncertain() -> None:
    speeds = FamilySpeeds([profile(0.1, A100)])
    other = speeds.of("ann", "serve", ASKED, ("a100-80",))
    named = FamilySpeeds([profile(0.1, AppliesTo(jobs=("serve",)))]).of("ann", "serve", ASKED)
    assert median(named.belief) < median(other.belief) < median(PRIOR_BELIEF)
    spread, least = np.diag(other.belief.covariance), 0.75 * np.diag(PRIOR_BELIEF.covariance)
    assert np.all(spread >= least - 1e-9)
    assert other.belief.cpus == PRIOR_BELIEF.cpus
    assert "another model" in other.source


def test_what_was_measured_on_cpus_says_nothing_of_other_jobs() -> None:
    both = msgspec.structs.replace(NAMED, gpu_types=("a100",))
    speeds = FamilySpeeds([on_cpus(profile(0.1, both))])
    assert speeds.of("ann", "serve", ASKED, ("a100",)).belief is PRIOR_BELIEF
    assert speeds.of("ann", "train-7b", ASKED, ("a100",)).belief is not PRIOR_BELIEF


def test_a_named_one_comes_first_and_then_the_newest() -> None:
    speeds = FamilySpeeds(
        [
            profile(0.1, NAMED, name="old", created_s=1.0),
            profile(0.9, NAMED, name="new", created_s=2.0),
            profile(0.5, A100, name="type", created_s=3.0),
        ]
    )
    assert speeds.of("ann", "train-7b", ASKED, ("a100",)).source == "profile new, which names it"


def test_one_size_says_nothing_of_scaling() -> None:
    speeds = FamilySpeeds([profile(0.1, NAMED, counts=(8,)), profile(0.1, A100, counts=(8,))])
    np.testing.assert_array_equal(speeds.of("ann", "train-7b", ASKED).belief.mean, PRIOR_BELIEF.mean)
    assert speeds.of("ann", "serve", ASKED, ("a100",)).belief is PRIOR_BELIEF


def test_own_runs_count_on_top_of_the_profile_and_a_kill_takes_both_away() -> None:
    speeds = FamilySpeeds([profile(0.3, NAMED)])
    before = median(speeds.of("ann", "train-7b_9", ASKED).belief)
    for run in runs(0.95):
        speeds.add(run)
    after = speeds.of("ann", "train-7b_9", ASKED)
    assert median(after.belief) > 1.5 * before
    assert after.source == "16 of its own runs, on top of profile gpt-25m-a100, which names it"
    speeds.add(runs(0.1)[1]._replace(job=(9999, 9), timed_out=True))
    assert speeds.of("ann", "train-7b_9", ASKED).belief is PRIOR_BELIEF


def test_other_profiles_take_the_place_of_those_of_before() -> None:
    speeds = FamilySpeeds([profile(0.1, NAMED)])
    first = median(speeds.of("ann", "train-7b", ASKED).belief)
    speeds.use([profile(0.9, NAMED)])
    assert median(speeds.of("ann", "train-7b", ASKED).belief) > first
    speeds.use([])
    assert speeds.of("ann", "train-7b", ASKED).belief is PRIOR_BELIEF


@pytest.mark.parametrize("needed", [2.0, 6.0])
def test_points_with_fewer_cpus_say_how_many_a_gpu_needs(needed: float) -> None:
    speeds = FamilySpeeds([profile(0.5, NAMED, cpus_needed=needed)])
    cpus = speeds.of("ann", "train-7b", ASKED).belief.cpus
    assert cpus.median == pytest.approx(needed, rel=0.1)
    fewer = msgspec.structs.replace(ASKED, cpus_per_task=8)  # one a GPU
    assert np.median(slowdowns(ASKED, fewer, speeds.of("ann", "train-7b", ASKED).belief)) == pytest.approx(
        needed, rel=0.15
    )


def test_one_count_of_cpus_says_nothing_of_what_is_needed() -> None:
    cpus = FamilySpeeds([profile(0.5, NAMED, cpus=(4,))]).of("ann", "train-7b", ASKED).belief.cpus
    assert cpus.median == pytest.approx(CPUS_NEEDED.median, rel=0.01)
    assert cpus.spread == pytest.approx(CPUS_NEEDED.spread, rel=0.01)


def test_speed_that_does_not_grow_with_cpus_lowers_what_is_needed() -> None:
    cpus = FamilySpeeds([profile(0.5, NAMED, cpus_needed=0.1)]).of("ann", "train-7b", ASKED).belief.cpus
    assert cpus.median < CPUS_NEEDED.median


def test_a_slowdown_is_never_flat_nor_more_than_in_proportion() -> None:
    for exponent in (-0.5, 1.5):
        belief = FamilySpeeds([profile(exponent, NAMED)]).of("ann", "train-7b", ASKED).belief
        assert 1.0 < slowdown_to_allow(ASKED, size(8), belief) <= 4.0 + 1e-9


@pytest.mark.parametrize("counts", [(1, 2, 4, 8), (8, 16, 32), (16, 32, 64), (4, 64)])
@pytest.mark.parametrize("exponent", [0.3, 0.7, 0.95])
def test_sizes_beyond_the_measured_ones_are_not_taken_to_be_cheap(exponent: float, counts: tuple[int, ...]) -> None:
    """A job that scales with a power of its GPUs is not killed at its limit, wherever the profile was measured."""
    belief = FamilySpeeds([profile(exponent, NAMED, counts=counts)]).of("ann", "train-7b", ASKED).belief
    for gpus in (2, 4, 8, 16):
        assert slowdown_to_allow(ASKED, size(gpus), belief) >= (32 / gpus) ** exponent
