"""A workload's file becomes the engine's jobs, and they do what the file says of them."""

import msgspec
import numpy as np
import pytest

from rlalloc_simulator.engine import Simulator, table_of
from rlalloc_simulator.engine.engine_records import STATE_NAMES
from rlalloc_simulator.site_from_workload import site_of, submitted_from
from rlalloc_simulator.workloads import (
    Checkpoint,
    ClusterDescription,
    Dependency,
    End,
    Needs,
    NodeGroup,
    Partition,
    Request,
    WorkloadJob,
)

CLUSTER = ClusterDescription(
    nodes=(
        NodeGroup(name="old", count=1, gpus=4, cpus=16, mem_mib=64_000, gpu_type="v100"),
        NodeGroup(name="new", count=2, gpus=8, cpus=64, mem_mib=512_000, gpu_type="h100"),
    ),
    partitions=(Partition(name="small", nodes=("old",)), Partition(name="large", nodes=("new",))),
)


def workload_job(number: int, submit_s: float, gpus: int = 4, **changes: object) -> WorkloadJob:
    plain = WorkloadJob(
        id=number,
        submit_s=submit_s,
        user=f"user{number % 2}",
        partition="large",
        request=Request(
            nodes=1,
            gpus_per_node=gpus,
            tasks_per_node=1,
            cpus_per_task=2 * gpus,
            mem_mib_per_node=8000 * gpus,
            time_limit_s=3600,
        ),
        needs=Needs(run_time_s=600.0, cpu_fraction=0.5, max_rss_mib=4000.0),
    )
    return msgspec.structs.replace(plain, **changes)


def test_jobs_end_as_the_workload_says() -> None:
    jobs = [
        workload_job(1, 0.0),
        workload_job(2, 0.0, end=End(state="FAILED", after_s=100.0)),
        workload_job(3, 0.0, end=End(state="CANCELLED", after_s=200.0)),
        workload_job(4, 1.0, gpus=8, end=End(state="CANCELLED", after_s=20.0, while_pending=True)),
        workload_job(5, 2.0, dependency=(Dependency("afterok", 2),)),
        workload_job(6, 3.0, gpus=2, partition="small", checkpoint=Checkpoint(every_s=60.0, restart_s=30.0)),
        workload_job(7, 4.0, needs=Needs(run_time_s=9000.0, cpu_fraction=0.5, max_rss_mib=4000.0)),
        workload_job(8, 5.0, needs=Needs(run_time_s=100.0, cpu_fraction=0.5, max_rss_mib=64_000.0)),
    ]
    site = site_of(CLUSTER, jobs)
    made = Simulator(site, table_of(submitted_from(jobs, site), site))
    made.run()
    outcomes = made.outcomes()
    assert [STATE_NAMES[code] for code in outcomes["state"]] == [
        "COMPLETED",
        "FAILED",
        "CANCELLED",
        "CANCELLED",
        "DEFERRED",
        "COMPLETED",
        "TIMEOUT",
        "OUT_OF_MEMORY",
    ]
    ran_s = outcomes["finished_s"] - outcomes["start_s"]
    np.testing.assert_allclose(ran_s[[0, 1, 2, 5, 6]], [600, 100, 200, 600, 3600])
    assert np.isnan(outcomes["start_s"][3])
    assert outcomes["resumes"].tolist() == [False] * 5 + [True] + [False] * 2


def test_a_moldable_job_of_a_workload_asks_for_its_size() -> None:
    jobs = [workload_job(1, 0.0, job_class="train", directives="gpus=1-8")]
    site = site_of(CLUSTER, jobs)
    submitted = submitted_from(jobs, site)
    assert submitted[0].bounds.gpu_counts == (1, 2, 4, 8)
    assert Simulator(site, table_of(submitted, site)).run().tolist() == [0]


def test_without_partitions_all_nodes_are_one() -> None:
    cluster = ClusterDescription(nodes=CLUSTER.nodes)
    jobs = [workload_job(1, 0.0, partition="anything")]
    site = site_of(cluster, jobs)
    assert site.node_count == 3
    assert submitted_from(jobs, site)[0].partition == 0


def test_what_is_not_there_is_named() -> None:
    jobs = [workload_job(1, 0.0)]
    site = site_of(CLUSTER, jobs)
    with pytest.raises(ValueError, match="no partition 'debug'"):
        submitted_from([workload_job(1, 0.0, partition="debug")], site)
    with pytest.raises(ValueError, match="no user 'user0'"):
        submitted_from([workload_job(2, 0.0)], site)
    with pytest.raises(ValueError, match="not in the workload"):
        submitted_from([workload_job(3, 0.0, dependency=(Dependency("afterok", 2),))], site)
