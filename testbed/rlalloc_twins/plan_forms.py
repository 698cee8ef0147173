"""Options of sbatch by form of submission, drawn by chance: the rows of docs/explanation/submission-forms.md.

A form's name is that of ``tests/daemon/forms/matrix.py``; a test compares the two.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Final, NamedTuple

from rlalloc_twins.twin_nodes import FEATURES, TYPES


class Asked(NamedTuple):
    """The options of one submission, and how many GPUs they mean in all, on how many nodes at least.

    ``held`` and ``begin`` say why it waits at first; ``tasks`` whether it asks for tasks that go with GPUs;
    ``by_node`` whether it is GPUs, CPUs and memory of one node; ``plain`` whether it says nothing else.
    """

    options: tuple[str, ...]
    gpus: int
    nodes: int = 1
    held: bool = False
    begin: bool = False
    tasks: bool = False
    array: bool = False
    plain: bool = False
    by_node: bool = False


def _gpus(random: Random) -> int:
    return random.choice((1, 1, 2, 2, 3, 4))


def _few(random: Random) -> tuple[str, ...]:
    """CPUs and memory as most people ask for them."""
    return f"-c{random.choice((1, 2, 4))}", f"--mem={random.choice((2000, 4000, 8000, 16000))}"


def _plain(random: Random) -> Asked:
    gpus = _gpus(random)
    return Asked(("-N1", f"--gres=gpu:{gpus}", *_few(random)), gpus, plain=True, by_node=True)


def _with(*words: str, **changes: bool) -> Callable[[Random], Asked]:
    """A plain request with further options."""

    def draw(random: Random) -> Asked:
        asked = _plain(random)
        return asked._replace(options=(*asked.options, *words), plain=False, **changes)

    return draw


def _gres_alone(random: Random) -> Asked:
    gpus = _gpus(random)
    return Asked((f"--gres=gpu:{gpus}",), gpus)


def _typed(random: Random) -> Asked:
    gpus, kind = _gpus(random), random.choice(TYPES)
    return Asked(("-N1", f"--gres=gpu:{kind}:{min(gpus, 2)}", *_few(random)), min(gpus, 2))


def _nodes_with_gpus(random: Random) -> Asked:
    gpus, nodes = random.choice((1, 2, 4)), random.choice((2, 2, 3))
    return Asked((f"-N{nodes}", f"--gpus-per-node={gpus}", "--ntasks-per-node=1", *_few(random)), nodes * gpus, nodes)


def _task_per_gpu(random: Random) -> Asked:
    gpus = random.choice((1, 2, 4))
    options = ("-N2", f"--gpus-per-node={gpus}", f"--ntasks-per-node={gpus}", "-c1", "--mem=4000")
    return Asked(options, 2 * gpus, 2, tasks=True)


def _tasks_without_nodes(random: Random) -> Asked:
    gpus = random.choice((1, 2))
    return Asked((f"-n{random.choice((2, 4))}", f"--gres=gpu:{gpus}", *_few(random)), gpus)


def _gpus_and_tasks(random: Random) -> Asked:
    gpus = random.choice((2, 4))
    return Asked((f"--gpus={gpus}", f"-n{gpus}", *_few(random)), gpus, tasks=True)


def _gpus_of_one_node(random: Random) -> Asked:
    gpus = _gpus(random)
    return Asked(("-N1", f"--gpus={gpus}", *_few(random)), gpus)


def _gpus_of_two_nodes(random: Random) -> Asked:
    gpus = random.choice((2, 4))
    return Asked(("-N2", f"--gpus={random.choice(TYPES[:2])}:{gpus}", *_few(random)), gpus, 2)


def _gpus_per_task(random: Random) -> Asked:
    tasks, each = random.choice(((2, 1), (4, 1), (2, 2)))
    return Asked((f"-n{tasks}", f"--gpus-per-task={each}", *_few(random)), tasks * each, tasks=True)


def _gpus_with_tasks_per_gpu(random: Random) -> Asked:
    gpus = random.choice((1, 2, 4))
    return Asked((f"--gpus={gpus}", f"--ntasks-per-gpu={random.choice((1, 2))}", "--mem=4000"), gpus, tasks=True)


def _tasks_per_gpu(random: Random) -> Asked:
    tasks = random.choice((2, 4))
    return Asked((f"-n{tasks}", "--ntasks-per-gpu=1", *_few(random)), tasks, tasks=True)


def _per_gpu(random: Random) -> Asked:
    gpus = _gpus(random)
    each = f"--cpus-per-gpu={random.choice((1, 2, 4))}", f"--mem-per-gpu={random.choice((2000, 4000))}"
    return Asked(("-N1", f"--gpus={gpus}", *each), gpus)


def _mem_per_cpu(random: Random) -> Asked:
    gpus = _gpus(random)
    return Asked(("-N1", f"--gres=gpu:{gpus}", f"-c{random.choice((2, 4))}", "--mem-per-cpu=2000"), gpus)


def _range_of_nodes(random: Random) -> Asked:
    gpus = random.choice((1, 2))
    least, most = random.choice(((1, 4), (1, 2), (2, 3)))
    options = (f"-N{least}-{most}", f"--gpus-per-node={gpus}", "--ntasks-per-node=1", *_few(random))
    return Asked(options, least * gpus, least)


def _gpus_per_socket(random: Random) -> Asked:
    return Asked(("-N1", "--gpus-per-socket=1", "--sockets-per-node=2", "-n2", *_few(random)), 2)


def _mincpus(random: Random) -> Asked:
    gpus = _gpus(random)
    return Asked(("-N1", f"--gres=gpu:{gpus}", f"--mincpus={random.choice((4, 8))}", "--mem=4000"), gpus)


def _all_memory(random: Random) -> Asked:
    gpus = random.choice((1, 2))
    return Asked(("-N1", f"--gres=gpu:{gpus}", "-c2", "--mem=0"), gpus)


def _two_exclusive_nodes(random: Random) -> Asked:
    gpus = random.choice((1, 2))
    return Asked(("-N2", f"--gres=gpu:{gpus}", "-c2", "--exclusive", "--mem=0"), 2 * gpus, 2)


def _nodelist(random: Random) -> Asked:
    gpus = random.choice((1, 2))
    first = random.choice((1, 2, 4, 5))
    return Asked(("-N2", f"--gres=gpu:{gpus}", *_few(random), f"--nodelist=n{first},n{first + 1}"), 2 * gpus, 2)


def _exclude(random: Random) -> Asked:
    return _with(f"--exclude={random.choice(('n1', 'n[1-3]', 'n[4-6]', 'n[2,5,7]'))}")(random)


def _constraint(random: Random) -> Asked:
    return _with(f"--constraint={random.choice(FEATURES)}")(random)


def _two_nodes(*words: str) -> Callable[[Random], Asked]:
    def draw(random: Random) -> Asked:
        gpus = random.choice((1, 2))
        return Asked(("-N2", f"--gres=gpu:{gpus}", *_few(random), *words), 2 * gpus, 2)

    return draw


def _begin(random: Random) -> Asked:
    return _with(f"--begin=now+{random.choice((5, 12, 20))}", begin=True)(random)


def _array(random: Random) -> Asked:
    return _with(f"--array={random.choice(('1-2', '0-3', '1-4%2', '3,7'))}", array=True)(random)


def _heterogeneous(random: Random) -> Asked:
    asked = _plain(random)
    return Asked((*asked.options, ":", "-N1", "--gres=gpu:1", "-c1", "--mem=1000"), asked.gpus)


def _counted_constraint(random: Random) -> Asked:
    return _two_nodes(f"--constraint={random.choice(('ib*2', '[a100|v100]'))}")(random)


def _no_gpus(random: Random) -> Asked:
    return Asked(("-N1", *_few(random)), 0)


FORMS: Final[Mapping[str, Callable[[Random], Asked]]] = {
    "-N1 --gres": _plain,
    "--gres alone": _gres_alone,
    "--gres, typed": _typed,
    "-N2 --gpus-per-node --ntasks-per-node=1": _nodes_with_gpus,
    "-N2, one task per GPU": _task_per_gpu,
    "-n without -N": _tasks_without_nodes,
    "--gpus -n": _gpus_and_tasks,
    "-N1 --gpus": _gpus_of_one_node,
    "-N2 --gpus, typed": _gpus_of_two_nodes,
    "-n --gpus-per-task": _gpus_per_task,
    "--gpus --ntasks-per-gpu": _gpus_with_tasks_per_gpu,
    "-n --ntasks-per-gpu": _tasks_per_gpu,
    "--cpus-per-gpu --mem-per-gpu": _per_gpu,
    "--mem-per-cpu": _mem_per_cpu,
    "-N 1-4": _range_of_nodes,
    "--gpus-per-socket": _gpus_per_socket,
    "--mincpus": _mincpus,
    "--mem=0": _all_memory,
    "--exclusive": _with("--exclusive"),
    "-N2 --exclusive --mem=0": _two_exclusive_nodes,
    "--nodelist": _nodelist,
    "--exclude": _exclude,
    "--constraint": _constraint,
    "--hint=nomultithread": _with("--hint=nomultithread"),
    "--contiguous": _two_nodes("--contiguous"),
    "--signal": _with("--signal=B:USR1@60"),
    "--requeue": _with("--requeue"),
    "--hold": _with("--hold", held=True),
    "--begin": _begin,
    "--dependency=afterok": _plain,
    "--array": _array,
    "heterogeneous job": _heterogeneous,
    "--deadline": _with("--deadline=now+9hours"),
    "--time-min": _with("--time-min=1"),
    "--reservation": _with("--reservation=twins"),
    "--overcommit": lambda _: Asked(("-N1", "--gres=gpu:2", "-n4", "--overcommit", "--mem=4000"), 2),
    "--ntasks-per-socket": lambda _: Asked(("-N1", "--gres=gpu:2", "-n2", "--ntasks-per-socket=1", "--mem=4000"), 2),
    "--gpus with --gpus-per-node": lambda _: Asked(
        ("-N2", "--gpus=4", "--gpus-per-node=2", "-c2", "--mem=4000"), 4, 2
    ),
    "-m arbitrary": lambda _: Asked(
        ("-n2", "--gpus-per-node=2", "-m", "arbitrary", "-w", "n1,n2", "-c2", "--mem=4000"), 4, 2
    ),
    "unequal nodes": lambda _: Asked(("-N2", "-n3", "--gres=gpu:2", "--mem=4000"), 4, 2),
    "counted constraint": _counted_constraint,
    "no GPUs": _no_gpus,
}
