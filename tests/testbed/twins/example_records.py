"""Small records of twin sites, for the tests of what compares them."""

from collections.abc import Mapping
from typing import Any

import msgspec

from rlalloc.job import Allocation, Bounds, Range
from rlalloc_twins.twin_plan import Plan, SiteName, Submission
from rlalloc_twins.twin_record import Decided, Ended, Look, NodeSeen, Run, SiteRecord, TwinJob, Update, Waited

REQUEST = Allocation(1, 4, 1, 4, 8000, 600)
SMALLER = Allocation(1, 2, 1, 2, 4000, 1200)
LARGER = Allocation(1, 8, 1, 8, 16000, 600)
BOUNDS = Bounds(
    gpus=Range(1, 8, "script", "script"),
    cpus_per_gpu=Range(1, 1, "request", "request"),
    mem_mib_per_gpu=Range(2000, 2000, "request", "request"),
    gpu_counts=(1, 2, 4, 8),
    task_per_gpu=False,
)
TAG = "rlalloc:v=1;mode=enforce;rule=llm;class=train;begin=1;user_begin=0;ask=gpus=1-8"
SUBMISSION = Submission(
    key="j1",
    form="-N1 --gres",
    at_s=2.0,
    user="llm-alice",
    options=("-N1", "--gres=gpu:4", "-c4", "--mem=8000", "--time=10"),
    gpus=4,
)
PLAN = Plan(seed=0, submissions=(SUBMISSION,))


def batch_of(size: Allocation, job_id: int, **more: str | None) -> dict[str, str]:
    """What the batch script of such a job sees without rlalloc; ``more`` adds, or with None removes."""
    variables: dict[str, str | None] = {
        "PATH": "/bin",
        "SLURM_JOB_ID": str(job_id),
        "SLURM_NNODES": str(size.nodes),
        "SLURM_JOB_NUM_NODES": str(size.nodes),
        "SLURM_CPUS_ON_NODE": str(size.cpus_per_node),
        "SLURM_JOB_CPUS_PER_NODE": str(size.cpus_per_node),
        "SLURM_TASKS_PER_NODE": "1",
        "SLURM_CPUS_PER_TASK": str(size.cpus_per_task),
        "SLURM_GPUS_ON_NODE": str(size.gpus_per_node),
        "SLURM_JOB_GPUS": ",".join(map(str, range(size.gpus_per_node))),
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, range(size.gpus_per_node))),
        "SLURM_MEM_PER_NODE": str(size.mem_mib_per_node),
        **more,
    }
    return {name: value for name, value in variables.items() if value is not None}


def ours(size: Allocation, job_id: int) -> dict[str, str | None]:
    """What rlalloc adds."""
    return {
        "SLURM_SCRIPT_CONTEXT": "prolog_task",
        "SLURM_SET_BY_RLALLOC": f"{job_id} SLURM_MEM_PER_NODE={size.mem_mib_per_node}",
        "RLALLOC_NODES": str(size.nodes),
        "RLALLOC_GPUS": str(size.gpus),
        "RLALLOC_GPUS_PER_NODE": str(size.gpus_per_node),
        "RLALLOC_CPUS_PER_NODE": str(size.cpus_per_node),
        "RLALLOC_CPUS_PER_TASK": str(size.cpus_per_task),
        "RLALLOC_MEM_MIB_PER_NODE": str(size.mem_mib_per_node),
        "RLALLOC_DP": str(size.gpus),
        "RLALLOC_TP": "1",
        "RLALLOC_PP": "1",
    }


def in_step(batch: Mapping[str, str]) -> dict[str, str]:
    """What the one task of a plain srun sees."""
    tasks = {"SLURM_NTASKS": "1", "SLURM_NPROCS": "1", "SLURM_TASKS_PER_NODE": "1", "SLURM_PROCID": "0"}
    step = {"SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "1", "SLURM_STEP_TASKS_PER_NODE": "1"}
    return {**batch, **tasks, **step, "SLURM_GTIDS": "0"}


def run_of(batch: Mapping[str, str], **changes: Any) -> Run:
    """One run of a script whose step was fine."""
    return msgspec.structs.replace(Run(batch=batch, steps={0: in_step(batch)}, status="0"), **changes)


def ended(size: Allocation, state: str = "COMPLETED", started_s: float = 12.0) -> Ended:
    """What sacct says of a job of this size."""
    tres = {"node": size.nodes, "cpu": size.cpus, "gres/gpu": size.gpus, "mem": size.mem_mib}
    exit_code = "1:0" if state == "FAILED" else "0:0"
    return Ended(state, exit_code, 10.0, started_s, started_s + 5.0, str(size.time_limit_s // 60), tres)


def job_without(**changes: Any) -> TwinJob:
    """The job on the site without rlalloc."""
    job = TwinJob(
        key="j1",
        job_id=11,
        tasks={"": ended(REQUEST)},
        records=({"JobId": "11", "Partition": "gpu", "MinMemoryNode": "8000M"},),
        runs={"0.0": run_of(batch_of(REQUEST, 11))},
    )
    return msgspec.structs.replace(job, **changes)


def job_with(size: Allocation = SMALLER, at_s: float = 11.0, **changes: Any) -> TwinJob:
    """The job on the site with rlalloc, which gave it this size."""
    update = Update(REQUEST, size, "begun", "verified as decided and let go", at_s)
    job = TwinJob(
        key="j1",
        job_id=21,
        tasks={"": ended(size)},
        records=({"JobId": "21", "Partition": "gpu", "MinMemoryNode": "8000M", "AdminComment": TAG},),
        runs={"0.0": run_of(batch_of(size, 21, **ours(size, 21)))},
        decisions=(Decided(at_s, REQUEST, size, BOUNDS, "", "", (update,)),),
    )
    return msgspec.structs.replace(job, **changes)


def record(site: SiteName, *jobs: TwinJob, looks: tuple[Look, ...] = ()) -> SiteRecord:
    """A site with these jobs."""
    return SiteRecord(
        site=site,
        slurm="slurm 22.05.8",
        began_s=0.0,
        took_s=60.0,
        load_of_machine=(1.0, 1.0, 1.0),
        jobs=jobs,
        looks=looks,
    )


def looks_of(job_id: int, reason: str, seconds: int, *, free_gpus: int = 4, ahead: int = 0) -> tuple[Look, ...]:
    """A look a second, in all of which the job waits for this reason; one node has so many GPUs free."""
    node = NodeSeen("n1", state="MIXED", gpus=free_gpus, cpus=64, mem_mib=512_000)
    waited = (Waited(job_id, reason, 100), *((Waited(99, "Resources", 200),) * ahead))
    return tuple(Look(20.0 + second, waited, (node,)) for second in range(seconds + 1))
