"""The forms of submission and the changes that are tried on each: what a cell of the table is."""

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from rlalloc.job import Allocation

SITE_GPUS: Final = 8
SITE_CPUS: Final = 64
SITE_MEM_MIB: Final = 512_000
FEATURE: Final = "fast"


class Form(NamedTuple):
    """A way to submit a job. Small sizes, so that many run at a time.

    ``waits`` is for a job that depends on another one meanwhile. ``spread``: as submitted, it is on as many
    nodes as Slurm likes, each with as many GPUs.
    """

    options: str
    whole_nodes: bool = False
    all_memory: bool = False
    task_per_gpu: bool = False
    waits: bool = False
    tasks_of_array: int = 0
    spread: bool = False


PLAIN: Final = "--gres=gpu:2 -c 2 --mem=4000"
FORMS: Final[dict[str, Form]] = {
    "-N1 --gres": Form(f"-N1 {PLAIN}"),
    "--gres alone": Form("--gres=gpu:2"),
    "--gres, typed": Form("-N1 --gres=gpu:a100:2 -c 2 --mem=4000"),
    "-N2 --gpus-per-node --ntasks-per-node=1": Form("-N2 --gpus-per-node=2 --ntasks-per-node=1 -c 2 --mem=4000"),
    "-N2, one task per GPU": Form("-N2 --gpus-per-node=2 --ntasks-per-node=2 -c 2 --mem=4000", task_per_gpu=True),
    "-n without -N": Form("-n 4 --gres=gpu:2 -c 2 --mem=4000", spread=True),
    "--gpus -n": Form("--gpus=2 -n 2 -c 2 --mem=4000", spread=True, task_per_gpu=True),
    "-N1 --gpus": Form("-N1 --gpus=2 -c 2 --mem=4000"),
    "-N2 --gpus, typed": Form("-N2 --gpus=a100:4 -c 2 --mem=4000", spread=True),
    "-n --gpus-per-task": Form("-n 2 --gpus-per-task=1 -c 2 --mem=4000", spread=True, task_per_gpu=True),
    "--gpus --ntasks-per-gpu": Form("--gpus=2 --ntasks-per-gpu=1 --mem=4000", spread=True, task_per_gpu=True),
    "-n --ntasks-per-gpu": Form("-n 2 --ntasks-per-gpu=1 -c 2 --mem=4000", spread=True, task_per_gpu=True),
    "--cpus-per-gpu --mem-per-gpu": Form("-N1 --gpus=2 --cpus-per-gpu=2 --mem-per-gpu=2000"),
    "--mem-per-cpu": Form("-N1 --gres=gpu:2 -c 2 --mem-per-cpu=2000"),
    "-N 1-4": Form("-N1-4 --gpus-per-node=2 --ntasks-per-node=1 -c 2 --mem=4000", spread=True),
    "--gpus-per-socket": Form("-N1 --gpus-per-socket=1 --sockets-per-node=2 -n 2 -c 2 --mem=4000", spread=True),
    "--mincpus": Form("-N1 --gres=gpu:2 --mincpus=4 --mem=4000"),
    "--mem=0": Form("-N1 --gres=gpu:2 -c 2 --mem=0", all_memory=True),
    "--exclusive": Form(f"-N1 {PLAIN} --exclusive", whole_nodes=True),
    "-N2 --exclusive --mem=0": Form("-N2 --gres=gpu:2 -c 2 --exclusive --mem=0", whole_nodes=True, all_memory=True),
    "--nodelist": Form(f"-N2 {PLAIN} --nodelist=n1,n2"),
    "--exclude": Form(f"-N1 {PLAIN} --exclude=n1"),
    "--constraint": Form(f"-N1 {PLAIN} --constraint={FEATURE}"),
    "--hint=nomultithread": Form(f"-N1 {PLAIN} --hint=nomultithread"),
    "--contiguous": Form(f"-N2 {PLAIN} --contiguous"),
    "--signal": Form(f"-N1 {PLAIN} --signal=B:USR1@60"),
    "--requeue": Form(f"-N1 {PLAIN} --requeue"),
    "--hold": Form(f"-N1 {PLAIN} --hold"),
    "--begin": Form(f"-N1 {PLAIN} --begin=now+3hours"),
    "--dependency=afterok": Form(f"-N1 {PLAIN}", waits=True),
    "--array": Form(f"-N1 {PLAIN} --array=1-2", tasks_of_array=2),
}

