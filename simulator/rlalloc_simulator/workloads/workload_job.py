"""One job of a workload: what its user requested, what it really needs, and how it ends.

Units as in Slurm: durations in seconds, memory in MiB. docs/reference/workloads.md describes the file key by key.
Policies see the request and the directives; ``needs`` and ``end`` are hidden from them.
"""

import functools
from typing import Annotated, Final, Literal

import msgspec

from rlalloc.bounds import Directives, NodeShape, SiteBounds, bounds_for, parse_directives
from rlalloc.constraint import is_simple
from rlalloc.count_rules import with_near_gpus
from rlalloc.devices import is_slice
from rlalloc.errors import DirectiveError
from rlalloc.job import Allocation, Bounds, JobClass
from rlalloc.sockets import Sockets
from rlalloc.speed import CURVES, SpeedCurve

FORMAT: Final = "rlalloc-workload"
VERSION: Final = 1

Count = Annotated[int, msgspec.Meta(ge=1)]
NotNegativeInt = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
Word = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.@:+-]*$", max_length=128)]
"""Names that go into Slurm's command lines: no blanks, no quotes."""
Constraint = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.:+&|,-]*$", max_length=256)]
Gres = Annotated[
    str,
    msgspec.Meta(pattern=r"^((gpu|shard)(:[A-Za-z0-9_.+-]+)?:[0-9]+(,(gpu|shard)(:[A-Za-z0-9_.+-]+)?:[0-9]+)*)?$"),
]
"""Devices of a node as in slurm.conf: ``gpu:1g.10gb:7,shard:16``."""

CurveName = Literal["bert", "imagenet", "deepspeech2", "cifar10", "yolov3", "bert-rising", "llama2-lora", "mpt-7b"]
EndState = Literal["COMPLETED", "FAILED", "CANCELLED"]
DependencyKind = Literal["after", "afterany", "afternotok", "afterok"]


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the user requested of Slurm, the same on all nodes.

    ``gpu_type`` may be a MIG profile; it is empty for whole GPUs of any type. With ``shards``, all counts of GPUs are
    of shards. ``constraint`` names features of which a node must have all (``a&b``) or any (``a|b``). A node must
    have at least so many ``sockets_per_node`` and ``cores_per_socket``; 0: any. With ``near_gpus``, the job gets only
    CPUs beside its GPUs (``--gres-flags=enforce-binding``).
    """

    nodes: Count
    gpus_per_node: NotNegativeInt
    tasks_per_node: Count
    cpus_per_task: Count
    mem_mib_per_node: Count
    time_limit_s: Count
    gpu_type: Word = ""
    shards: bool = False
    constraint: Constraint = ""
    sockets_per_node: NotNegativeInt = 0
    cores_per_socket: NotNegativeInt = 0
    near_gpus: bool = False

    def __post_init__(self) -> None:
        if not is_simple(self.constraint):
            raise ValueError(f"constraint is {self.constraint}: write features with & between them, or with |")

    @property
    def allocation(self) -> Allocation:
        """The same size as rlalloc.job.Allocation."""
        return Allocation(
            nodes=self.nodes,
            gpus_per_node=self.gpus_per_node,
            tasks_per_node=self.tasks_per_node,
            cpus_per_task=self.cpus_per_task,
            mem_mib_per_node=self.mem_mib_per_node,
            time_limit_s=self.time_limit_s,
        )

    @property
    def sockets(self) -> Sockets:
        """The sockets that its nodes must have."""
        return Sockets(self.sockets_per_node, self.cores_per_socket)

    @property
    def asks_for_parts(self) -> bool:
        """Whether its GPUs are slices or shards."""
        return self.shards or is_slice(self.gpu_type)

    @property
    def gpus(self) -> int:
        """GPUs on all nodes."""
        return self.nodes * self.gpus_per_node

    @property
    def cpus_per_node(self) -> int:
        """CPUs on each node."""
        return self.tasks_per_node * self.cpus_per_task


class Speed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Parameters of the speed model: a measured curve of rlalloc.speed, its speed-ups raised to ``exponent``.

    1 is the curve itself; below 1 a job speeds up less with GPUs, above 1 more. ``points`` is a curve of the job's
    own instead of a named one: pairs of a GPU count and the speed there in multiples of one GPU, counts ascending
    from 1; between them it is linear in log-log, beyond the last it stays flat.
    """

    curve: CurveName = "bert"
    exponent: Positive = 1.0
    points: tuple[tuple[Count, Positive], ...] = ()

    def __post_init__(self) -> None:
        counts = [gpus for gpus, _ in self.points]
        if self.points and (counts[0] != 1 or counts != sorted(set(counts))):
            raise ValueError(f"points have the GPU counts {counts}: give them ascending, the first 1")

    def at_full_supply(self, cpus_per_gpu_needed: float) -> SpeedCurve:
        """The curve of a job that needs so many CPUs a GPU."""
        named = CURVES[self.curve]
        gpus, speedup = zip(*self.points, strict=True) if self.points else (named.gpus, named.speedup)
        return SpeedCurve(
            gpus=gpus,
            speedup=tuple(float(value**self.exponent) for value in speedup),
            cpus_per_gpu_needed=cpus_per_gpu_needed,
        )


