"""The fields of one update of a pending job: a size in absolute terms, or the job's own terms again. Pure functions.

An update is not atomic, and a kind of request that it leaves out stays in force. So each update sets every kind, and
clears those that do not apply. Why each field is there: docs/explanation/submission-forms.md.
"""

from typing import Final

import msgspec

from rlalloc.job import Allocation
from rlallocd.slurm import JobRecord, UpdatePlan
from rlallocd.submissions.job_tag import fits_slurmdbd, was_resized, with_reading

NODES_WITHOUT_END: Final = 65_533
"""Stands for "no maximum": scontrol has no word that removes a maximum of nodes."""


def plan_update(job: JobRecord, size: Allocation, admin_comment: str) -> UpdatePlan:
    """The update that makes ``job`` ask for exactly ``size``, whatever the form in which it was submitted.

    The AdminComment is left as it is where the new one would be longer than slurmdbd keeps.
    """
    return without_same_tasks(without_empty_memory(_plan(job, _absolute(job, size), admin_comment), job), job)


def as_read(plan: UpdatePlan, read_s: float | None) -> UpdatePlan:
    """The same update, which rlalloc.lua refuses if the job may have changed since ``read_s`` (seconds of uptime).

    If the update leaves the AdminComment as it is, it is never refused; likewise without ``read_s``.
    """
    if read_s is None:
        return plan
    fields = tuple(
        (name, with_reading(value, read_s) if name == "AdminComment" else value) for name, value in plan.fields
    )
    return msgspec.structs.replace(plan, fields=fields)


def without_empty_memory(plan: UpdatePlan, job: JobRecord) -> UpdatePlan:
    """The same update without MemPerTres, unless ``job``, as it was read last, has one that is to go.

    Beside an empty MemPerTres, Slurm shows no memory per node (24.11 to 26.05), so what was set is no longer known.
    """
    return plan.without("MemPerTres") if job.fields.reported and not job.fields.mem_per_tres else plan


def without_same_nodes(plan: UpdatePlan, job: JobRecord) -> UpdatePlan:
    """The same update without NumNodes, where ``job``, as it was read last, has exactly as many nodes.

    Before an update with NumNodes, scontrol asks slurmctld about the job, which takes longer than the update. For an
    array, it stays: once some tasks have job ids of their own, Slurm refuses NumNodes, but would carry out the rest.
    """
    asked = job.fields
    same = ("NumNodes", f"{asked.min_nodes}-{asked.max_nodes}") in plan.fields
    return plan.without("NumNodes") if same and not job.array_job_id else plan


def without_same_tasks(plan: UpdatePlan, job: JobRecord) -> UpdatePlan:
    """The same update without NumTasks and TasksPerNode, where ``job``, as it was read last, is one task on one node.

    Its request may name neither, and no update takes them away again. With them, Slurm finds no node for a larger
    MinCPUsNode that the job's user sets (22.05, 24.11). A job with CPUs per GPU (no ``has_own_terms``) keeps both:
    without NumTasks, Slurm would keep the sum of these CPUs.
    """
    asked = job.fields
    is_one = (job.tasks, asked.min_nodes or job.nodes, asked.tasks_per_node) == (1, 1, 0)
    stays_one = ("NumTasks", "1") in plan.fields and dict(plan.fields).get("NumNodes", "1").partition("-")[0] == "1"
    return plan.without("NumTasks", "TasksPerNode") if is_one and stays_one and has_own_terms(job) else plan


def plan_nice(job: JobRecord, nice: int, admin_comment: str) -> UpdatePlan:
    """The update that changes only the nice of ``job``, which keeps its size."""
    return _plan(job, {"Nice": str(nice)}, admin_comment)


