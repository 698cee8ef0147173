"""Jobs that ask for sockets get nodes that have them, by the daemon's own rule; no compiled code runs here."""

import itertools
from typing import Any

import msgspec
import numpy as np
import pytest

from rlalloc.devices import node_devices
from rlalloc.sockets import Sockets
from rlalloc_simulator.engine.simulated_pools import Asked, pools_of, shape_for
from rlalloc_simulator.site_from_workload import site_of, submitted_from
from rlalloc_simulator.workloads import ClusterDescription, Needs, NodeGroup, Request, WorkloadJob
from rlallocd.cluster.node_pools import NodePools
from rlallocd.slurm import NodeNeeds, NodeRecord
from tests.daemon.test_cluster_views import job as job_record

CLUSTER = ClusterDescription(
    nodes=(
        NodeGroup("two", 2, 8, 64, 512_000, "a100", sockets_per_node=2, cores_per_socket=16),
        NodeGroup("four", 1, 4, 64, 256_000, "a100", sockets_per_node=4, cores_per_socket=16),
        NodeGroup("one", 1, 4, 32, 128_000, "v100", sockets_per_node=1, cores_per_socket=32),
        NodeGroup("unknown", 1, 8, 64, 512_000, "v100"),
    )
)


def one_job(request: dict[str, Any], directives: str = "") -> WorkloadJob:
    asked = msgspec.structs.replace(Request(1, 1, 1, 4, 1000, 600), **request)
    needs = Needs(run_time_s=60.0, cpu_fraction=1.0, max_rss_mib=1.0)
    return WorkloadJob(
        id=1, submit_s=0.0, user="a", request=asked, needs=needs, job_class="train", directives=directives
    )


def node_records() -> list[NodeRecord]:
    groups = [group for group in CLUSTER.nodes for _ in range(group.count)]
    return [
        NodeRecord(
            name=f"n{number}",
            partitions=("gpu",),
            usable=True,
            cpus=group.cpus,
            cpus_used=0,
            mem_mib=group.mem_mib,
            mem_mib_used=0,
            devices=node_devices(f"gpu:{group.gpu_type}:{group.gpus}"),
            sockets=group.sockets_per_node,
            cores=group.cores_per_socket,
        )
        for number, group in enumerate(groups)
    ]


ASKED = [Sockets(*each) for each in itertools.product((0, 1, 2, 4, 8), (0, 16, 17, 32))]


@pytest.mark.parametrize("gpu_type", ["", "a100", "v100"])
def test_the_daemon_and_the_simulator_agree_on_which_counts_fit_on_which_nodes(gpu_type: str) -> None:
    site, pools = site_of(CLUSTER, []), NodePools(node_records())
    for sockets in ASKED:
        needs = NodeNeeds(sockets=sockets.sockets, cores=sockets.cores)
        theirs = pools.for_job(job_record(1, "PENDING", gpu_type=gpu_type, needs=needs), "gpu")
        (submitted,) = submitted_from(
            [one_job({"gpu_type": gpu_type, "sockets_per_node": sockets.sockets, "cores_per_socket": sockets.cores})],
            site_of(CLUSTER, [one_job({})]),
        )
        assert submitted.asked == Asked(0, submitted.device, "", sockets)
        (row,) = pools_of(site, [submitted.asked])
        for gpus in (1, 4, 8):
            ours = np.flatnonzero(row["most"] >= gpus).tolist()
            assert ours == theirs.pool.places[theirs.has[:, 0] >= gpus].tolist()
        if len(theirs.pool.places):
            assert shape_for(site, submitted.asked) == theirs.shape


def test_a_size_has_no_more_cpus_a_gpu_where_they_have_to_be_beside_the_gpus() -> None:
    """Ten CPUs for four GPUs cannot become two and a half for one."""
    request = {"gpus_per_node": 4, "cpus_per_task": 10, "gpu_type": "a100", "sockets_per_node": 2}
    found = {}
    for near in (False, True):
        mine = one_job(request | {"near_gpus": near}, "gpus=1-8")
        (submitted,) = submitted_from([mine], site_of(CLUSTER, [mine]))
        found[near] = submitted.bounds.gpu_counts
    assert found == {False: (1, 2, 4, 8), True: (2, 4, 8)}


def test_cores_and_cpus_of_a_group_go_together() -> None:
    with pytest.raises(ValueError, match="no multiple of the 48 cores"):
        NodeGroup("odd", 1, 8, 64, 512_000, sockets_per_node=2, cores_per_socket=24)
