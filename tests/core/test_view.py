"""What a view of the cluster expects of a size, against the definition in plain Python."""

from hypothesis import given
from hypothesis import strategies as st

from rlalloc.job import Allocation, JobView
from rlalloc.view import ClusterView

from .strategies import cluster_views, job_views, requests


def wait_s(view: ClusterView, allocation: Allocation) -> float:
    """Release after release, until there is enough."""
    need = (allocation.gpus_per_node, allocation.cpus_per_node, allocation.mem_mib_per_node)
    with_room = sum(all(have >= want for have, want in zip(node, need, strict=True)) for node in view.free.tolist())
    if with_room >= allocation.nodes:
        return 0.0
    available = [sum(column) for column in zip(*view.free.tolist(), strict=True)]
    whole = (allocation.gpus, allocation.cpus, allocation.mem_mib)
    until_s = 0.0
    for ends_s, *held in view.releases.tolist():
        until_s = ends_s
        available = [have + more for have, more in zip(available, held, strict=True)]
        if all(have >= want for have, want in zip(available, whole, strict=True)):
            break
    return until_s + view.backlog_s


@given(cluster_views(), st.lists(requests(), min_size=1, max_size=5))
def test_waits_of_several_sizes_are_those_of_each(view: ClusterView, sizes: list[Allocation]) -> None:
    expected = [wait_s(view, size) for size in sizes]
    assert view.sizes_there(sizes).wait_s == expected
    assert [view.expected_wait_s(size) for size in sizes] == expected
    assert view.fit_now(sizes) == [view.fits_now(size) for size in sizes]


@given(cluster_views(), job_views())
def test_what_is_freed_within_a_time_is_what_ends_by_then(view: ClusterView, job: JobView) -> None:
    within_s = 0.44 * job.request.time_limit_s
    assert view.freed_gpus_within(within_s) == sum(row[1] for row in view.releases.tolist() if row[0] <= within_s)
    assert view.queued_gpus == sum(row[0] for row in view.queued.tolist())