# Forms that are not resized, by the name under which they are skipped. Each runs as submitted.
SKIPPED: Final[dict[str, tuple[str, str]]] = {
    "heterogeneous job": (f"-N1 {PLAIN} : -N1 --gres=gpu:1 -c 1 --mem=1000", "heterogeneous"),
    "--deadline": (f"-N1 {PLAIN} --deadline=now+9hours", "deadline"),
    "--time-min": (f"-N1 {PLAIN} --time-min=1", "time-min"),
    "--reservation": (f"-N1 {PLAIN} --reservation=forms", "reservation"),
    "--overcommit": ("-N1 --gres=gpu:2 -n 4 --overcommit --gpu-bind=per_task:1 --mem=4000", "overcommit"),
    "--ntasks-per-socket": ("-N1 --gres=gpu:2 -n 2 --ntasks-per-socket=1 --mem=4000", "tasks-per-socket"),
    "--gpus with --gpus-per-node": (
        "-N2 --gpus=4 --gpus-per-node=2 -c 2 --mem=4000",
        "several-gpu-options",
    ),
    "-m arbitrary": ("-n 2 --gpus-per-node=2 -m arbitrary -w n1,n2 -c 2 --mem=4000", "arbitrary"),
    "unequal nodes": ("-N2 -n 3 --gres=gpu:2 --mem=4000", "uneven"),
    "no GPUs": ("-N1 -c 2 --mem=4000", "no-gpus"),
}

Change = Callable[[Allocation, Form], Allocation]


def _gpus(factor: float) -> Change:
    def change(size: Allocation, form: Form) -> Allocation:
        gpus = max(1, int(size.gpus_per_node * factor))
        tasks = gpus if form.task_per_gpu else size.tasks_per_node
        return msgspec.structs.replace(size, gpus_per_node=gpus, tasks_per_node=tasks)

    return change


def _field(name: str, factor: float) -> Change:
    def change(size: Allocation, _form: Form) -> Allocation:
        return msgspec.structs.replace(size, **{name: max(1, int(getattr(size, name) * factor))})

    return change


def _together(*changes: Change) -> Change:
    def change(size: Allocation, form: Form) -> Allocation:
        for each in changes:
            size = each(size, form)
        return size

    return change


_CPUS, _MEMORY, _NODES = "cpus_per_task", "mem_mib_per_node", "nodes"
SHRINK: Final = _together(_gpus(0.5), _field(_NODES, 0.5), _field(_CPUS, 0.5), _field(_MEMORY, 0.5))
CHANGES: Final[dict[str, Change]] = {
    "fewer GPUs": _gpus(0.5),
    "more GPUs": _gpus(2),
    "fewer nodes": _field(_NODES, 0.5),
    "more nodes": _field(_NODES, 2),
    "CPUs down": _field(_CPUS, 0.5),
    "CPUs up": _field(_CPUS, 2),
    "memory down": _field(_MEMORY, 0.5),
    "memory up": _field(_MEMORY, 2),
    "all down": SHRINK,
    "all up": _together(_gpus(2), _field(_NODES, 2), _field(_CPUS, 2), _field(_MEMORY, 2)),
}
AS_SUBMITTED: Final = "as submitted"
RESTORED: Final = "restored"
REQUEUED: Final = "requeued"
COLUMNS: Final = (*CHANGES, REQUEUED, RESTORED)


def wanted(request: Allocation, form: Form, change: str) -> Allocation | None:
    """The size of a cell; None where the change is none for this form."""
    if change == REQUEUED:
        return SHRINK(request, form)
    if change in (AS_SUBMITTED, RESTORED):
        return request
    size = CHANGES[change](request, form)
    size = msgspec.structs.replace(size, mem_mib_per_node=min(size.mem_mib_per_node, SITE_MEM_MIB))
    return size if size != request else None
