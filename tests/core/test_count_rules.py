"""GPU counts that other options of a request leave out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlalloc.allocation import size_for
from rlalloc.bounds import Directives, NodeShape, SiteBounds, bounds_for, parse_directives
from rlalloc.count_rules import (
    with_declared_least,
    with_few_switches,
    with_least_cpus,
    with_least_memory,
    with_near_gpus,
    with_whole_nodes,
)
from rlalloc.errors import DirectiveError
from rlalloc.job import Allocation, Bounds, Shares

FOUR_GPUS = NodeShape(gpus=4, cpus=64, mem_mib=256_000)
EIGHT_GPUS = NodeShape(gpus=8, cpus=64, mem_mib=512_000)
shares = st.floats(0, 1)


def bounds_of(request: Allocation, words: str, shape: NodeShape) -> Bounds:
    return bounds_for(request, parse_directives(words), SiteBounds(), shape)


def of_one_node(gpus: int, cpus_per_task: int, tasks: int = 1) -> Allocation:
    return Allocation(1, gpus, tasks, cpus_per_task, 1000 * gpus, 3600)


@pytest.mark.parametrize(
    ("words", "counts"), [("mem-per-gpu=100G-200G", (1, 2, 4)), ("cpus-per-gpu=12-16", (1, 2, 4)), ("", (1, 2, 4, 8))]
)
def test_counts_without_the_least_that_the_script_names_are_no_choice(words: str, counts: tuple[int, ...]) -> None:
    request, words = of_one_node(4, 32), f"gpus=1-8 {words}"
    bounds = bounds_of(request, words, EIGHT_GPUS)
    assert with_declared_least(bounds, request, parse_directives(words), EIGHT_GPUS).gpu_counts == counts


def test_a_range_in_which_no_count_has_that_is_refused() -> None:
    request, words = of_one_node(4, 32), "gpus=8 mem-per-gpu=100G-200G"
    bounds = bounds_of(request, words, EIGHT_GPUS)
    with pytest.raises(DirectiveError, match=r"gpus=8-8: .* name less"):
        with_declared_least(bounds, request, parse_directives(words), EIGHT_GPUS)


@pytest.mark.parametrize(
    ("nodes", "gpus_per_node", "mem_mib", "gpus", "counts"),
    [
        (1, 2, 100_000, "1-8", (1, 2, 4, 8)),
        (1, 2, 200_000, "1-8", (1, 2, 4)),
        (1, 2, 400_000, "1-8", (1, 2)),
        (4, 1, 200_000, "1-8", (1, 2, 4)),
        (1, 8, 512_000, "1-16", (1, 2, 4, 8, 16)),
        (1, 2, 400_000, "4-8", (4, 8)),
        (1, 2, 512_000, "1-8", (1, 2, 4, 8)),
    ],
    ids=[
        *("enough", "half", "the request alone", "on fewer nodes", "whole nodes", "a range without the request"),
        "all memory of the node",
    ],
)
def test_counts_with_less_memory_per_gpu_than_asked_for_are_no_choice(
    nodes: int, gpus_per_node: int, mem_mib: int, gpus: str, counts: tuple[int, ...]
) -> None:
    request = Allocation(nodes, gpus_per_node, 1, 8, mem_mib, 3600)
    bounds = with_least_memory(bounds_of(request, f"gpus={gpus}", EIGHT_GPUS), request, EIGHT_GPUS)
    assert bounds.gpu_counts == counts


@pytest.mark.parametrize(
    ("asked", "words", "counts"),
    [
        (of_one_node(4, 8, 4), "gpus=1-16", (1, 2, 4, 8, 16)),
        (of_one_node(4, 16, 4), "gpus=1-16", (1, 2, 4)),
        (of_one_node(4, 64), "gpus=1-16", (1, 2, 4)),
        (Allocation(4, 1, 1, 16, 1000, 3600), "gpus=1-16", (1, 2, 4)),
        (of_one_node(4, 64), "gpus=1-16 cpus-per-gpu=2-16", (1, 2, 4, 8, 16)),
        (of_one_node(4, 64), "gpus=8-16", (8, 16)),
        (of_one_node(2, 25), "gpus=2,4,5 launch=srun", (2, 4)),  # 12 CPUs for each of five tasks are too few
    ],
    ids=[
        *("enough", "a task per GPU", "one task", "on fewer nodes", "fewer are declared to do"),
        *("a range without the request", "parts of tasks"),
    ],
)
def test_counts_with_fewer_cpus_per_gpu_than_asked_for_are_no_choice(
    asked: Allocation, words: str, counts: tuple[int, ...]
) -> None:
    bounds = with_least_cpus(bounds_of(asked, words, EIGHT_GPUS), asked, EIGHT_GPUS)
    assert bounds.gpu_counts == counts


@given(
    gpus=st.integers(1, 8), cpus=st.integers(1, 64), tasks=st.integers(1, 8), per_task=st.booleans(), wanted=shares
)
def test_no_size_of_a_left_count_has_fewer_cpus_than_the_least(
    gpus: int, cpus: int, tasks: int, wanted: float, *, per_task: bool
) -> None:
    asked = of_one_node(gpus, max(1, cpus // tasks), tasks)
    bounds = bounds_for(asked, Directives(gpus=(1, 16), task_per_gpu=per_task), SiteBounds(), EIGHT_GPUS)
    size = size_for(Shares(wanted, 1.0, 1.0), asked, with_least_cpus(bounds, asked, EIGHT_GPUS), EIGHT_GPUS)
    assert size.cpus_per_node >= asked.cpus_per_gpu * size.gpus_per_node - 1e-6


@pytest.mark.parametrize(
    ("nodes", "gpus_per_node", "gpus", "counts"),
    [
        (1, 2, "1-16", (2, 4, 8, 12, 16)),
        (2, 4, "1-16", (4, 8, 12, 16)),
        (2, 1, "1-8", (2, 4, 8)),
        (1, 2, "1-1", (2,)),
        (1, 2, "4-8", (4, 8)),
    ],
)
def test_less_of_a_node_is_no_choice(nodes: int, gpus_per_node: int, gpus: str, counts: tuple[int, ...]) -> None:
    request = Allocation(nodes, gpus_per_node, 1, 8, 32_000, 3600)
    words = f"gpus={gpus} cpus-per-gpu=1-16 mem-per-gpu=1G-64G"
    bounds = with_whole_nodes(bounds_of(request, words, FOUR_GPUS), request, FOUR_GPUS)
    assert bounds.gpu_counts == counts
    assert (bounds.gpus.minimum, bounds.gpus.maximum) == (counts[0], counts[-1])
    assert (bounds.cpus_per_gpu.minimum, bounds.cpus_per_gpu.maximum) == (request.cpus_per_gpu, 16)
    assert bounds.mem_mib_per_gpu.minimum == request.mem_mib_per_gpu
    assert bounds.mem_mib_per_gpu.minimum_from == "partition"


def with_switches(nodes: int, gpus_per_node: int, gpus: str) -> Bounds:
    request = Allocation(nodes, gpus_per_node, 1, 8, 32_000, 3600)
    return with_few_switches(bounds_of(request, f"gpus={gpus}", FOUR_GPUS), request, FOUR_GPUS)


@pytest.mark.parametrize(
    ("nodes", "gpus_per_node", "gpus", "counts", "maximum_from"),
    [
        (1, 2, "1-16", (1, 2, 4), "request"),
        (2, 4, "1-16", (1, 2, 4, 8), "request"),
        (2, 2, "1-16", (1, 2, 4, 8), "request"),
        (2, 4, "1-8", (1, 2, 4, 8), "script"),
    ],
)
def test_a_job_that_asks_for_few_switches_gets_no_more_nodes(
    nodes: int, gpus_per_node: int, gpus: str, counts: tuple[int, ...], maximum_from: str
) -> None:
    bounds = with_switches(nodes, gpus_per_node, gpus)
    assert bounds.gpu_counts == counts
    assert (bounds.gpus.maximum, bounds.gpus.maximum_from) == (counts[-1], maximum_from)


def test_a_range_that_needs_more_nodes_is_refused() -> None:
    with pytest.raises(DirectiveError, match=r"gpus=16-16: with --switches, .* the 2 nodes that it asks for"):
        with_switches(2, 4, "16")


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
    asked = of_one_node(gpus, cpus, tasks)
    directives = Directives(gpus=(1, 16), cpus_per_gpu=declared, task_per_gpu=per_task)
    bounds = with_near_gpus(bounds_for(asked, directives, SiteBounds(), EIGHT_GPUS), asked, EIGHT_GPUS)
    size = size_for(Shares(wanted[0], wanted[1], 1.0), asked, bounds, EIGHT_GPUS)
    assert size.cpus_per_node * asked.gpus_per_node <= asked.cpus_per_node * size.gpus_per_node
    assert asked.gpus in bounds.gpu_counts


def test_only_counts_are_left_out_whose_cpus_the_tasks_cannot_share() -> None:
    """Ten CPUs for four GPUs: of two, five; of one, two or three, and three are more than 2.5 a GPU."""
    asked = of_one_node(4, 10)
    free = bounds_for(asked, Directives(gpus=(1, 8)), SiteBounds(), EIGHT_GPUS)
    bound = with_near_gpus(free, asked, EIGHT_GPUS)
    assert (free.gpu_counts, bound.gpu_counts) == ((1, 2, 4, 8), (2, 4, 8))
    assert (bound.gpus.minimum, bound.gpus.maximum) == (2, 8)
    assert bound.sockets == (
        "at most 2.5 CPUs a GPU, all beside its GPUs (--gres-flags=enforce-binding); "
        "GPU counts whose CPUs its tasks cannot share evenly are left out: 1"
    )
    named = bounds_for(asked, Directives(gpus=(1, 8), cpus_per_gpu=(1, 8)), SiteBounds(), EIGHT_GPUS)
    narrowed = with_near_gpus(named, asked, EIGHT_GPUS)
    assert narrowed.gpu_counts == (1, 2, 4, 8)
    assert (narrowed.cpus_per_gpu.maximum, narrowed.cpus_per_gpu.maximum_from) == (2.5, "request")


def test_a_range_without_such_a_count_is_the_users_to_correct() -> None:
    asked = of_one_node(4, 10)
    with pytest.raises(DirectiveError, match=r"cannot share 2\.5 CPUs a GPU"):
        with_near_gpus(bounds_for(asked, Directives(gpus=(1, 1)), SiteBounds(), EIGHT_GPUS), asked, EIGHT_GPUS)