def plan_restoration(original: JobRecord, size: Allocation, admin_comment: str) -> UpdatePlan:
    """The update that gives a job its request back, in its own terms as far as scontrol has fields for them.

    Without such fields (see has_own_terms), the job gets the ``size`` that it asked for in absolute terms. A job
    without a maximum of nodes gets one that no cluster reaches.
    """
    asked = original.fields
    if not has_own_terms(original):
        exclusive_again = {"OverSubscribe": "NO"} if original.is_exclusive else {}
        return _plan(original, _absolute(original, size) | exclusive_again, admin_comment)
    return _plan(
        original,
        {
            "NumNodes": f"{asked.min_nodes}-{asked.max_nodes or NODES_WITHOUT_END}",
            "NumTasks": str(original.tasks),
            "TasksPerNode": str(asked.tasks_per_node),
            "CPUsPerTask": str(asked.cpus_per_task or max(1, asked.min_cpus // original.tasks)),
            "NumCPUs": str(asked.min_cpus),
            "MinCPUsNode": str(asked.min_cpus_per_node),
            **(
                {"MinMemoryCPU": str(asked.mem_mib_per_cpu)}
                if asked.mem_mib_per_cpu
                else {"MinMemoryNode": str(asked.mem_mib_per_node or _memory_of_ours(original, size))}
            ),
            "TresPerNode": asked.tres_per_node,
            "TresPerJob": asked.tres_per_job,
            "TresPerTask": asked.tres_per_task,
            "TresPerSocket": "",
            **_no_gpu_terms(original),
            **({"OverSubscribe": "NO"} if original.is_exclusive else {}),
            **({"ReqNodeList": original.required_nodes} if original.required_nodes else {}),
            "TimeLimit": str(original.time_limit_s // 60),
        },
        admin_comment,
    )


def _memory_of_ours(job: JobRecord, size: Allocation) -> int:
    """MiB per node of a job without any in its record: what an earlier update of ours set, or 0, which is all.

    Where that update has cleared --mem-per-gpu, Slurm does not show it.
    """
    return size.mem_mib_per_node if was_resized(job.admin_comment) else 0


def _absolute(job: JobRecord, size: Allocation) -> dict[str, str]:
    """Every field of a size, in the order in which scontrol is to get them."""
    name = "shard" if job.is_shard else "gpu"
    gpu = f"gres:{name}:{job.gpu_type + ':' if job.gpu_type else ''}{size.gpus_per_node}"
    return {
        **_node_list(job, size),
        # A type in TresPerNode is refused where the request names none (docs/explanation/submission-forms.md).
        **({} if size.gpu_type is None else {"ExcNodeList": size.gpu_type.excluded_nodes}),
        "NumNodes": f"{size.nodes}-{size.nodes}",
        "NumTasks": str(size.nodes * size.tasks_per_node),
        "TasksPerNode": str(size.tasks_per_node),
        "CPUsPerTask": str(size.cpus_per_task),
        "NumCPUs": str(size.cpus),
        "MinCPUsNode": str(size.cpus_per_node),
        "MinMemoryNode": str(size.mem_mib_per_node),
        "TresPerNode": gpu,
        "TresPerJob": "",
        "TresPerTask": "",
        "TresPerSocket": "",
        **_no_gpu_terms(job),
        # An exclusive job gets all GPUs and CPUs of its nodes, whatever it asks for.
        **({"OverSubscribe": "YES"} if job.is_exclusive else {}),
        "TimeLimit": str(size.time_limit_s // 60),
    }


def _no_gpu_terms(job: JobRecord) -> dict[str, str]:
    """Clear CPUs and memory per GPU. 25.11 refuses these fields for a job in shards, even empty."""
    return {} if job.is_shard else {"CpusPerTres": "", "MemPerTres": ""}


def has_own_terms(job: JobRecord) -> bool:
    """Whether scontrol can repeat the request in its own terms, as tried (docs/explanation/submission-forms.md).

    It has no field for --ntasks-per-gpu; it refuses TresPerSocket; memory per GPU and a least number of CPUs a node
    (--mincpus) lose against the memory per CPU and the CPUs per task that have to be in the same message.
    """
    asked = job.fields
    per_task = max(1, asked.min_cpus // job.tasks)
    return (
        bool(asked.tres_per_node or asked.tres_per_job or asked.tres_per_task)
        and not (asked.tres_per_socket or asked.cpus_per_tres or asked.mem_per_tres)
        and asked.min_cpus_per_node <= per_task * max(1, asked.tasks_per_node)
    )


def _node_list(job: JobRecord, size: Allocation) -> dict[str, str]:
    return {"ReqNodeList": ""} if clears_node_list(job, size) else {}


def clears_node_list(job: JobRecord, size: Allocation) -> bool:
    """Whether an update clears the list of named nodes: Slurm refuses more of them than the job is to have."""
    return bool(job.required_nodes) and size.nodes < (job.fields.min_nodes or job.nodes)


def _plan(job: JobRecord, fields: dict[str, str], admin_comment: str) -> UpdatePlan:
    if fits_slurmdbd(admin_comment):
        fields["AdminComment"] = admin_comment
    return UpdatePlan(job_id=job.job_id, fields=tuple(fields.items()))
