"""Figures and bars of histories that are small enough to compute by hand."""

from typing import Any

import msgspec
import numpy as np
import pytest

from rlalloc.bounds import NodeShape
from rlalloc_simulator.report.capacity_use import fragmented_gpu_s, queue_steps, steps_of, use_steps
from rlalloc_simulator.report.figure_table import DASH, duration, rows
from rlalloc_simulator.report.gantt import Bar, bars
from rlalloc_simulator.report.history import History, JobEnd, Run, Wait
from rlalloc_simulator.report.job_figures import Distribution, bounded_slowdown, distribution, fairness, measure

SHAPE = NodeShape(gpus=4, cpus=8, mem_mib=1000)


def run(job: int, start_s: float, end_s: float, gpus: int, *nodes: int, **changes: Any) -> Run:
    """One CPU and 100 MiB a GPU."""
    plain = Run(job, start_s, end_s, nodes or (0,), gpus, gpus, 100 * gpus, "COMPLETED")
    return msgspec.structs.replace(plain, **changes)


def wait(job: int, begin_s: float, end_s: float, gpus: int, **changes: Any) -> Wait:
    return msgspec.structs.replace(Wait(job, begin_s, end_s, 0, gpus, gpus, 100 * gpus), **changes)


def ended(submit_s: float, start_s: float | None, end_s: float | None, alone_s: float, user: str = "ada") -> JobEnd:
    return JobEnd(user, submit_s, alone_s, start_s, end_s, "COMPLETED")


def history(
    jobs: tuple[JobEnd, ...] = (), runs: tuple[Run, ...] = (), waits: tuple[Wait, ...] = (), nodes: int = 2
) -> History:
    names = tuple(f"n{number}" for number in range(nodes))
    return History((SHAPE,) * nodes, names, (tuple(range(nodes)),), jobs, runs, waits)


BY_HAND = history(
    jobs=(
        ended(0, 0, 100, 100, "ada"),
        ended(10, 100, 200, 100, "ada"),
        ended(20, 200, 205, 5, "bob"),
        JobEnd("bob", 30, 50.0, None, 40, "CANCELLED"),
        JobEnd("bob", 35, 50.0, None, None, "DEFERRED"),
    ),
    runs=(
        run(0, 0, 100, 4, 0, 1),
        run(1, 100, 150, 2, 0, state="TIMEOUT"),
        run(1, 150, 200, 4, 0),
        run(2, 200, 205, 1, 0, state="OUT_OF_MEMORY"),
    ),
    waits=(wait(1, 10, 100, 2), wait(2, 20, 200, 1)),
)


def test_figures_by_hand() -> None:
    """Two nodes of 4 GPUs for 205 s; three of five jobs run."""
    found = measure(BY_HAND)
    assert (found.jobs, found.ran, found.cancelled_waiting, found.never_ended) == (5, 3, 1, 1)
    assert (found.timeouts, found.out_of_memory, found.requeues) == (1, 1, 0)
    assert found.makespan_s == 205
    assert found.jct_s.mean == pytest.approx((100 + 190 + 185) / 3)
    assert found.jct_s.p50 == 185
    assert found.wait_s.mean == pytest.approx((0 + 90 + 180) / 3)
    gpu_s = 8 * 100 + 2 * 50 + 4 * 50 + 1 * 5
    assert found.gpu_hours == pytest.approx(gpu_s / 3600)
    assert found.gpu_use == pytest.approx(gpu_s / (8 * 205))
    assert found.cpu_use == pytest.approx(gpu_s / (16 * 205))
    assert found.mem_use == pytest.approx(100 * gpu_s / (2000 * 205))
    assert found.gpu_use_arriving == pytest.approx(1.0)  # until second 35 the first job holds all
    # 1, 1.9 and, over 10 s at least, 18.5: ada's mean is 1.45, bob's 18.5
    assert found.bounded_slowdown.mean == pytest.approx((1 + 1.9 + 18.5) / 3)
    assert found.worst_user == pytest.approx(18.5 / ((1 + 1.9 + 18.5) / 3))
    assert found.jain_index == pytest.approx((1.45 + 18.5) ** 2 / (2 * (1.45**2 + 18.5**2)))
    # The third waits for 1 GPU: 6 are free for 50 s, then 4 for 50 s.
    assert found.fragmentation == pytest.approx((6 * 50 + 4 * 50) / (8 * 205))


def test_slowdown_is_bounded_from_below_and_short_jobs_count_as_ten_seconds() -> None:
    assert bounded_slowdown(ended(0, 0, 50, 100)) == 1.0  # in a larger size than asked for
    assert bounded_slowdown(ended(0, 10, 20, 1)) == 2.0


