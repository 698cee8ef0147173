"""Which type of GPU pays for a job that names none, in cases that can be followed by hand."""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
import pytest

from rlalloc.bounds import Directives, NodeShape, SiteBounds, bounds_for
from rlalloc.heuristics import known_gain
from rlalloc.heuristics.known_gain import LEAST_GAIN
from rlalloc.heuristics.type_choice import Offered, TypeChoice, chosen_type
from rlalloc.heuristics.workable_sizes import sizes_with_memory
from rlalloc.job import Allocation, JobView, Shares
from rlalloc.speed.type_speeds import BUILT_IN, TypeSpeeds
from rlalloc.view import ClusterView

REQUEST = Allocation(1, 4, 1, 32, 128_000, 10_000)
SHAPE = NodeShape(gpus=8, cpus=64, mem_mib=512_000)
WHOLE = np.array([SHAPE.gpus, SHAPE.cpus, SHAPE.mem_mib], dtype=np.float64)


def view(*free_gpus: int, crowd: int = 0, frees_s: float = 600.0) -> ClusterView:
    """A node for each count of free GPUs; the others are free after ``frees_s``. ``crowd`` jobs wait behind."""
    free = np.array([(gpus, SHAPE.cpus, SHAPE.mem_mib) for gpus in free_gpus], dtype=np.float64)
    held = WHOLE[0] * len(free_gpus) - free[:, 0].sum()
    releases = np.array([(frees_s, held, 0, 0)]) if held else np.empty((0, 4))
    return ClusterView(0.0, SHAPE, free, WHOLE * len(free_gpus), releases, np.empty((0, 2)), crowd)


def together(*views: ClusterView) -> ClusterView:
    """The nodes of all views."""
    return ClusterView(
        *(0.0, SHAPE, np.concatenate([each.free for each in views]), sum(each.totals for each in views)),  # type: ignore[arg-type]
        np.concatenate([each.releases for each in views]),
        np.empty((0, 2)),
        max(each.behind for each in views),
    )


def job(low: int = 4, high: int = 4) -> JobView:
    directives = Directives(gpus=(low, high), cpus_per_gpu=(1.0, 8.0), mem_mib_per_gpu=(1024.0, 32_000.0))
    return JobView("train", REQUEST, bounds_for(REQUEST, directives, SiteBounds(), SHAPE), 0.0, 0)


def choose(
    nodes: dict[str, ClusterView],
    one: JobView | None = None,
    allowed: tuple[str, ...] = ("a100", "h100"),
    *,
    answers: Mapping[str, Shares] | None = None,
    speeds: TypeSpeeds = BUILT_IN,
) -> tuple[TypeChoice | None, int]:
    """The type that is chosen, and the GPUs that known gain answers without one."""
    one = one or job()
    plain = Offered(one, dataclasses.replace(together(*nodes.values()), type_speeds=speeds))
    answer = known_gain(*plain)
    sizes = sizes_with_memory(one.request, one.bounds, SHAPE)
    answered = sizes.allocations[sizes.shares.index(answer)]
    typed = {name: Offered(one, each) for name, each in nodes.items()}
    return chosen_type(plain, answered, typed, frozenset(allowed), answers), answered.gpus


def test_a_faster_type_is_chosen_where_both_are_free() -> None:
    chosen, _ = choose({"v100": view(8, 8), "a100": view(8)})
    assert chosen is not None
    assert chosen.name == "a100"
    assert chosen.speed_up == BUILT_IN.speed_up("a100", {"v100": 2.0, "a100": 1.0})
    assert chosen.speed_up.at_least > 1.0 / (1.0 - LEAST_GAIN)


def test_the_fastest_of_several_is_chosen() -> None:
    chosen, _ = choose({"v100": view(8), "a100": view(8), "h100": view(8)})
    assert chosen is not None
    assert chosen.name == "h100"


@pytest.mark.parametrize(
    ("nodes", "allowed"),
    [
        ({"v100": view(8), "a100": view(8)}, ("h100",)),
        ({"v100": view(8), "a100": view(8)}, ("v100",)),
        ({"v100": view(8), "a100": view(2)}, ("a100",)),
        ({"v100": view(2), "a100": view(8)}, ("a100",)),
        ({"v100": view(8), "a100": view(8, crowd=2)}, ("a100",)),
        ({"rtx6000": view(8), "a100": view(8)}, ("a100",)),
        ({"a100": view(8)}, ("a100",)),
        ({"p100": view(8), "v100": view(8)}, ("v100",)),
        ({"v100": view(8), "a100": view(*[8] * 20)}, ("a100",)),
    ],
    ids=[
        *("the site does not allow it", "it is slower", "it could not start there at once"),
        *("Slurm starts it there anyway", "too many wait for that type only", "a type was not measured"),
        *("there is one type", "the gain is not known for certain", "Slurm nearly always starts it there"),
    ],
)
def test_a_job_keeps_its_request_for_any_type_where(nodes: dict[str, ClusterView], allowed: tuple[str, ...]) -> None:
    assert choose(nodes, allowed=allowed)[0] is None


def test_type_and_count_are_chosen_together() -> None:
    """With fast GPUs the job's own time weighs less against what it takes from the others, so that fewer do."""
    moldable = job(low=1, high=8)
    nodes = {"v100": view(8, crowd=1), "h100": view(8, crowd=1)}
    chosen, without = choose(nodes, moldable)
    assert chosen is not None
    sizes = sizes_with_memory(moldable.request, moldable.bounds, SHAPE)
    assert sizes.counts[sizes.shares.index(chosen.shares)] < without
    same, _ = choose(nodes, moldable, answers={})
    assert same is not None
    assert sizes.counts[sizes.shares.index(same.shares)] == without


