"""Jobs that ask for sockets, and jobs that get only CPUs beside their GPUs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlalloc.allocation import size_for
from rlalloc.bounds import Directives, NodeShape, SiteBounds, bounds_for
from rlalloc.errors import DirectiveError
from rlalloc.job import Allocation, Shares
from rlalloc.sockets import Sockets, with_near_gpus

SHAPE = NodeShape(gpus=8, cpus=64, mem_mib=512_000)
shares = st.floats(0, 1)


def request(gpus: int, cpus_per_task: int, tasks: int = 1) -> Allocation:
    return Allocation(1, gpus, tasks, cpus_per_task, 1000 * gpus, 3600)


@pytest.mark.parametrize(
    ("asked", "meets"),
    [
        (Sockets(), True),
        (Sockets(2, 16, 2), True),
        (Sockets(sockets=4), False),
        (Sockets(cores=17), False),
        (Sockets(threads=3), False),
    ],
)
def test_a_node_has_at_least_what_a_job_asks_for(asked: Sockets, *, meets: bool) -> None:
    assert Sockets(2, 16, 2).meet(asked) == meets
    assert Sockets().meet(asked) == (asked == Sockets())  # nobody says what the node has


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (Sockets(), ""),
        (Sockets(1, 1, 1), ""),
        (Sockets(sockets=4), "at least 4 sockets"),
        (Sockets(2, 16, 2), "at least 2 sockets, 16 cores a socket, 2 threads a core"),
    ],
)
def test_what_not_every_node_has_is_named(asked: Sockets, words: str) -> None:
    assert asked.describe() == words


@given(
    gpus=st.integers(1, 8),
    cpus=st.integers(1, 20),
    tasks=st.integers(1, 4),
    declared=st.none() | st.tuples(st.floats(0.5, 4), st.floats(4, 32)),
    per_task=st.booleans(),
    wanted=st.tuples(shares, shares),
)
def test_a_job_that_gets_only_cpus_beside_its_gpus_gets_no_more_of_them_for_each(
    gpus: int,
    cpus: int,
    tasks: int,
    declared: tuple[float, float] | None,
    per_task: bool,
    wanted: tuple[float, float],
) -> None:
    asked = request(gpus, cpus, tasks)
    directives = Directives(gpus=(1, 16), cpus_per_gpu=declared, task_per_gpu=per_task)
    bounds = with_near_gpus(bounds_for(asked, directives, SiteBounds(), SHAPE), asked, SHAPE)
    size = size_for(Shares(wanted[0], wanted[1], 1.0), asked, bounds, SHAPE)
    assert size.cpus_per_node * asked.gpus_per_node <= asked.cpus_per_node * size.gpus_per_node
    assert asked.gpus in bounds.gpu_counts


def test_only_counts_are_left_out_whose_cpus_the_tasks_cannot_share() -> None:
    """Ten CPUs for four GPUs: of two, five; of one, two or three, and three are more than 2.5 a GPU."""
    asked = request(4, 10)
    free = bounds_for(asked, Directives(gpus=(1, 8)), SiteBounds(), SHAPE)
    bound = with_near_gpus(free, asked, SHAPE)
    assert (free.gpu_counts, bound.gpu_counts) == ((1, 2, 4, 8), (2, 4, 8))
    assert (bound.gpus.minimum, bound.gpus.maximum) == (2, 8)
    assert bound.sockets == (
        "at most 2.5 CPUs a GPU, all beside its GPUs (--gres-flags=enforce-binding); "
        "GPU counts whose CPUs its tasks cannot share evenly are left out: 1"
    )
    declared = bounds_for(asked, Directives(gpus=(1, 8), cpus_per_gpu=(1, 8)), SiteBounds(), SHAPE)
    narrowed = with_near_gpus(declared, asked, SHAPE)
    assert narrowed.gpu_counts == (1, 2, 4, 8)
    assert (narrowed.cpus_per_gpu.maximum, narrowed.cpus_per_gpu.maximum_from) == (2.5, "request")


def test_a_range_without_such_a_count_is_the_users_to_correct() -> None:
    asked = request(4, 10)
    with pytest.raises(DirectiveError, match=r"cannot share 2\.5 CPUs a GPU"):
        with_near_gpus(bounds_for(asked, Directives(gpus=(1, 1)), SiteBounds(), SHAPE), asked, SHAPE)
