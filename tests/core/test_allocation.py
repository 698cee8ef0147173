"""From shares to an allocation inside the bounds, and back."""

from functools import partial

import msgspec
import numpy as np
import pytest
from hypothesis import given

from rlalloc.allocation import allocation_for, share_in, shares_of
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


@given(job_views())
def test_the_shares_of_the_request_give_the_request_inside_any_range(job: JobView) -> None:
    """To the CPU and the MiB, through the float32 of an answer: else a job that keeps its size would be updated."""
    bounds, request = job.bounds, job.request
    ranges = ((bounds.cpus_per_gpu, request.cpus_per_gpu), (bounds.mem_mib_per_gpu, request.mem_mib_per_gpu))
    if request.gpus not in bounds.gpu_counts or any(not r.minimum <= asked <= r.maximum for r, asked in ranges):
        return
    answer = Shares(*np.array(msgspec.structs.astuple(shares_of(request, bounds)), dtype=np.float32).tolist())
    assert allocation_for(answer, request, bounds, SHAPE, lambda _: 1.0) == request


def test_what_was_asked_for_is_a_step_between_whole_units() -> None:
    """4000 MiB a GPU, and not 4096: the smallest that the request needs."""
    asked = msgspec.structs.replace(REQUEST, cpus_per_task=6, mem_mib_per_node=16_000)
    bounds = bounds_for(asked, parse_directives("cpus-per-gpu=1-8 mem-per-gpu=1G-8G"), SiteBounds(), SHAPE)
    as_asked = shares_of(asked, bounds)
    size = _size(1, as_asked.cpu, as_asked.mem, "cpus-per-gpu=1-8 mem-per-gpu=1G-8G", asked)
    assert (size.cpus_per_node, size.mem_mib_per_node) == (6, 16_000)
    more = _size(1, as_asked.cpu + 0.01, as_asked.mem + 0.01, "cpus-per-gpu=1-8 mem-per-gpu=1G-8G", asked)
    assert (more.cpus_per_node, more.mem_mib_per_node) == (8, 16_384)


def test_a_mebibyte_above_a_whole_gibibyte_is_kept() -> None:
    asked = msgspec.structs.replace(REQUEST, mem_mib_per_node=4 * 1025)
    bounds = bounds_for(asked, parse_directives("mem-per-gpu=1000M-8G"), SiteBounds(), SHAPE)
    kept = shares_of(asked, bounds)
    size = _size(1, kept.cpu, kept.mem, "mem-per-gpu=1000M-8G", asked)
    assert size.mem_mib_per_node == asked.mem_mib_per_node


def test_shares_run_on_a_log_scale_between_the_bounds() -> None:
    assert [_size(share, 1, 1, "gpus=1-8").gpus for share in (0, 1 / 3, 2 / 3, 1)] == [1, 2, 4, 8]


def test_a_smaller_job_gets_a_longer_time_limit() -> None:
    one_gpu = _size(0, 1, 1, "gpus=1-8")
    assert one_gpu.time_limit_s >= 3600 * 3.9  # BERT on 4 GPUs is 3.9 times as fast as on one
    assert _size(1, 1, 1, "gpus=1-8").time_limit_s == 3600


def test_whole_nodes_beyond_one_and_one_node_below() -> None:
    two_nodes = msgspec.structs.replace(REQUEST, nodes=2, gpus_per_node=8)
    assert (_size(1, 1, 1, "gpus=4-16", two_nodes).nodes, _size(0, 1, 1, "gpus=4-16", two_nodes).nodes) == (2, 1)


@pytest.mark.parametrize("least", [0.0, 1e-321])
def test_bounds_of_old_decisions_that_begin_at_nothing_are_read(least: float) -> None:
    """Directives and floors once allowed that. The trainer reads such decisions."""
    bounds = bounds_for(REQUEST, parse_directives("cpus-per-gpu=1-8"), SiteBounds(), SHAPE)
    cpus = msgspec.structs.replace(bounds.cpus_per_gpu, minimum=least)
    bounds = msgspec.structs.replace(bounds, cpus_per_gpu=cpus)
    sizes = [
        allocation_for(Shares(1.0, share, 1.0), REQUEST, bounds, SHAPE, partial(slowdown, REQUEST))
        for share in (0.0, 0.5, 1.0)
    ]
    assert sizes[0].cpus_per_task >= 1
    assert sizes[-1].cpus_per_node == 8 * sizes[-1].gpus_per_node
    assert 0.0 <= share_in(1.0, cpus) <= 1.0


def test_one_task_a_gpu_stays_one_task_a_gpu() -> None:
    per_gpu = msgspec.structs.replace(REQUEST, tasks_per_node=4, cpus_per_task=8)
    size = _size(1, 1, 1, "gpus=1-8", per_gpu)
    assert (size.tasks_per_node, size.cpus_per_task) == (8, 8)


def test_cpus_and_memory_come_in_whole_units_a_gpu() -> None:
    size = _size(0, 0.5, 0.5, "gpus=2-8 cpus-per-gpu=1-8 mem-per-gpu=1G-32G")
    assert (size.cpus_per_task, size.mem_mib_per_node) == (2 * 3, 2 * 6 * 1024)
