"""A job whose environment is compared, and the values that follow from what it was given."""

from collections.abc import Mapping
from typing import Final, NamedTuple

Expected = str | None
"""None: it is not there."""
ANY: Final = "*"
"""A value that only Slurm knows."""
GPU_LISTS: Final = (
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "ROCR_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
    "SLURM_JOB_GPUS",
    "SLURM_STEP_GPUS",
)
"""Lists of numbers of GPUs: how many they name counts, not which."""


class Given(NamedTuple):
    """What a job was given: ``gpus`` in all, the rest on its first node; MiB.

    ``tasks_per_node`` are those that it asks for, or that the update names.
    """

    nodes: int
    gpus: int
    gpus_per_node: int
    cpus_per_node: int
    tasks_per_node: int
    cpus_per_task: int
    mem_mib_per_node: int


class Outer(NamedTuple):
    """The job from inside which another one was submitted: its environment without rlalloc, and with it.

    sbatch hands all of it on. What rlalloc has set of it (``size``) is taken away from the inner job, unless that
    asks for it itself; Slurm may set it then.
    """

    before: Mapping[str, str]
    after: Mapping[str, str]
    size: frozenset[str]


class Changed(NamedTuple):
    """A job whose environment is looked at.

    ``before`` is the environment of the same script or step without rlalloc, ``job_id`` the job's with rlalloc.
    ``asks_for_tasks`` says whether its user asked for a number of tasks, ``says_memory`` whether its environment says
    in one way how much memory it has, ``resized`` whether rlalloc gave it a size. ``outer`` is of a job that another
    one has submitted from inside: what that one had, with rlalloc. ``may_name_model`` says whether the words of its
    script were not read, so that it may have no plan.
    """

    before: Mapping[str, str]
    given: Given
    job_id: str
    asks_for_tasks: bool
    says_memory: bool
    resized: bool
    in_step: bool = False
    outer: "Outer | None" = None
    may_name_model: bool = False

    @property
    def step_tasks(self) -> int:
        """How many tasks a plain srun launches."""
        return self.given.nodes * (self.given.tasks_per_node if self.asks_for_tasks else 1)

    @property
    def gpus_of_task(self) -> int:
        """How many GPUs each of them sees: its own where the request counts GPUs by task, else all of the node.

        A job inside such a job inherits that: on 24.11 by ``SLURM_TRES_BIND`` alone. Tasks that share GPUs no longer
        do so if there are fewer tasks than GPUs (``SLURM_NTASKS_PER_GPU`` goes).
        """
        gpus, tasks = self.given.gpus_per_node, self.given.tasks_per_node
        bound = "per_task:" in self.before.get("SLURM_TRES_BIND", "")
        by_task = bound or "SLURM_GPUS_PER_TASK" in self.before or "gpu" in self.before.get("SLURM_TRES_PER_TASK", "")
        by_gpu = "SLURM_NTASKS_PER_GPU" in self.before and gpus > 0 and tasks % gpus == 0
        return max(1, gpus // (tasks if by_task or by_gpu else 1))


def each_node(count: int, nodes: int) -> str:
    """A count by node as Slurm lists it: ``4(x2)``."""
    return f"{count}(x{nodes})" if nodes > 1 else str(count)


def with_count(request: str, count: int) -> str:
    """The same request for another count: ``a100:4`` for ``a100:2``."""
    return f"{request.rpartition(':')[0]}:{count}" if ":" in request else str(count)


def quotient(job: Changed, name: str, dividend: int, divisor: int) -> Expected:
    """The variable for another count of one thing per other thing; None if that is no whole number."""
    return with_count(job.before[name], dividend // divisor) if divisor and dividend % divisor == 0 else None


def per_task(job: Changed, name: str) -> Expected:
    """``cpu=8,gres/gpu:a100=1`` or ``cpu:8,gres:gpu:1`` for the new counts."""
    gpus, tasks = job.given.gpus_per_node, job.given.tasks_per_node
    parts = []
    for part in job.before[name].split(","):
        end = max(part.rfind("="), part.rfind(":"))
        if "gpu" in part[:end] and (not tasks or gpus % tasks):
            return None
        parts.append(f"{part[: end + 1]}{gpus // tasks if 'gpu' in part[:end] else job.given.cpus_per_task}")
    return ",".join(parts)


def binding(job: Changed, name: str) -> Expected:
    """``gres/gpu:per_task:1`` or ``gres/gpu:single:2`` for the new counts; any other binding stays."""
    gpus, tasks, value = job.given.gpus_per_node, job.given.tasks_per_node, job.before[name]
    if "per_task:" in value:
        return quotient(job, name, gpus, tasks)
    return quotient(job, name, tasks, gpus) if "single:" in value else value


def gpu_list(job: Changed, name: str) -> Expected:
    """How many GPUs a list names."""
    of_task = job.in_step and name != "SLURM_JOB_GPUS"
    return f"{job.gpus_of_task if of_task else job.given.gpus_per_node} GPUs"


def says_memory(variables: Mapping[str, str]) -> bool:
    """Whether they say in one way how much memory a job has.

    A job inside a job may have its own and that of the outer one, and nothing tells which is which.
    """
    return sum(name.startswith("SLURM_MEM_PER_") for name in variables) == 1
