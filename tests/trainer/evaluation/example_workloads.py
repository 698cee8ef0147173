"""Small workloads for the benchmark's tests: two nodes of 8 GPUs, jobs that can be followed by hand."""

from collections.abc import Sequence

from rlalloc_simulator.truths.sites import WeekWorkload
from rlalloc_simulator.workloads import Checkpoint, ClusterDescription, Needs, NodeGroup, Request, WorkloadJob

CLUSTER = ClusterDescription(nodes=(NodeGroup("n", 2, 8, 64, 512_000),))


def workload_job(number: int, submit_s: float, *, gpus: int, run_s: float, user: str = "ada") -> WorkloadJob:
    """A moldable job that asks for twice the time it needs."""
    nodes = max(1, gpus // 8)
    return WorkloadJob(
        id=number,
        submit_s=submit_s,
        user=user,
        job_class="train",
        request=Request(
            nodes=nodes,
            gpus_per_node=gpus // nodes,
            tasks_per_node=1,
            cpus_per_task=4 * (gpus // nodes),
            mem_mib_per_node=16_000 * (gpus // nodes),
            time_limit_s=round(2 * run_s),
        ),
        needs=Needs(run_time_s=run_s, cpu_fraction=0.5, max_rss_mib=4_000.0),
        directives=f"gpus=1-{2 * gpus}",
        checkpoint=Checkpoint(every_s=600.0, restart_s=30.0),
    )


def workload_of(submits_s: Sequence[float], *, gpus: int, run_s: float) -> WeekWorkload:
    """Jobs alike, submitted at ``submits_s``."""
    return WeekWorkload(
        CLUSTER,
        tuple(workload_job(number, at, gpus=gpus, run_s=run_s) for number, at in enumerate(submits_s, 1)),
    )
