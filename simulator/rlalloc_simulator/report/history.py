"""What happened on a site: which jobs waited when, what they held where, and how they ended. Times are in seconds.

GPUs are whole ones: slices and shards are not counted.
"""

import msgspec

from rlalloc.bounds import NodeShape


class Run(msgspec.Struct, frozen=True):
    """One run of one job on ``nodes`` (their places in ``History.nodes``); a requeued job has several.

    ``state`` is how it ended: a final state of Slurm's, or REQUEUED.
    """

    job: int
    start_s: float
    end_s: float
    nodes: tuple[int, ...]
    gpus_per_node: int
    cpus_per_node: int
    mem_mib_per_node: int
    state: str

    @property
    def duration_s(self) -> float:
        """From its start to its end."""
        return self.end_s - self.start_s

    @property
    def gpus(self) -> int:
        """GPUs on all nodes."""
        return len(self.nodes) * self.gpus_per_node


class Wait(msgspec.Struct, frozen=True):
    """A job was in the queue and eligible to start: no grace, begin time or dependency held it back.

    GPUs, CPUs and memory are its total request when it left the queue.
    """

    job: int
    begin_s: float
    end_s: float
    partition: int
    gpus: int
    cpus: int
    mem_mib: int


class JobEnd(msgspec.Struct, frozen=True):
    """One job, from its submission to its end.

    ``alone_s`` is how long it would run as requested in an empty cluster. ``first_start_s``
    is None for a job that never ran, ``end_s`` for one that waits for ever (a dependency that cannot come true).
    """

    user: str
    submit_s: float
    alone_s: float
    first_start_s: float | None
    end_s: float | None
    state: str


class History(msgspec.Struct, frozen=True):
    """All of a simulated workload. ``partitions`` has the nodes of each, as places in ``nodes``."""

    nodes: tuple[NodeShape, ...]
    node_names: tuple[str, ...]
    partitions: tuple[tuple[int, ...], ...]
    jobs: tuple[JobEnd, ...]
    runs: tuple[Run, ...]
    waits: tuple[Wait, ...]

    @property
    def begin_s(self) -> float:
        """The first submission."""
        return min((job.submit_s for job in self.jobs), default=0.0)

    @property
    def end_s(self) -> float:
        """The last end of a job, or of a run."""
        ends = [job.end_s for job in self.jobs if job.end_s is not None]
        return max([self.begin_s, *ends, *(run.end_s for run in self.runs)])