@pytest.mark.parametrize("count", [1, 2, 8])
def test_of_another_policy_the_counts_on_all_nodes_and_on_the_type_are_compared(count: int) -> None:
    """Known gain would choose fewer GPUs of the type. A count that the policy answers there has to pay as well."""
    moldable = job(low=1, high=8)
    nodes = {"v100": view(8, crowd=1), "h100": view(8, crowd=1)}
    best, without = choose(nodes, moldable)
    assert best is not None
    sizes = sizes_with_memory(moldable.request, moldable.bounds, SHAPE)
    (answer,) = (shares for number, shares in zip(sizes.counts, sizes.shares, strict=True) if number == count)
    chosen, _ = choose(nodes, moldable, answers={"h100": answer})
    assert chosen is not None
    least = sizes.counts[sizes.shares.index(best.shares)]
    assert sizes.counts[sizes.shares.index(chosen.shares)] == (count if count == least else without)


def test_jobs_that_may_run_on_each_type_as_well_speak_against_none() -> None:
    """They lose the same: a GPU that is faster is held for a shorter time, and is worth more."""
    chosen, _ = choose({"v100": view(8, crowd=50), "a100": view(8, crowd=50)})
    assert chosen is not None
    assert chosen.name == "a100"


def test_of_two_types_the_one_is_chosen_for_which_nobody_waits() -> None:
    """For h100 three jobs wait that name it: they would lose more than the job gains over a100."""
    for waiting, name in ((0, "h100"), (3, "a100")):
        chosen, _ = choose({"v100": view(*[8] * 20), "a100": view(8), "h100": view(8, crowd=waiting)})
        assert chosen is not None
        assert chosen.name == name


def test_speeds_are_those_of_measured_types_by_any_name() -> None:
    assert BUILT_IN.knows("nvidia_h100_80gb_hbm3")
    assert not BUILT_IN.knows("a100_1g.10gb")
    assert not BUILT_IN.knows("mi300x")
    assert BUILT_IN.speed_up("a100", {"a100": 3.0}) == (1.0, 1.0)
    there, back = BUILT_IN.speed_up("h100", {"v100": 1.0}), BUILT_IN.speed_up("v100", {"h100": 1.0})
    assert there.median * back.median == pytest.approx(1.0)
    assert there.at_least < there.median
    assert back.at_least < back.median
    steps = BUILT_IN.speed_up("h100", {"a100": 1.0}).median * BUILT_IN.speed_up("a100", {"v100": 1.0}).median
    assert there.median == pytest.approx(steps)
    assert math.log(there.median / there.at_least) < sum(
        math.log(each.median / each.at_least)
        for each in (BUILT_IN.speed_up("h100", {"a100": 1.0}), BUILT_IN.speed_up("a100", {"v100": 1.0}))
    )
    for gpu_type, instead in (("mi300x", {"a100": 1.0}), ("a100", {"mi300x": 1.0}), ("a100", {})):
        with pytest.raises(ValueError, match=r"speed|weight"):
            BUILT_IN.speed_up(gpu_type, instead)


SITE = TypeSpeeds((("h200", 3.1), ("mi300x", 2.8), ("slow", 0.4)))


def test_a_stated_speed_wins_and_is_one_measurement() -> None:
    assert SITE.knows("mi300x")
    assert not SITE.knows("amd_instinct_mi300x")  # by the exact name
    assert SITE.over_a100("h200") == pytest.approx(3.1)
    assert SITE.over_a100("nvidia_h200") == BUILT_IN.over_a100("h200")
    over_a100 = SITE.speed_up("mi300x", {"a100": 1.0})
    assert over_a100.median == pytest.approx(2.8)
    assert over_a100.at_least == pytest.approx(0.53 * 2.8, rel=0.01)
    assert SITE.speed_up("mi300x", {"mi300x": 1.0}) == (1.0, 1.0)


def test_two_stated_types_are_as_uncertain_as_one_and_an_a100() -> None:
    over_slow, over_a100 = (SITE.speed_up("mi300x", {other: 1.0}) for other in ("slow", "a100"))
    assert over_slow.median == pytest.approx(7.0)
    assert over_slow.at_least / over_slow.median == pytest.approx(over_a100.at_least / over_a100.median)
    over_v100 = SITE.speed_up("mi300x", {"v100": 1.0})
    assert over_v100.at_least / over_v100.median < over_a100.at_least / over_a100.median


def test_h200_is_a_little_faster_than_h100() -> None:
    over_h100 = BUILT_IN.speed_up("nvidia_h200_141gb_hbm3e", {"nvidia_h100_80gb_hbm3": 1.0})
    assert over_h100.at_least < 1.0 < over_h100.median < 1.15
    assert BUILT_IN.speed_up("h200", {"a100": 1.0}).at_least > 1.5


def test_a_type_of_stated_speed_is_chosen_if_its_lower_bound_pays() -> None:
    nodes = {"a100": view(8, 8), "mi300x": view(8)}
    allowed = ("mi300x",)
    assert choose(nodes, allowed=allowed)[0] is None
    chosen, _ = choose(nodes, allowed=allowed, speeds=SITE)
    assert chosen is not None
    assert chosen.name == "mi300x"
    assert choose(nodes, allowed=allowed, speeds=TypeSpeeds((("mi300x", 1.5),)))[0] is None