class Needs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What nobody knows before the job has run.

    ``run_time_s``    from start to completion at the requested size, if nothing ends the job before
    ``cpu_fraction``  of the requested CPUs, what full speed takes; above 1 the request starves the job
    ``max_rss_mib``   peak memory on one node at the requested size; it follows the GPUs on the node
    """

    run_time_s: Positive
    cpu_fraction: Positive
    max_rss_mib: Positive
    speed: Speed = Speed()


class End(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How the job ends, leaving aside time limits and memory, which follow from the size that it gets.

    FAILED     after ``after_s`` of running at the requested size: the fault lies at a point of its work, and a
               faster job reaches it sooner
    CANCELLED  ``after_s`` on the clock after its start, or after its submission if ``while_pending`` (a person
               looked at it): only if it has not ended, or not started, by then
    """

    state: EndState = "COMPLETED"
    after_s: Seconds | None = None
    while_pending: bool = False

    def __post_init__(self) -> None:
        if (self.state == "COMPLETED") != (self.after_s is None):
            raise ValueError(f"after_s is {self.after_s}: give it for FAILED and CANCELLED, and only for them")
        if self.while_pending and self.state != "CANCELLED":
            raise ValueError(f"while_pending is true in state {self.state}: only a CANCELLED job can end that way")


