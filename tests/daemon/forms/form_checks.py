"""What a run of a cell has to show: the allocation, and an environment that agrees with it everywhere. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rlalloc.job import Allocation
from rlalloc_twins.environment_check import unexplained
from rlalloc_twins.environment_values import Changed, Given, says_memory

from .matrix import AS_SUBMITTED, RESTORED, SITE_CPUS, SITE_GPUS, Form
from .runs import Cell, Run, allocated

_RUNS: Final = frozenset({"SLURM_JOB_NAME", "SLURM_RESTART_COUNT"})
"""Variables that name the cell, or its second run."""


def problems_of(cell: Cell, form: Form, control: Cell) -> tuple[str, ...]:
    """Everything that is not as decided; ``control`` is the same form as submitted, with the plugin but no update."""
    if cell.size is None:
        return ("it was never sized",)
    return tuple(_problems(cell, cell.size, form, control))


def _problems(cell: Cell, size: Allocation, form: Form, control: Cell) -> Iterator[str]:
    if cell.problem:
        yield cell.problem
    if cell.state != "COMPLETED":
        yield f"ended {cell.state}"
    given = _given(cell, size, form)
    wanted = (given.nodes, given.cpus, given.gpus, given.mem_mib)
    if form.spread and cell.change == "restored":
        nodes, cpus, gpus, _ = allocated(cell)
        if cpus not in (size.cpus, nodes * size.cpus_per_node) or gpus not in (size.gpus, nodes * size.gpus_per_node):
            yield f"{cpus} CPUs and {gpus} GPUs on {nodes} nodes instead of {size.describe()}"
    elif allocated(cell) != wanted:
        yield f"nodes, CPUs, GPUs, MiB allocated: {allocated(cell)} instead of {wanted}"
    expected_runs = max(1, form.tasks_of_array) * (2 if cell.change == "requeued" else 1)
    if len(cell.runs) != expected_runs:
        yield f"{len(cell.runs)} runs instead of {expected_runs}"
    if form.spread and cell.change == "restored":
        return
    for run in cell.runs:
        yield from _problems_of_run(run, size, given, control.runs, cell.change)


def _given(cell: Cell, size: Allocation, form: Form) -> Allocation:
    """What the job holds: an exclusive one all of its nodes, as long as it is not resized.

    Since 24.11 (perhaps before) scontrol takes --exclusive away and cannot give it back: a restored job has what it
    asked for, and not the rest of its nodes.
    """
    keeps_nodes = cell.change == "as submitted" or allocated(cell)[2] > size.gpus
    if form.whole_nodes and cell.change in ("as submitted", "restored") and keeps_nodes:
        return Allocation(
            nodes=size.nodes,
            gpus_per_node=SITE_GPUS,
            tasks_per_node=1,
            cpus_per_task=SITE_CPUS,
            mem_mib_per_node=size.mem_mib_per_node,
            time_limit_s=size.time_limit_s,
        )
    return size


def _problems_of_run(
    run: Run, size: Allocation, given: Allocation, controls: Sequence[Run], change: str
) -> Iterator[str]:
    if run.status != "0":
        yield f"srun: exit status {run.status}: {run.errors[:200]}"
        return
    task = run.batch.get("SLURM_ARRAY_TASK_ID")
    control = next(each for each in controls if each.batch.get("SLURM_ARRAY_TASK_ID") == task)
    yield from _undocumented(run.batch, control.batch, size, given, change)
    if "SLURM_MEM_PER_NODE" in run.batch and {"SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU"} & set(run.batch):
        yield "memory per node, and per CPU or GPU: srun would refuse them together"
    yield from _problems_of_steps(run, size, given)


def _undocumented(
    batch: Mapping[str, str], control: Mapping[str, str], size: Allocation, given: Allocation, change: str
) -> list[str]:
    """What differs from the job as submitted otherwise than documented (docs/reference/environment.md).

    A restored job has its request in its own terms, or in those of a size: either is documented.
    """
    before, after = ({name: value for name, value in each.items() if name not in _RUNS} for each in (control, batch))
    asks = "SLURM_NTASKS" in before or "SLURM_NTASKS_PER_NODE" in before
    has = Given(
        nodes=given.nodes,
        gpus=given.gpus,
        gpus_per_node=given.gpus_per_node,
        cpus_per_node=given.cpus_per_node,
        tasks_per_node=size.tasks_per_node,
        cpus_per_task=size.cpus_per_task,
        mem_mib_per_node=given.mem_mib_per_node,
    )
    job = Changed(before, has, after.get("SLURM_JOB_ID", ""), asks, says_memory(before), resized=True)
    found = []
    if change != AS_SUBMITTED:
        found.append(list(unexplained(job, after, "batch", "resized jobs", same_size=False)))
    if change in (AS_SUBMITTED, RESTORED):
        same = has.gpus_per_node == int(before.get("SLURM_GPUS_ON_NODE", 0))
        of_request = job._replace(resized=False)
        found.append(list(unexplained(of_request, after, "batch", "jobs of rlalloc", same_size=same)))
    return min(found, key=len)


def _problems_of_steps(run: Run, size: Allocation, given: Allocation) -> Iterator[str]:
    count = size.nodes * size.tasks_per_node
    if len(run.steps) != count:
        yield f"{len(run.steps)} tasks instead of {count}: {run.steps[:3]}"
    by_task = (
        "SLURM_GPUS_PER_TASK" in run.batch
        or "SLURM_NTASKS_PER_GPU" in run.batch
        or "gpu" in run.batch.get("SLURM_TRES_PER_TASK", "")
    )
    gpus_of_task = size.gpus_per_node // size.tasks_per_node if by_task else size.gpus_per_node
    for number, line in enumerate(run.steps):
        words = line.split()
        wanted = [str(number), str(count), str(size.nodes), str(size.nodes), str(given.gpus)]
        if [*words[:3], *words[4:]] != wanted:
            yield f"a task sees {line!r}"
        elif len(words[3].split(",")) not in (gpus_of_task, given.gpus_per_node):
            yield f"a task has GPUs {words[3]}, not {gpus_of_task}"
