"""A profile raises the floors of memory and CPUs of the jobs that it names, and lowers none."""

from collections.abc import Mapping

import msgspec
import pytest

from rlalloc.bounds import Directives
from rlalloc.job import Allocation
from rlalloc.speed.profile_file import AppliesTo, Profile, ProfilePoint, Size
from rlalloc.usage.past_bounds import NO_NEEDS
from rlalloc.usage.profiled_needs import ProfiledFloors, floors_of_profile
from tests.core.profiles import measured, profile
from tests.core.usage.test_past_bounds import KILL, NEEDS, bounds

Row = tuple[int, int, int]
"""GPUs, nodes and CPUs per GPU of a point."""


def profiled(points: Mapping[Row, tuple[int, float]]) -> Profile:
    """With the peak of a node [MiB] and the stalled part of the time in each point."""
    made = (
        ProfilePoint(
            size=Size(gpus=gpus, nodes=nodes, cpus_per_gpu=cpus),
            outcome="measured",
            measured=measured(1e4, stalled=stalled, host_mem_mib=mib),
        )
        for (gpus, nodes, cpus), (mib, stalled) in points.items()
    )
    return msgspec.structs.replace(profile(0.9, AppliesTo(jobs=("train*",))), points=tuple(made))


MEMORY = profiled({(2, 1, 4): (20_000, 0.0), (4, 1, 4): (30_000, 0.0), (8, 2, 4): (33_000, 0.0)})


@pytest.mark.parametrize(
    ("gpus_per_node", "node_mib"),
    [(1, 20_000), (2, 20_000), (3, 26_500), (4, 33_000), (8, 66_000)],
    ids=["fewer than measured", "measured", "between", "the higher of two", "more than measured"],
)
def test_memory_is_that_of_a_node_with_as_many_gpus(gpus_per_node: int, node_mib: float) -> None:
    request = Allocation(1, gpus_per_node, 1, 8, 400_000, 3600)
    assert floors_of_profile(MEMORY, request, 0.0).node_mib == pytest.approx(node_mib)
    assert floors_of_profile(MEMORY, request, 0.2).node_mib == pytest.approx(1.2 * node_mib)


@pytest.mark.parametrize(
    ("stalls", "enough"),
    [
        ({1: 0.4, 2: 0.1, 4: 0.03, 8: 0.02}, 4),
        ({1: 0.01, 2: 0.0, 4: 0.02}, 1),
        ({1: 0.5, 2: 0.4, 4: 0.3}, 4),
        ({1: 0.0, 2: 0.3, 4: 0.0}, 4),
        ({4: 0.0}, None),
    ],
    ids=["until stalls are short", "one is enough", "the most measured", "after the last stall", "one count"],
)
def test_cpus_are_as_many_as_keep_the_data_loader_from_stalling(stalls: dict[int, float], enough: int | None) -> None:
    """Of all layouts the one that needs the most counts."""
    one = {(1, 1, cpus): (6000, stalled) for cpus, stalled in stalls.items()}
    calm = {(2, 1, cpus): (6000, 0.0) for cpus in stalls}
    assert floors_of_profile(profiled({**calm, **one}), Allocation(1, 8, 1, 64, 1, 60), 0.1).cpus_per_gpu == enough


def test_points_that_failed_say_nothing() -> None:
    failed = ProfilePoint(size=Size(gpus=1, nodes=1, cpus_per_gpu=1), outcome="failed")
    nothing = msgspec.structs.replace(MEMORY, points=(failed,))
    assert floors_of_profile(nothing, Allocation(1, 8, 1, 64, 1, 60), 0.1) == ProfiledFloors(MEMORY.name, None, None)


def test_a_profile_raises_what_past_jobs_say_and_never_beyond_the_request() -> None:
    higher = bounds(NEEDS._replace(profiled=ProfiledFloors("p", 300_000.0, 5)))
    assert (higher.mem_mib_per_gpu.minimum, higher.mem_mib_per_gpu.minimum_from) == (37_500.0, "profile")
    assert (higher.cpus_per_gpu.minimum, higher.cpus_per_gpu.minimum_from) == (5.0, "profile")
    assert higher.mem_mib_per_node == 300_000.0
    most = bounds(NEEDS._replace(profiled=ProfiledFloors("p", 9e9, 999)))
    assert most.mem_mib_per_gpu.minimum == most.mem_mib_per_gpu.maximum == 100_000.0
    assert most.cpus_per_gpu.minimum == most.cpus_per_gpu.maximum == 16.0
    assert most.mem_mib_per_node == 800_000.0


def test_a_profile_lowers_nothing() -> None:
    assert bounds(NEEDS._replace(profiled=ProfiledFloors("p", 1000.0, 1))) == bounds()
    alone = bounds(NO_NEEDS._replace(profiled=ProfiledFloors("p", 1000.0, 1)))
    assert alone == msgspec.structs.replace(bounds(NO_NEEDS), mem_mib_per_node=1000.0)
    assert bounds(NEEDS._replace(profiled=ProfiledFloors("p", None, None))) == bounds()


def test_a_profile_respects_declared_cpus_and_raises_declared_memory() -> None:
    declared = Directives(mem_mib_per_gpu=(2_000.0, 50_000.0), cpus_per_gpu=(1.0, 8.0))
    found = bounds(NO_NEEDS._replace(profiled=ProfiledFloors("p", 80_000.0, 4)), directives=declared)
    assert (found.cpus_per_gpu.minimum, found.cpus_per_gpu.minimum_from) == (1.0, "script")
    assert (found.mem_mib_per_gpu.minimum, found.mem_mib_per_gpu.minimum_from) == (10_000.0, "profile")


def test_after_a_kill_the_request_stays() -> None:
    killed = NEEDS._replace(kill=KILL)
    assert bounds(killed._replace(profiled=ProfiledFloors("p", 300_000.0, 5))) == bounds(killed)
