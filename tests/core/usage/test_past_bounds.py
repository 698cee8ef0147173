"""What like jobs used as the floors of bounds: never below what was declared; the request after a kill."""

import msgspec
import pytest

from rlalloc.allocation import size_for
from rlalloc.bounds import Directives, NodeShape, SiteBounds, bounds_for
from rlalloc.job import Allocation, Bounds, Shares
from rlalloc.scripts.consent import NO_CONSENT, Consent
from rlalloc.usage.family_kills import Kill
from rlalloc.usage.past_bounds import NO_NEEDS, KnownNeeds, with_past_needs
from rlalloc.usage.past_usage import Floor, PastFloors

REQUEST = Allocation(1, 8, 1, 128, 800_000, 3600)
SHAPE = NodeShape(8, 128, 1_000_000)
NEEDS = KnownNeeds(PastFloors(Floor(200_000.0, "name", 20, 0.2), Floor(2.4, "name", 20, 0.3)))
KILL = Kill(41, "out-of-memory", 1000.0, 4)


def bounds(
    needs: KnownNeeds = NEEDS,
    directives: Directives = Directives(),  # noqa: B008
    site: SiteBounds = SiteBounds(),  # noqa: B008
    consent: Consent = NO_CONSENT,
) -> Bounds:
    made = bounds_for(REQUEST, directives, site, SHAPE)
    return with_past_needs(made, REQUEST, directives, consent, needs)


def test_without_a_past_nothing_changes() -> None:
    assert bounds(NO_NEEDS) == bounds_for(REQUEST, Directives(), SiteBounds(), SHAPE)


def test_a_past_that_used_next_to_no_cpus_leaves_one_per_gpu() -> None:
    """Jobs that only sleep: a floor of 0 has no logarithm."""
    found = bounds(KnownNeeds(PastFloors(None, Floor(5e-7, "name", 20, 0.3))))
    assert found.cpus_per_gpu.minimum == 1.0


def test_the_past_is_the_floor_where_nothing_was_declared() -> None:
    found = bounds()
    assert (found.mem_mib_per_gpu.minimum, found.mem_mib_per_gpu.minimum_from) == (25_000.0, "past jobs")
    assert (found.cpus_per_gpu.minimum, found.cpus_per_gpu.minimum_from) == (3.0, "past jobs")
    assert (found.mem_mib_per_gpu.maximum, found.cpus_per_gpu.maximum) == (100_000.0, 16.0)
    assert found.past == (
        "20 jobs of this user with this name and a margin of 20%: 195.3 GiB a node; "
        "20 jobs of this user with this name and a margin of 30%: 2.4 CPUs/GPU"
    )


def test_it_never_lowers_what_was_declared_and_raises_the_least_memory() -> None:
    declared = Directives(mem_mib_per_gpu=(50_000.0, 90_000.0), cpus_per_gpu=(6.0, 8.0))
    found = bounds(directives=declared)
    assert (found.mem_mib_per_gpu.minimum, found.mem_mib_per_gpu.minimum_from) == (50_000.0, "script")
    assert (found.cpus_per_gpu.minimum, found.cpus_per_gpu.minimum_from) == (6.0, "script")
    low = bounds(directives=Directives(mem_mib_per_gpu=(2_000.0, 20_000.0)))
    assert (low.mem_mib_per_gpu.minimum, low.mem_mib_per_gpu.maximum) == (20_000.0, 20_000.0)


def test_a_floor_of_the_site_stays_where_it_is_higher() -> None:
    found = bounds(site=SiteBounds(min_cpus_per_gpu=8.0, min_mem_mib_per_gpu=10_000.0))
    assert (found.cpus_per_gpu.minimum, found.cpus_per_gpu.minimum_from) == (8.0, "site")
    assert (found.mem_mib_per_gpu.minimum, found.mem_mib_per_gpu.minimum_from) == (25_000.0, "past jobs")


def test_a_script_that_states_sizes_keeps_them() -> None:
    fixed = msgspec.structs.replace(NO_CONSENT, cpus_fixed=True, memory_fixed=True)
    assert bounds(consent=fixed) == bounds(NO_NEEDS)


def test_a_floor_above_the_request_is_the_request() -> None:
    found = bounds(KnownNeeds(PastFloors(Floor(2e6, "name", 20, 0.2), Floor(99.0, "name", 20, 0.3))))
    assert found.mem_mib_per_gpu.minimum == found.mem_mib_per_gpu.maximum == 100_000.0
    assert found.cpus_per_gpu.minimum == found.cpus_per_gpu.maximum == 16.0


def test_nor_is_it_above_the_request_where_more_was_declared() -> None:
    """A job that would fit a node as requested must not wait for more memory than its user asked for."""
    much = KnownNeeds(PastFloors(Floor(2e6, "name", 20, 0.2), None))
    found = bounds(much, Directives(mem_mib_per_gpu=(8_000.0, 120_000.0))).mem_mib_per_gpu
    assert (found.minimum, found.maximum) == (100_000.0, 120_000.0)


@pytest.mark.parametrize("gpu_share", [0.0, 0.5, 1.0])
def test_with_fewer_gpus_a_node_keeps_the_memory_that_like_jobs_held_on_it(gpu_share: float) -> None:
    """How much of it belongs to the node and how much to each GPU is not known."""
    found = bounds(directives=Directives(gpus=(1, 8)))
    size = size_for(Shares(gpu_share, 0.0, 0.0), REQUEST, found, SHAPE)
    assert size.mem_mib_per_node >= 200_000
    without = size_for(Shares(0.0, 0.0, 0.0), REQUEST, bounds(NO_NEEDS, Directives(gpus=(1, 8))), SHAPE)
    assert without.mem_mib_per_node == 100_000


def test_after_a_kill_the_request_is_the_least_of_everything() -> None:
    directives = Directives(gpus=(1, 8), mem_mib_per_gpu=(1024.0, 100_000.0), cpus_per_gpu=(1.0, 16.0))
    found = bounds(KnownNeeds(NEEDS.floors, KILL, 4), directives)
    assert found.gpu_counts == (8,)
    assert found.mem_mib_per_gpu.minimum == 100_000.0
    assert found.cpus_per_gpu.minimum == 16.0
    assert "job 41 ended by out-of-memory" in found.past
    assert size_for(Shares(0.0, 0.0, 0.0), REQUEST, found, SHAPE) == REQUEST


def test_counts_with_which_a_gpus_memory_was_too_small_stay_out() -> None:
    found = bounds(KnownNeeds(gpus_too_few=2), Directives(gpus=(1, 8)))
    assert found.gpu_counts == (4, 8)
    assert (found.gpus.minimum, found.gpus.minimum_from) == (4, "past jobs")
