"""What a job may get: from its request, its #RLALLOC lines and the site's rule."""

import pytest

from rlalloc.bounds import Directives, NodeShape, SiteBounds, bounds_for, parse_directives
from rlalloc.errors import DirectiveError
from rlalloc.job import Allocation

SHAPE = NodeShape(gpus=8, cpus=64, mem_mib=512_000)
FOUR_GPUS = Allocation(
    nodes=1, gpus_per_node=4, tasks_per_node=1, cpus_per_task=32, mem_mib_per_node=200_000, time_limit_s=3600
)


def test_every_directive_is_read() -> None:
    read = parse_directives(
        "gpus=1-8 cpus-per-gpu=2-7.5 mem-per-gpu=512M-64G gpu-multiple=2 launch=srun class=finetune"
    )
    assert read == Directives(
        gpus=(1, 8),
        cpus_per_gpu=(2.0, 7.5),
        mem_mib_per_gpu=(512.0, 65536.0),
        gpu_multiple=2,
        task_per_gpu=True,
        job_class="finetune",
    )


def test_a_list_of_counts_names_the_workable_ones() -> None:
    bounds = bounds_for(FOUR_GPUS, parse_directives("gpus=3,6"), SiteBounds(), SHAPE)
    assert bounds.gpu_counts == (3, 4, 6)  # what was submitted always works


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("gpu=4", "write key=value; the keys are gpus"),
        ("gpus", "write key=value"),
        ("gpus=", "not a whole number"),
        ("gpus=8-1", "must not be above"),
        ("gpus=0-4", "at least 1"),
        ("gpus=٣", "not a whole number"),
        (f"gpus=1-{'9' * 390}", "at most a billion"),
        ("cpus-per-gpu=-3", "not a number of at least 0.001"),
        ("mem-per-gpu=8X", "not a size"),
        ("launch=mpi", "torchrun"),
        ("class=hpc", "train, finetune, serve"),
    ],
)
def test_a_wrong_directive_says_what_to_write(text: str, says: str) -> None:
    with pytest.raises(DirectiveError, match=says):
        parse_directives(text)


def test_without_a_range_gpus_are_fixed_and_the_request_is_the_ceiling() -> None:
    bounds = bounds_for(FOUR_GPUS, Directives(), SiteBounds(min_cpus_per_gpu=2.0), SHAPE)
    assert bounds.gpu_counts == (4,)
    assert (bounds.cpus_per_gpu.minimum, bounds.cpus_per_gpu.maximum) == (2.0, 8.0)
    assert (bounds.cpus_per_gpu.minimum_from, bounds.cpus_per_gpu.maximum_from) == ("site", "request")
    assert bounds.mem_mib_per_gpu.minimum == bounds.mem_mib_per_gpu.maximum == 50_000


def test_a_floor_above_the_request_is_no_reason_to_give_more() -> None:
    bounds = bounds_for(FOUR_GPUS, Directives(), SiteBounds(min_cpus_per_gpu=16.0), SHAPE)
    assert bounds.cpus_per_gpu.minimum == bounds.cpus_per_gpu.maximum == 8.0


def test_counts_are_powers_of_two_in_a_node_and_whole_nodes_beyond() -> None:
    bounds = bounds_for(FOUR_GPUS, parse_directives("gpus=2-24"), SiteBounds(), SHAPE)
    assert bounds.gpu_counts == (2, 4, 8, 16, 24)


def test_counts_are_multiples_of_what_the_parallelism_needs() -> None:
    bounds = bounds_for(FOUR_GPUS, parse_directives("gpus=1-16 gpu-multiple=4"), SiteBounds(), SHAPE)
    assert bounds.gpu_counts == (4, 8, 16)


def test_a_range_that_nothing_fits_is_refused() -> None:
    with pytest.raises(DirectiveError, match="widen the range"):
        bounds_for(FOUR_GPUS, parse_directives("gpus=9-15"), SiteBounds(), SHAPE)


def test_a_site_may_declare_jobs_moldable() -> None:
    bounds = bounds_for(FOUR_GPUS, Directives(), SiteBounds(gpus_factor=(0.5, 2.0)), SHAPE)
    assert bounds.gpu_counts == (2, 4, 8)
    assert bounds.gpus.minimum_from == "site"


def test_more_than_a_node_has_is_cut_to_the_node() -> None:
    bounds = bounds_for(FOUR_GPUS, parse_directives("cpus-per-gpu=2-100"), SiteBounds(), SHAPE)
    assert (bounds.cpus_per_gpu.maximum, bounds.cpus_per_gpu.maximum_from) == (8.0, "node")


