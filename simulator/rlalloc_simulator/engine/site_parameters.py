"""What a simulated site is made of and how its slurmctld is configured, in the names of slurm.conf.

Defaults are Slurm's own (22.05 to 25.11, ``man slurm.conf``) unless the text says otherwise. Times are in seconds
throughout, also where slurm.conf has minutes.
"""

import functools
from typing import Annotated, Final, Literal

import msgspec
import numpy as np

from rlalloc.bounds import NodeShape
from rlalloc.devices import NodeDevices, node_devices
from rlalloc.late_decisions import LateRules
from rlalloc.sockets import Sockets
from rlalloc.urgency import UrgencyRules
from rlalloc_simulator.engine.engine_records import Records

Positive = Annotated[float, msgspec.Meta(gt=0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=0)]

NEVER: Final = float("inf")


class SchedulerParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """slurm.conf's SchedulerType and SchedulerParameters.

    ``bf_job_part_count_reserve`` 1 makes backfill EASY (only the first job of a partition holds a reservation), 0
    conservative (each tested job holds one). ``sched_min_interval`` is 2 microseconds in Slurm, here 0.

    The last three are 0 here, for most matter only where jobs last minutes. Slurm's ``batch_sched_delay`` is 3 s. The
    others are no parameters of Slurm but fixed in it: ``prediction_window`` 30 s (prediction.py) and
    ``time_limit_interval`` 30 s, between slurmctld's looks for jobs that have reached their time limits.
    """

    backfill: bool = True
    bf_interval: Positive = 30.0
    bf_window: Positive = 86_400.0
    bf_resolution: Positive = 60.0
    bf_max_job_test: Count = 500
    bf_max_job_start: Count = 0
    bf_job_part_count_reserve: Count = 0
    sched_interval: Positive = 60.0
    sched_min_interval: NotNegative = 0.0
    default_queue_depth: Count = 100
    least_loaded_nodes: bool = False
    """CR_LLN of SelectTypeParameters."""
    batch_sched_delay: NotNegative = 0.0
    prediction_window: NotNegative = 0.0
    time_limit_interval: NotNegative = 0.0


class PriorityParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """slurm.conf's PriorityType and what belongs to it; fair-share is Fair Tree, Slurm's default since 19.05."""

    type: Literal["basic", "multifactor"] = "basic"
    weight_age: NotNegative = 0.0
    weight_fairshare: NotNegative = 0.0
    weight_job_size: NotNegative = 0.0
    weight_partition: NotNegative = 0.0
    weight_qos: NotNegative = 0.0
    max_age: Positive = 7 * 86_400.0
    decay_half_life: Positive = 7 * 86_400.0
    calc_period: Positive = 300.0
    favor_small: bool = False