def test_jain_index_of_one_who_has_it_all() -> None:
    assert fairness(["a", "b"], [2.0, 2.0]) == (1.0, 1.0)
    worst, jain = fairness(["a", "b", "c", "d"], [1e9, 1e-9, 1e-9, 1e-9])
    assert worst == pytest.approx(4.0)
    assert jain == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("asks", "lost_gpu_s"),
    [
        (wait(1, 20, 50, 4), 4 * 30),  # 2 + 2 GPUs are free on two nodes
        (wait(1, 20, 50, 5), 0),  # more than is free anywhere
        (wait(1, 20, 50, 4, cpus=13), 0),  # 12 CPUs are free
        (wait(1, 20, 50, 4, mem_mib=1600), 4 * 30),
        (wait(1, 20, 50, 4, mem_mib=1601), 0),
        (wait(1, 20, 50, 0), 0),  # it wants no GPU
        (wait(1, 20, 50, 4, partition=1), 0),  # the second partition is one node
        (wait(1, 20, 50, 2, partition=1), 2 * 30),
        (wait(1, 90, 130, 4), 4 * 10 + 8 * 30),  # what ran has ended at 100
        (wait(1, 20, 20, 1), 0),
    ],
)
def test_fragmentation_is_idle_gpu_time_beside_who_would_fit_in_all(asks: Wait, lost_gpu_s: float) -> None:
    """One job holds half of each node from 0 to 100."""
    there = msgspec.structs.replace(
        history(runs=(run(0, 0, 100, 2, 0, 1),), waits=(asks,)), partitions=((0, 1), (1,))
    )
    assert fragmented_gpu_s(there) == pytest.approx(lost_gpu_s)


def test_nodes_of_overlapping_partitions_count_once() -> None:
    there = msgspec.structs.replace(
        history(waits=(wait(0, 0, 10, 1), wait(1, 0, 10, 1, partition=1))), partitions=((0, 1), (1,))
    )
    assert fragmented_gpu_s(there) == pytest.approx(8 * 10)


def test_steps_add_up_and_their_means_are_exact() -> None:
    steps = steps_of([(0, 10, 2.0), (5, 20, 1.0)], 0.0)
    np.testing.assert_array_equal(steps.times_s, [0, 5, 10, 20])
    np.testing.assert_array_equal(steps.levels, [2, 3, 1, 0])
    np.testing.assert_allclose(steps.means(np.array([0.0, 10.0, 15.0, 40.0])), [2.5, 1.0, 5 / 25])
    np.testing.assert_allclose(steps.means(np.array([4.0, 6.0])), [2.5])


def test_queue_and_use_over_time() -> None:
    edges_s = np.array([0.0, 10.0, 20.0, 100.0, 200.0, 205.0])
    np.testing.assert_allclose(queue_steps(BY_HAND).means(edges_s), [0, 1, 2, 1, 0])
    np.testing.assert_allclose(use_steps(BY_HAND)[0].means(edges_s), [8, 8, 8, 3, 1])


def test_no_jobs_and_no_gpus_are_no_error() -> None:
    found = measure(history())
    assert found.jct_s == Distribution(None, None, None, None)
    assert (found.gpu_use, found.fragmentation, found.jain_index) == (None, None, None)
    assert {cell for row in rows([found]) for cell in row.cells} >= {DASH}
    cpus_only = msgspec.structs.replace(BY_HAND, nodes=(replace_gpus(SHAPE, 0),) * 2)
    assert measure(cpus_only).gpu_use is None
    assert measure(cpus_only).fragmentation is None
    assert measure(cpus_only).cpu_use == measure(BY_HAND).cpu_use


def replace_gpus(shape: NodeShape, gpus: int) -> NodeShape:
    return msgspec.structs.replace(shape, gpus=gpus)


def test_quantiles_are_interpolated() -> None:
    assert distribution([0.0, 10.0]) == Distribution(5.0, 5.0, 9.5, 9.9)


def test_durations_read_as_hours_minutes_seconds() -> None:
    assert [duration(each) for each in (None, 0.4, 61, 360_000)] == [DASH, "0:00:00", "0:01:01", "100:00:00"]


def test_bars_take_the_lowest_free_lanes_and_split_around_taken_ones() -> None:
    """Lanes 0 to 3 are node 0's, 4 to 7 node 1's; at one moment ends come before starts."""
    there = history(
        runs=(
            run(0, 0, 10, 1, 0),
            run(1, 0, 30, 1, 0),
            run(2, 0, 10, 1, 0),
            run(3, 10, 20, 3, 0),
            run(4, 10, 20, 4, 1),
        )
    )
    assert bars(there) == [Bar(0, 0, 1), Bar(1, 1, 1), Bar(2, 2, 1), Bar(3, 0, 1), Bar(3, 2, 2), Bar(4, 4, 4)]
