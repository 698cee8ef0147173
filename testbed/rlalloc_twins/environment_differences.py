"""What rlalloc changes in a job's environment: every difference there may be from the same job without rlalloc.

One table (``DIFFERENCES``) for docs/reference/environment.md, the tests of submission forms and ``make floor``.
Whatever it does not name has to be the same.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, Literal, NamedTuple

from rlalloc_twins.environment_values import (
    ANY,
    GPU_LISTS,
    Changed,
    Expected,
    binding,
    each_node,
    gpu_list,
    per_task,
    quotient,
    with_count,
)

Whose = Literal["every job", "jobs of rlalloc", "resized jobs"]
Where = Literal["batch", "step"]
Value = Callable[[Changed, str], Expected | int]


class Difference(NamedTuple):
    """Variables, in whose jobs and where they differ, their new value in words, and how it follows.

    ``by`` is who sets it. ``if_there``: only where it is there without rlalloc; else it is not there either.
    """

    whose: Whose
    by: Literal["Slurm", "TaskProlog"]
    names: tuple[str, ...]
    says: str
    value: Value
    where: tuple[Where, ...] = ("batch", "step")
    if_there: bool = False

    def expected(self, job: Changed, name: str) -> Expected:
        """The value that the variable has to have."""
        if job.in_step and name.startswith("RLALLOC_") and job.before.get("SLURM_EXPORT_ENV") == "NONE":
            return None  # as submitted with --export=NONE: srun hands on Slurm's variables only
        if self.if_there and name not in job.before:
            return None
        value = self.value(job, name)
        return str(value) if isinstance(value, int) else value


def _row(
    whose: Whose,
    by: Literal["Slurm", "TaskProlog"],
    names: str,
    says: str,
    value: Value,
    *,
    only_in: Where | None = None,
    if_there: bool = False,
) -> Difference:
    where: tuple[Where, ...] = ("batch", "step") if only_in is None else (only_in,)
    return Difference(whose, by, tuple(names.split()), says, value, where, if_there)


_added = partial(_row, "jobs of rlalloc", "TaskProlog")
_given = partial(_row, "resized jobs", "Slurm")
_set = partial(_row, "resized jobs", "TaskProlog")
_set_if_there = partial(_set, if_there=True)

DIFFERENCES: Final[tuple[Difference, ...]] = (
    _row(
        "every job",
        "Slurm",
        "SLURM_SCRIPT_CONTEXT",
        "`prolog_task`: Slurm sets it on every site that has a TaskProlog",
        lambda *_: "prolog_task",
    ),
    _added("RLALLOC_NODES", "nodes", lambda job, _: job.given.nodes),
    _added("RLALLOC_GPUS", "GPUs in all", lambda job, _: job.given.gpus),
    _added("RLALLOC_GPUS_PER_NODE", "GPUs per node", lambda job, _: job.given.gpus_per_node),
    _added("RLALLOC_CPUS_PER_NODE", "CPUs per node", lambda job, _: job.given.cpus_per_node),
    _added("RLALLOC_CPUS_PER_TASK", "CPUs per task", lambda job, _: job.given.cpus_per_task),
    _added(
        "RLALLOC_TASKS_PER_NODE",
        "tasks per node, if the job asks for tasks",
        lambda job, _: job.given.tasks_per_node if job.asks_for_tasks else None,
    ),
    _added(
        "RLALLOC_MEM_MIB_PER_NODE",
        "MiB per node, if the job was resized or `SLURM_MEM_PER_*` say it in one way",
        lambda job, _: job.given.mem_mib_per_node if job.resized or job.says_memory else None,
    ),
    _added(
        "RLALLOC_DP RLALLOC_TP RLALLOC_PP",
        "data-, tensor- and pipeline-parallel ranks of the plan; without one, data parallelism alone, or nothing if "
        "the script may name a model",
        lambda job, name: ANY if job.may_name_model else job.given.gpus if name == "RLALLOC_DP" else 1,
    ),
    _added(
        "SLURM_SET_BY_RLALLOC",
        "the job's id and the variables of its size ([jobs inside jobs](#jobs-inside-jobs))",
        lambda job, _: job.job_id,
    ),
    _given("SLURM_NNODES SLURM_JOB_NUM_NODES", "nodes", lambda job, _: job.given.nodes),
    _given("SLURM_STEP_NUM_NODES", "nodes", lambda job, _: job.given.nodes, only_in="step"),
    _given("SLURM_CPUS_ON_NODE", "CPUs per node", lambda job, _: job.given.cpus_per_node),
    _given(
        "SLURM_JOB_CPUS_PER_NODE SLURM_JOB_CPUS_PER_NODE_PACK_GROUP_0",
        "CPUs of each node",
        lambda job, _: each_node(job.given.cpus_per_node, job.given.nodes),
        if_there=True,
    ),
    _given(
        "SLURM_JOB_EXCLUSIVE",
        "`NO` if the job asked for `--exclusive`: it shares its nodes (Slurm 26.05)",
        lambda job, name: "NO" if job.before[name] == "NODE" else job.before[name],
        if_there=True,
    ),
    _given(
        "SLURM_JOB_OVERSUBSCRIBE",
        "`YES` likewise; `NO` if the request came back",
        lambda job, name: ANY if job.before.get("SLURM_JOB_EXCLUSIVE") == "NODE" else job.before[name],
        if_there=True,
    ),
    _given("SLURM_GPUS_ON_NODE", "GPUs per node", lambda job, _: job.given.gpus_per_node, if_there=True),
    _given(" ".join(GPU_LISTS), "the GPUs of the job on this node; in a task, its own", gpu_list, if_there=True),
    _given("SLURM_MEM_PER_NODE", "MiB per node", lambda job, _: job.given.mem_mib_per_node),
    _given(
        "SLURM_CPUS_PER_TASK",
        "CPUs per task; if a user's update left the job fewer CPUs, the TaskProlog lowers this value "
        "([why](../explanation/limits.md#waiting-by-our-doing))",
        lambda job, _: job.given.cpus_per_task,
        if_there=True,
    ),
    _given(
        "SLURM_TASKS_PER_NODE",
        "tasks of each node; without a number of tasks, as many as its CPUs hold",
        lambda job, _: each_node(job.given.tasks_per_node, job.given.nodes),
        only_in="batch",
    ),
    _given(
        "SLURM_TASKS_PER_NODE SLURM_STEP_TASKS_PER_NODE",
        "tasks of the step on each node",
        lambda job, _: each_node(job.step_tasks // job.given.nodes, job.given.nodes),
        only_in="step",
    ),
    _given(
        "SLURM_STEP_NUM_TASKS SLURM_NTASKS SLURM_NPROCS",
        "tasks of the step",
        lambda job, _: job.step_tasks,
        only_in="step",
    ),
    _given(
        "SLURM_GTIDS",
        "numbers of the step's tasks on this node",
        lambda job, _: f"{job.step_tasks // job.given.nodes} tasks",
        only_in="step",
    ),
    _given(
        "SLURM_DISTRIBUTION",
        "Slurm's own choice for so many tasks",
        lambda *_: ANY,
        only_in="step",
        if_there=True,
    ),
    _given(
        "SLURMD_TRES_BIND",
        "the binding of `--gpus-per-task`; Slurm sets none in a task that is alone on its node",
        lambda *_: ANY,
        only_in="step",
    ),
    _given(
        "SLURM_NTASKS_PER_TRES",
        "as `SLURM_NTASKS_PER_GPU`",
        lambda job, name: quotient(job, name, job.given.tasks_per_node, job.given.gpus_per_node),
        only_in="step",
        if_there=True,
    ),
    _set_if_there(
        "SLURM_NTASKS SLURM_NPROCS",
        "tasks",
        lambda job, _: job.given.nodes * job.given.tasks_per_node,
        only_in="batch",
    ),
    _set_if_there("SLURM_NTASKS_PER_NODE", "tasks per node", lambda job, _: job.given.tasks_per_node),
    _set_if_there(
        "SLURM_GPUS",
        "GPUs in all; the type stays",
        lambda job, name: with_count(job.before[name], job.given.gpus),
    ),
    _set_if_there(
        "SLURM_GPUS_PER_NODE",
        "GPUs per node; the type stays",
        lambda job, name: with_count(job.before[name], job.given.gpus_per_node),
    ),
    _set_if_there(
        "SLURM_GPUS_PER_TASK",
        "GPUs per task; removed if that is no whole number",
        lambda job, name: quotient(job, name, job.given.gpus_per_node, job.given.tasks_per_node),
    ),
    _set_if_there(
        "SLURM_NTASKS_PER_GPU",
        "tasks per GPU; removed if that is no whole number",
        lambda job, name: quotient(job, name, job.given.tasks_per_node, job.given.gpus_per_node),
    ),
    _set_if_there(
        "SLURM_CPUS_PER_GPU",
        "CPUs per GPU; removed if that is no whole number",
        lambda job, name: quotient(job, name, job.given.cpus_per_node, job.given.gpus_per_node),
    ),
    _set_if_there(
        "SRUN_CPUS_PER_TASK",
        "at most the CPUs per task",
        lambda job, name: min(int(job.before[name]), job.given.cpus_per_task),
    ),
    _set_if_there("SLURM_TRES_PER_TASK", "CPUs and GPUs per task; removed if these are no whole numbers", per_task),
    _set_if_there(
        "SLURM_TRES_BIND",
        "the binding of `--gpus-per-task` and `--ntasks-per-gpu`; removed if it is for no whole number",
        binding,
    ),
    _set(
        "SLURM_MEM_PER_CPU SLURM_MEM_PER_GPU",
        "removed: srun refuses them beside `SLURM_MEM_PER_NODE`",
        lambda *_: None,
    ),
    _set("SLURM_GPUS_PER_SOCKET", "removed", lambda *_: None),
)


def table() -> str:
    """The table as a page shows it."""
    rows = ["| variable | jobs | script or step | set by | only if set | value |", "|---|---|---|---|---|---|"]
    for each in DIFFERENCES:
        names = ", ".join(f"`{name}`" for name in each.names)
        where = "both" if len(each.where) > 1 else {"batch": "script", "step": "step"}[each.where[0]]
        condition = "yes" if each.if_there else ""
        rows.append(f"| {names} | {each.whose} | {where} | {each.by} | {condition} | {each.says} |")
    return "\n".join(rows)
