"""What a job asks for, what it may get, and what it gets.

Memory is in MiB and durations are in seconds, as in Slurm.
"""

from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec

from rlalloc.counted import counted
from rlalloc.run_time import RunTimeEstimate

if TYPE_CHECKING:
    from rlalloc.speed.speed_belief import SpeedBelief  # which knows sizes, as they are defined here

JobClass = Literal["train", "finetune", "serve"]
JOB_CLASSES: tuple[JobClass, ...] = ("train", "finetune", "serve")
Mode = Literal["off", "shadow", "enforce"]
MODES: tuple[Mode, ...] = ("off", "shadow", "enforce")


class ChosenType(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A type of GPU that rlalloc chose for a job that names none, as Slurm's GRES calls it.

    Slurm does not let an update name a type where the request names none. So the job leaves out the nodes with other
    types: ``excluded_nodes`` is a host list, its own (``own_excluded_nodes``) among them. The job is expected to run
    ``speed_up`` times as fast as on the GPUs that Slurm would give it, and 19 times in 20 at least
    ``least_speed_up`` times.
    """

    name: str
    excluded_nodes: str
    own_excluded_nodes: str
    speed_up: float
    least_speed_up: float

    def why(self) -> str:
        """One line for people."""
        return (
            f"{self.name}, because jobs run {self.speed_up:.1f} times as fast there as on the GPUs that Slurm would "
            f"give it, 19 times in 20 at least {self.least_speed_up:.1f} times, and it can start there at once"
        )


_Count = Annotated[int, msgspec.Meta(le=2**53)]
"""A stored number beyond that is unreadable: no answer to a user could hold it (earlier versions stored some)."""


class Allocation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, cache_hash=True):
    """A size for a job in absolute terms: either the one submitted or the one decided.

    All nodes of a job are alike: the same GPUs, tasks, CPUs and memory on each. ``gpu_type`` is the type of GPU that
    was chosen for it; None where it keeps what it asked for, be that a type or none.
    """

    nodes: _Count
    gpus_per_node: _Count
    tasks_per_node: _Count
    cpus_per_task: _Count
    mem_mib_per_node: _Count
    time_limit_s: _Count
    gpu_type: ChosenType | None = None

    @property
    def gpus(self) -> int:
        """GPUs on all nodes."""
        return self.nodes * self.gpus_per_node

    @property
    def cpus_per_node(self) -> int:
        """CPUs on each node."""
        return self.tasks_per_node * self.cpus_per_task

    @property
    def cpus(self) -> int:
        """CPUs on all nodes."""
        return self.nodes * self.cpus_per_node

    @property
    def mem_mib(self) -> int:
        """Memory on all nodes, MiB."""
        return self.nodes * self.mem_mib_per_node

    @property
    def cpus_per_gpu(self) -> float:
        """CPUs per GPU (per node where there is no GPU)."""
        return self.cpus_per_node / max(1, self.gpus_per_node)

    @property
    def mem_mib_per_gpu(self) -> float:
        """Memory per GPU, MiB (per node where there is no GPU)."""
        return self.mem_mib_per_node / max(1, self.gpus_per_node)

    def describe(self) -> str:
        """One line for people, such as ``2 nodes x 4 GPUs, 1 x 32 CPUs, 256000 MiB, 3600 s``."""
        gpu = "GPU" if self.gpu_type is None else f"{self.gpu_type.name} GPU"
        return (
            f"{counted(self.nodes, 'node')} x {counted(self.gpus_per_node, gpu)}, "
            f"{self.tasks_per_node} x {counted(self.cpus_per_task, 'CPU')}, {self.mem_mib_per_node} MiB a node, "
            f"limit {self.time_limit_s} s"
        )


class Range(msgspec.Struct, frozen=True, forbid_unknown_fields=True, cache_hash=True):
    """The least and the most that a job may get of something, and who said so."""

    minimum: float
    maximum: float
    minimum_from: str
    maximum_from: str


class Bounds(msgspec.Struct, frozen=True, forbid_unknown_fields=True, cache_hash=True):
    """What a job may get.

    ``gpu_counts`` are the workable totals of GPUs inside the ``gpus`` range, ascending, never empty.
    ``task_per_gpu`` says whether tasks follow the GPUs (srun-style launch) or the nodes (torchrun-style).
    For people: ``script`` is what the script shows of its size, ``past`` what like jobs used, and ``sockets`` which
    nodes and sizes the requested sockets, cores, threads and binding leave.
    ``mem_mib_per_node`` is the least memory of a node however few GPUs it has, but no more than the request's.
    """

    gpus: Range
    cpus_per_gpu: Range
    mem_mib_per_gpu: Range
    gpu_counts: tuple[int, ...]
    task_per_gpu: bool
    script: str = ""
    past: str = ""
    mem_mib_per_node: float = 0.0
    sockets: str = ""


class Shares(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True, cache_hash=True):
    """What a policy answers: numbers in [0, 1].

    ``gpu``, ``cpu``, ``mem`` say where between its bounds each resource lies, on a log scale. ``urgency`` is the
    place in the queue, 1 the soonest: less is patience, and counts only where the site lets it (``rlalloc.urgency``).
    Answers stored before there was an urgency have none: those jobs kept their place.
    """

    gpu: float
    cpu: float
    mem: float
    urgency: float = 1.0


SHARES: Final = len(Shares.__struct_fields__)
"""How many numbers a policy answers: the dimensions of its actions."""


class JobView(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One pending job as policies see it.

    ``waited_s`` counts from submission. ``user_running_gpus`` is what its user holds at that moment. ``run_time`` is
    expected in the size of the request; None where only its time limit is known. ``speed`` is what is believed of its
    scaling; None where only the prior is.
    """

    job_class: JobClass
    request: Allocation
    bounds: Bounds
    waited_s: float
    user_running_gpus: int
    run_time: RunTimeEstimate | None = None
    speed: "SpeedBelief | None" = None
