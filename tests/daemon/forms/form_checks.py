"""What a run of a cell has to show: the allocation, and an environment that agrees with it everywhere. Pure."""

from collections.abc import Iterator, Mapping

from rlalloc.job import Allocation

from .matrix import SITE_CPUS, SITE_GPUS, Form
from .runs import Cell, Run, allocated


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
        yield from _problems_of_run(run, size, given)
        if control.runs:
            yield from _made_up(run.batch, control.runs[0].batch)


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


def _problems_of_run(run: Run, size: Allocation, given: Allocation) -> Iterator[str]:
    if run.status != "0":
        yield f"srun: exit status {run.status}: {run.errors[:200]}"
        return
    batch = run.batch
    for name, value in _always(given).items():
        if batch.get(name) != value:
            yield f"{name}={batch.get(name)} instead of {value}"
    for name, value in _where_asked(size, given).items():
        if name in batch and batch[name].rpartition(":")[2] != value:
            yield f"{name}={batch[name]} instead of {value}"
    if "SLURM_MEM_PER_NODE" in batch and {"SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU"} & set(batch):
        yield "memory per node, and per CPU or GPU: srun would refuse them together"
    yield from _problems_of_steps(run, size, given)


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


def _always(given: Allocation) -> dict[str, str]:
    """What every batch script has to see."""
    counts = {
        "SLURM_NNODES": given.nodes,
        "SLURM_JOB_NUM_NODES": given.nodes,
        "SLURM_GPUS_ON_NODE": given.gpus_per_node,
        "SLURM_CPUS_ON_NODE": given.cpus_per_node,
        "RLALLOC_NODES": given.nodes,
        "RLALLOC_GPUS": given.gpus,
        "RLALLOC_GPUS_PER_NODE": given.gpus_per_node,
        "RLALLOC_CPUS_PER_NODE": given.cpus_per_node,
    }
    return {name: str(count) for name, count in counts.items()}


def _where_asked(size: Allocation, given: Allocation) -> dict[str, str]:
    """What a batch script has to see if it sees it at all, less a GPU's type."""
    counts = {
        "SLURM_NTASKS": size.nodes * size.tasks_per_node,
        "SLURM_NPROCS": size.nodes * size.tasks_per_node,
        "SLURM_NTASKS_PER_NODE": size.tasks_per_node,
        "SLURM_GPUS": size.gpus,
        "SLURM_GPUS_PER_NODE": size.gpus_per_node,
        "SLURM_GPUS_PER_TASK": size.gpus_per_node / size.tasks_per_node,
        "SLURM_NTASKS_PER_GPU": size.tasks_per_node / size.gpus_per_node,
        "SLURM_CPUS_PER_TASK": size.cpus_per_task,
        "SLURM_CPUS_PER_GPU": size.cpus_per_node / size.gpus_per_node,
        "SLURM_MEM_PER_NODE": given.mem_mib_per_node,
        "RLALLOC_TASKS_PER_NODE": size.tasks_per_node,
        "RLALLOC_MEM_MIB_PER_NODE": given.mem_mib_per_node,
    }
    return {name: f"{count:g}" if isinstance(count, float) else str(count) for name, count in counts.items()}


def _made_up(batch: Mapping[str, str], control: Mapping[str, str]) -> Iterator[str]:
    """Launchers read task counts for the user's own: a job that asked for none must not come to have any."""
    for name in ("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE", "SLURM_GPUS", "SLURM_GPUS_PER_NODE"):
        if (name in batch) != (name in control):
            yield f"{name} is {batch.get(name, 'not there')}, as submitted {control.get(name, 'not there')}"
