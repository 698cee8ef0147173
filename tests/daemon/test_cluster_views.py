"""What policies see of a partition, from jobs and nodes as Slurm tells them."""

import msgspec
import pytest

from rlalloc.run_time import EXPECTED_FRACTION_OF_LIMIT
from rlalloc.urgency import UrgencyRules
from rlallocd.cluster_views import MOST_VIEWS, ClusterViews
from rlallocd.request_sizes import Skipped
from rlallocd.slurm import JobRecord, NodeRecord
from rlallocd.slurm.json_reader import job_record
from tests.daemon.slurm_in_memory import gpus as alike_gpus

NOW_S = 10_000
RULES = UrgencyRules()
NODE = NodeRecord(
    name="n1",
    partitions=("gpu", "all"),
    usable=True,
    cpus=64,
    cpus_used=8,
    mem_mib=512_000,
    mem_mib_used=40_960,
    devices=alike_gpus("a100", 8, 2),
)
DOWN = msgspec.structs.replace(NODE, name="n2", usable=False)


def job(job_id: int, state: str, *, gpus: int = 1, partition: str = "gpu", user: str = "alice") -> JobRecord:
    return job_record(
        {
            "job_id": job_id,
            "job_state": state,
            "partition": partition,
            "user_name": user,
            "priority": 5,
            "tres_req_str": f"cpu=4,mem=1G,node=1,gres/gpu={gpus}",
            "time_limit": 60,
            "node_count": 1,
            "start_time": NOW_S - 600 if state == "RUNNING" else 0,
            "eligible_time": NOW_S - 700,
        }
    )


def test_a_view_holds_what_is_free_what_ends_and_what_waits() -> None:
    jobs = [job(1, "RUNNING", gpus=2), job(2, "PENDING", gpus=4), job(3, "COMPLETED"), job(4, "PENDING", gpus=0)]
    view = ClusterViews([NODE, DOWN], jobs, NOW_S, RULES).of("gpu")
    assert view.free.tolist() == [[6, 56, 471_040]]
    assert view.totals.tolist() == [8, 64, 512_000]
    assert view.releases[:, 1:].tolist() == [[2, 4, 1024]]
    assert view.queued.tolist() == [[4, EXPECTED_FRACTION_OF_LIMIT * 3600]]
    assert not view.urgency_counts


def test_a_view_says_whether_urgency_counts() -> None:
    assert ClusterViews([NODE], [], NOW_S, UrgencyRules(nice_band=100)).of("gpu").urgency_counts


def test_a_job_of_several_partitions_waits_in_each() -> None:
    views = ClusterViews(
        [NODE], [job(1, "PENDING", partition="gpu,all"), job(2, "PENDING", partition="all")], NOW_S, RULES
    )
    assert (len(views.of("gpu").queued), len(views.of("all").queued)) == (1, 2)


def test_a_view_is_made_once() -> None:
    views = ClusterViews([NODE], [], NOW_S, RULES)
    assert views.of("gpu") is views.of("gpu")


def test_a_users_gpus_count_in_all_partitions() -> None:
    jobs = [job(1, "RUNNING", gpus=2), job(2, "RUNNING", gpus=3, partition="all"), job(3, "PENDING", gpus=4)]
    views = ClusterViews([NODE], [*jobs, job(4, "RUNNING", gpus=5, user="bob")], NOW_S, RULES)
    assert (views.user_running_gpus("alice"), views.user_running_gpus("bob"), views.user_running_gpus("eve")) == (
        5,
        5,
        0,
    )


def test_a_partition_without_a_usable_node_is_skipped() -> None:
    with pytest.raises(Skipped, match="no usable GPU node"):
        ClusterViews([DOWN], [], NOW_S, RULES).of("gpu")


@pytest.mark.parametrize(
    ("gpu_type", "features", "name"),
    [("", "", "mixed-devices"), ("a100", "", None), ("", "whole", None), ("v100", "", "no-gpu-node")],
)
def test_a_job_that_slurm_may_give_slices_of_gpus_is_skipped(gpu_type: str, features: str, name: str | None) -> None:
    """``gpu:4`` on a node of two GPUs and seven slices becomes two GPUs and two slices (seen on 22.05 and 24.11)."""
    mixed = msgspec.structs.replace(NODE, name="n2", devices=alike_gpus("a100", 2) + alike_gpus("1g.10gb", 7))
    whole = msgspec.structs.replace(NODE, features=frozenset({"whole"}))
    asking = msgspec.structs.replace(job(1, "PENDING"), gpu_type=gpu_type, features=features)
    views = ClusterViews([whole, mixed], [], NOW_S, RULES)
    if name is None:
        assert views.for_job(asking).totals.tolist() == [8, 64, 512_000]
        return
    with pytest.raises(Skipped) as skipped:
        views.for_job(asking)
    assert skipped.value.name == name


def test_constraints_that_leave_the_same_nodes_share_one_view_and_others_the_demand() -> None:
    fast = msgspec.structs.replace(NODE, features=frozenset({"fast", "new"}))
    slow = msgspec.structs.replace(NODE, name="n2", devices=alike_gpus("a100", 8, 8))
    jobs = [job(1, "RUNNING", gpus=2), job(2, "PENDING", gpus=4)]
    views = ClusterViews([fast, slow], jobs, NOW_S, RULES)
    asking = [msgspec.structs.replace(jobs[1], features=features) for features in ("fast", "new", "")]
    one, same, other = (views.for_job(each) for each in asking)
    assert one is same
    assert (len(one.free), len(other.free)) == (1, 2)
    assert one.releases is other.releases
    assert one.queued is other.queued


def test_of_many_constraints_only_the_latest_views_are_kept() -> None:
    """A view that is forgotten is made again, and is the same."""
    names = [f"n{number}" for number in range(2 * MOST_VIEWS)]
    nodes = [msgspec.structs.replace(NODE, name=name, features=frozenset({name})) for name in names]
    views = ClusterViews(nodes, [job(1, "RUNNING")], NOW_S, RULES)
    seen = [views.for_job(msgspec.structs.replace(job(2, "PENDING"), features=name)) for name in names]
    again = views.for_job(msgspec.structs.replace(job(2, "PENDING"), features=names[0]))
    assert again is not seen[0]
    assert again.free.tolist() == seen[0].free.tolist()
    assert views.for_job(msgspec.structs.replace(job(2, "PENDING"), features=names[-1])) is seen[-1]
