"""From shares to an allocation inside the bounds, and back."""

from functools import partial

import msgspec
from hypothesis import given

from rlalloc.allocation import allocation_for, shares_of
from rlalloc.bounds import SiteBounds, bounds_for, parse_directives
from rlalloc.job import Allocation, JobView, Shares
from rlalloc.view import slowdown

from .strategies import SHAPE, job_views, shares

REQUEST = Allocation(
    nodes=1, gpus_per_node=4, tasks_per_node=1, cpus_per_task=32, mem_mib_per_node=204_800, time_limit_s=3600
)


def _size(gpu: float, cpu: float, mem: float, ask: str, request: Allocation = REQUEST) -> Allocation:
    bounds = bounds_for(request, parse_directives(ask), SiteBounds(), SHAPE)
    return allocation_for(Shares(gpu, cpu, mem), request, bounds, SHAPE, partial(slowdown, request))


@given(job_views(), shares)
def test_never_outside_the_bounds_nor_the_node(job: JobView, chosen: Shares) -> None:
    size = allocation_for(chosen, job.request, job.bounds, SHAPE, partial(slowdown, job.request))
    bounds = job.bounds
    assert size.gpus in bounds.gpu_counts
    assert size.cpus_per_node <= SHAPE.cpus
    assert size.mem_mib_per_node <= SHAPE.mem_mib
    assert size.gpus_per_node <= SHAPE.gpus
    # One CPU a task, or one MiB a node, is the smallest step: bounds are kept to that.
    most_cpus = bounds.cpus_per_gpu.maximum * size.gpus_per_node
    assert size.cpus_per_node < most_cpus + size.tasks_per_node + 1e-6
    least_cpus = min(
        bounds.cpus_per_gpu.minimum * size.gpus_per_node, SHAPE.cpus // size.tasks_per_node * size.tasks_per_node
    )
    assert size.cpus_per_node >= least_cpus - 1e-6
    assert size.mem_mib_per_node < bounds.mem_mib_per_gpu.maximum * size.gpus_per_node + 1
    assert size.mem_mib_per_node >= min(bounds.mem_mib_per_gpu.minimum * size.gpus_per_node, SHAPE.mem_mib) - 1e-3
    assert size.time_limit_s >= job.request.time_limit_s


@given(job_views())
def test_the_shares_of_the_request_give_the_request_where_it_is_the_ceiling(job: JobView) -> None:
    rigid = msgspec.structs.replace(
        job, bounds=bounds_for(job.request, parse_directives("class=train"), SiteBounds(), SHAPE)
    )
    size = allocation_for(
        shares_of(rigid.request, rigid.bounds), rigid.request, rigid.bounds, SHAPE, partial(slowdown, rigid.request)
    )
    assert size == rigid.request


def test_shares_run_on_a_log_scale_between_the_bounds() -> None:
    assert [_size(share, 1, 1, "gpus=1-8").gpus for share in (0, 1 / 3, 2 / 3, 1)] == [1, 2, 4, 8]


def test_a_smaller_job_gets_a_longer_time_limit() -> None:
    one_gpu = _size(0, 1, 1, "gpus=1-8")
    assert one_gpu.time_limit_s >= 3600 * 3.9  # BERT on 4 GPUs is 3.9 times as fast as on one
    assert _size(1, 1, 1, "gpus=1-8").time_limit_s == 3600


def test_whole_nodes_beyond_one_and_one_node_below() -> None:
    two_nodes = msgspec.structs.replace(REQUEST, nodes=2, gpus_per_node=8)
    assert (_size(1, 1, 1, "gpus=4-16", two_nodes).nodes, _size(0, 1, 1, "gpus=4-16", two_nodes).nodes) == (2, 1)


def test_one_task_a_gpu_stays_one_task_a_gpu() -> None:
    per_gpu = msgspec.structs.replace(REQUEST, tasks_per_node=4, cpus_per_task=8)
    size = _size(1, 1, 1, "gpus=1-8", per_gpu)
    assert (size.tasks_per_node, size.cpus_per_task) == (8, 8)


def test_cpus_and_memory_come_in_whole_units_a_gpu() -> None:
    size = _size(0, 0.5, 0.5, "gpus=2-8 cpus-per-gpu=1-8 mem-per-gpu=1G-32G")
    assert (size.cpus_per_task, size.mem_mib_per_node) == (2 * 3, 2 * 6 * 1024)