def test_tasks_follow_the_gpus_where_there_was_one_a_gpu() -> None:
    per_gpu = Allocation(
        nodes=1, gpus_per_node=4, tasks_per_node=4, cpus_per_task=8, mem_mib_per_node=1024, time_limit_s=60
    )
    assert bounds_for(per_gpu, Directives(), SiteBounds(), SHAPE).task_per_gpu
    assert not bounds_for(FOUR_GPUS, Directives(), SiteBounds(), SHAPE).task_per_gpu


def test_counts_end_where_the_partition_ends() -> None:
    bounds = bounds_for(FOUR_GPUS, parse_directives("gpus=1-9999999"), SiteBounds(), SHAPE, partition_gpus=24)
    assert bounds.gpu_counts == (1, 2, 4, 8, 16, 24)
    assert (bounds.gpus.maximum, bounds.gpus.maximum_from) == (24, "partition")


def test_a_range_above_the_partition_is_refused() -> None:
    with pytest.raises(DirectiveError, match="its partition has 24 GPUs; widen the range"):
        bounds_for(FOUR_GPUS, parse_directives("gpus=32-64"), SiteBounds(), SHAPE, partition_gpus=24)


def test_the_request_may_be_larger_than_what_is_usable_now() -> None:
    """Half of the nodes may be down: what was submitted always works."""
    request = Allocation(4, 8, 1, 64, 200_000, 3600)
    bounds = bounds_for(request, parse_directives("gpus=8-64"), SiteBounds(), SHAPE, partition_gpus=16)
    assert bounds.gpu_counts == (8, 16, 24, 32)


def test_a_range_without_end_has_few_counts() -> None:
    """Where nobody says how large the partition is, the listing has an end all the same."""
    bounds = bounds_for(FOUR_GPUS, parse_directives("gpus=1-999999999"), SiteBounds(), NodeShape(1, 64, 512_000))
    listed = [*range(1, 65), *range(66, 129, 2), *range(132, 257, 4), *range(264, 513, 8), *range(528, 1025, 16)]
    assert bounds.gpu_counts == (*listed, 999_999_999)


@pytest.mark.parametrize(
    ("declared", "site", "expected"),
    [
        ("1M-8G", SiteBounds(), (1024, 8192, "default", "script")),
        ("1M", SiteBounds(), (1024, 1024, "default", "default")),
        ("1M-8G", SiteBounds(min_mem_mib_per_gpu=4096), (4096, 8192, "site", "script")),
        ("1M-8G", SiteBounds(min_mem_mib_per_gpu=256), (256, 8192, "site", "script")),
        ("1M-8G", SiteBounds(min_mem_mib_per_gpu=99_000), (50_000, 50_000, "site", "site")),
        ("2G-8G", SiteBounds(), (2048, 8192, "script", "script")),
    ],
)
def test_declared_memory_has_a_floor(
    declared: str, site: SiteBounds, expected: tuple[float, float, str, str]
) -> None:
    """The site's, or 1 GiB a GPU; never above the request."""
    memory = bounds_for(FOUR_GPUS, parse_directives(f"mem-per-gpu={declared}"), site, SHAPE).mem_mib_per_gpu
    assert (memory.minimum, memory.maximum, memory.minimum_from, memory.maximum_from) == expected


def test_a_job_that_asked_for_less_than_the_floor_may_keep_it() -> None:
    small = Allocation(1, 4, 1, 4, mem_mib_per_node=2048, time_limit_s=60)
    memory = bounds_for(small, parse_directives("mem-per-gpu=1M-1G"), SiteBounds(), SHAPE).mem_mib_per_gpu
    assert memory.minimum == 512


@pytest.mark.parametrize(
    ("gpus", "tasks", "counts"),
    [
        (4, 2, (2, 4, 8, 16)),  # -n 2 --gpus-per-task=2: one GPU for two tasks is no choice
        (4, 3, (4,)),  # as submitted, and no more
        (2, 8, (1, 2, 4, 8, 16)),  # four tasks shared a GPU
        (4, 1, (1, 2, 4, 8, 16)),
    ],
)
def test_counts_that_the_tasks_cannot_share_are_no_choice(gpus: int, tasks: int, counts: tuple[int, ...]) -> None:
    request = Allocation(1, gpus, tasks, 4, 64_000, 3600)
    assert bounds_for(request, parse_directives("gpus=1-16"), SiteBounds(), SHAPE).gpu_counts == counts