class Dependency(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``--dependency=kind:job``; ``job`` is an id of this workload, of a line before."""

    kind: DependencyKind
    job: Count


class Checkpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The job writes one every ``every_s`` of running; starting again from it takes ``restart_s`` more."""

    every_s: Positive
    restart_s: Seconds


class WorkloadJob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One line of a workload.

    ``submit_s`` counts from the header's ``time_zero_s``. ``job_class`` (``class`` in the file) is None for a job
    that no rule of rlalloc covers. ``directives`` is what stands behind ``#RLALLOC`` in its script; empty for a
    rigid job. ``checkpoint`` is None for a job that would start from nothing.
    """

    id: Count
    submit_s: Seconds
    user: Word
    request: Request
    needs: Needs
    end: End = End()
    account: Word = ""
    partition: Word = ""
    qos: Word = ""
    name: Word = ""
    job_class: JobClass | None = msgspec.field(default=None, name="class")
    directives: Annotated[str, msgspec.Meta(pattern=r"^[^\n\r]*$", max_length=1024)] = ""
    dependency: tuple[Dependency, ...] = ()
    priority: NotNegativeInt | None = None
    nice: Annotated[int, msgspec.Meta(ge=-2147483645, le=2147483645)] = 0
    checkpoint: Checkpoint | None = None

    def __post_init__(self) -> None:
        try:
            _parsed(self.directives)
        except DirectiveError as err:
            raise ValueError(str(err)) from err
        for dependency in self.dependency:
            if dependency.job >= self.id:
                raise ValueError(f"job {self.id} depends on {dependency.job}: name an id below its own")

    @property
    def parsed_directives(self) -> Directives:
        """The directives as the core reads them."""
        return _parsed(self.directives)

    def bounds(self, shape: NodeShape, site: SiteBounds | None = None) -> Bounds:
        """What it may get on nodes of ``shape``. Raises DirectiveError if no workable GPU count remains."""
        request = self.request.allocation
        bounds = bounds_for(request, self.parsed_directives, site or SiteBounds(), shape)
        return with_near_gpus(bounds, request, shape) if self.request.near_gpus else bounds

    @property
    def speed_curve(self) -> SpeedCurve:
        """How fast it is on other sizes."""
        return self.needs.speed.at_full_supply(self.needs.cpu_fraction * self.request.allocation.cpus_per_gpu)

    @property
    def held_s(self) -> float:
        """Seconds that it would hold its nodes at the requested size: until its end or its time limit."""
        if self.end.while_pending:
            return 0.0
        run_s = self.needs.run_time_s if self.end.after_s is None else min(self.needs.run_time_s, self.end.after_s)
        return min(run_s, float(self.request.time_limit_s))

    @property
    def gpu_s(self) -> float:
        """GPU-seconds that it would take at the requested size."""
        return self.request.gpus * self.held_s


class NodeGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """``count`` nodes of one shape.

    The ``gpus`` are of ``gpu_type``, which may be a MIG profile; ``gres`` are further devices. Each has
    ``sockets_per_node`` of ``cores_per_socket``; 0: unknown.
    """

    name: Word
    count: Count
    gpus: NotNegativeInt
    cpus: Count
    mem_mib: Count
    gpu_type: Word = ""
    gres: Gres = ""
    features: tuple[Word, ...] = ()
    sockets_per_node: NotNegativeInt = 0
    cores_per_socket: NotNegativeInt = 0

    def __post_init__(self) -> None:
        cores = self.sockets_per_node * self.cores_per_socket
        if cores and self.cpus % cores:
            raise ValueError(
                f"cpus is {self.cpus}, no multiple of the {cores} cores of all sockets: correct one of them"
            )

    @property
    def shape(self) -> NodeShape:
        """One node of it."""
        return NodeShape(gpus=self.gpus, cpus=self.cpus, mem_mib=self.mem_mib)


class Partition(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A partition and the names of its groups of nodes; ``max_time_s`` is None where there is no limit."""

    name: Word
    nodes: tuple[Word, ...]
    max_time_s: Count | None = None


class ClusterDescription(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the workload was recorded on, or made for."""

    nodes: Annotated[tuple[NodeGroup, ...], msgspec.Meta(min_length=1)]
    partitions: tuple[Partition, ...] = ()

    def __post_init__(self) -> None:
        known = {group.name for group in self.nodes}
        for partition in self.partitions:
            for name in partition.nodes:
                if name not in known:
                    raise ValueError(
                        f"partition {partition.name} names nodes {name!r}: write one of {', '.join(sorted(known))}"
                    )

    @property
    def gpus(self) -> int:
        """GPUs on all nodes."""
        return sum(group.count * group.gpus for group in self.nodes)


class Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The first line of a workload.

    ``origin``        where the jobs come from, and the command that made the file
    ``modelled``      what the source lacks and a model filled in
    ``time_zero_s``   seconds since the epoch of ``submit_s`` 0; None where nobody knows
    ``utc_offset_s``  to be added to it for the site's local time
    """

    format: Literal["rlalloc-workload"] = msgspec.field(default="rlalloc-workload")
    version: Annotated[int, msgspec.Meta(ge=1)] = VERSION
    origin: str = ""
    modelled: tuple[str, ...] = ()
    time_zero_s: Seconds | None = None
    utc_offset_s: Annotated[int, msgspec.Meta(ge=-86400, le=86400)] = 0
    cluster: ClusterDescription | None = None


_parsed = functools.lru_cache(maxsize=4096)(parse_directives)