class Interception(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What rlalloc does to jobs: the plugin's grace, the daemon's cycle, and re-decisions of pending jobs.

    ``decision_interval`` 0 decides each job at once. ``review_interval`` 0 never decides a job again; else at most
    ``review_depth`` pending jobs at the head of the queue are, each at most ``review_limit`` times.
    ``requeue_delay`` is what slurmctld adds to a requeued job's begin time. With ``resubmit_killed`` a job
    that was killed for its size is submitted again as its user requested it, unless that kills it, too.

    With ``late``, pending jobs that could start are decided again once resources have been freed, by the rules of
    ``rlalloc.late_decisions``; ``late_after`` is how long the daemon takes to see that. 0 is before the main
    scheduler's pass. ``choose_gpu_types`` are types of which rlalloc may choose one for a new job that names none;
    only with ``late``. ``gpu_speed`` are speeds that the site states, relative to an A100, as in the configuration.
    """

    grace: Positive = 60.0
    decision_interval: NotNegative = 0.0
    review_interval: NotNegative = 0.0
    review_depth: Count = 32
    review_limit: Count = 3
    requeue_delay: NotNegative = 120.0
    late: bool = False
    late_after: NotNegative = 0.0
    late_rules: LateRules = LateRules()
    choose_gpu_types: tuple[str, ...] = ()
    gpu_speed: tuple[tuple[str, Positive], ...] = ()
    resubmit_killed: bool = True
    out_of_memory_after: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.2
    """Part of its run time after which a job with too little memory is killed; an assumption."""
    urgency: UrgencyRules = UrgencyRules()
    """What the site lets a policy's urgency do to the order of its queue."""


class NodeOverhead(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Time that real nodes need besides the jobs' own, in seconds; 0 unless measured.

    ``launch`` is from slurmctld's start of a job to the first line of its script (prolog, slurmd, slurmstepd), and
    part of the job's run time.
    """

    launch: NotNegative = 0.0


class NodeKind(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``count`` alike nodes; ``speed`` is that of one of its GPUs over that of the type that work is counted in.

    The GPUs of ``shape`` are of ``gpu_type``, which may be a MIG profile. ``gres`` are further devices, as slurm.conf
    has them: ``gpu:1g.10gb:7,shard:16``. ``sockets`` are those of one node.
    """

    count: Annotated[int, msgspec.Meta(ge=1)]
    shape: NodeShape
    gpu_type: str = ""
    gres: str = ""
    features: tuple[str, ...] = ()
    sockets: Sockets = Sockets()
    weight: Annotated[int, msgspec.Meta(ge=0)] = 1
    speed: Positive = 1.0
    partitions: tuple[str, ...] = ("gpu",)

    @property
    def devices(self) -> tuple[NodeDevices, ...]:
        """All devices of one of its nodes."""
        return _devices(self.gpu_type, self.shape.gpus, self.gres)

    @property
    def whole_gpus(self) -> int:
        """Whole GPUs of one of its nodes."""
        return sum(each.count for each in self.devices if each.device.whole)


@functools.lru_cache(maxsize=1024)
def _devices(gpu_type: str, gpus: int, gres: str) -> tuple[NodeDevices, ...]:
    first = f"gpu:{gpu_type}:{gpus}" if gpu_type else f"gpu:{gpus}"
    return node_devices(f"{first},{gres}")


class PartitionKind(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A partition: PriorityTier, and PriorityJobFactor over the highest one."""

    name: str = "gpu"
    priority_tier: int = 1
    priority_factor: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0


class UserKind(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An association: a user of an account and their raw shares."""

    name: str
    account: str = "all"
    shares: Positive = 1.0


class NodeFailure(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A node is down from ``time_s`` until ``repaired_s``."""

    node: Annotated[int, msgspec.Meta(ge=0)]
    time_s: float
    repaired_s: float = NEVER


class SimulatedSite(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A cluster, who is on it, and how Slurm and rlalloc are configured there.

    ``other_nodes`` is how many nodes with GPUs it has besides, which no job of the workload may use: the engine knows
    no more of them, but views count them.
    """

    nodes: tuple[NodeKind, ...]
    partitions: tuple[PartitionKind, ...] = (PartitionKind(),)
    users: tuple[UserKind, ...] = (UserKind(name="user0"),)
    account_shares: dict[str, Positive] = {}
    other_nodes: Count = 0
    failures: tuple[NodeFailure, ...] = ()
    scheduler: SchedulerParameters = SchedulerParameters()
    priority: PriorityParameters = PriorityParameters()
    interception: Interception = Interception()
    overhead: NodeOverhead = NodeOverhead()

    def __post_init__(self) -> None:
        """Raise ValueError for nodes in unknown partitions."""
        known = {partition.name for partition in self.partitions}
        for kind in self.nodes:
            if unknown := set(kind.partitions) - known:
                raise ValueError(f"nodes in partition {min(unknown)!r}: the site has {', '.join(sorted(known))}")

    @property
    def node_count(self) -> int:
        """Nodes of all kinds."""
        return sum(kind.count for kind in self.nodes)

    @property
    def gpu_types(self) -> tuple[str, ...]:
        """Names of the types of whole GPUs, sorted."""
        return tuple(sorted({each.device.type for kind in self.nodes for each in kind.devices if each.device.whole}))


def rules_of(site: SimulatedSite) -> Records:
    """Return all parameters as one record for the compiled code, shape (1,)."""
    # Types come from the defaults: compiled code must not depend on whether somebody wrote 30 or 30.0.
    fields = [("multifactor", "b1")]
    values: dict[str, float] = {"multifactor": site.priority.type == "multifactor"}
    codes = {bool: "b1", int: "i8", float: "f8"}
    for given in (site.scheduler, site.priority, site.interception, site.overhead):
        for name, default in msgspec.structs.asdict(type(given)()).items():
            if type(default) in codes:
                fields.append((name, codes[type(default)]))
                values[name] = getattr(given, name)
    rules = np.zeros(1, dtype=np.dtype(fields, align=True))
    for name, value in values.items():
        rules[name] = value
    return rules
