"""Slurm's answers as plain frozen structs. Memory in MiB, times in epoch seconds, durations in seconds."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, Literal, Protocol

import msgspec

from rlalloc.devices import Device, NodeDevices, gpu_device
from rlalloc.sockets import Sockets
from rlallocd.slurm.node_mark import is_marked
from rlallocd.slurm.scheduling_rules import SchedulingRules

AdminLevel = Literal["slurm", "admin", "operator", "none"]
"""``slurm`` is root or SlurmUser, who need no level. An operator may change all fields of a job but AdminComment."""


class RequestFields(msgspec.Struct, frozen=True, kw_only=True):
    """The single fields in which slurmctld keeps a pending job's request; 0 or "" is unset, or not known to a reader.

    An update that is refused half-way changes some of these fields and leaves the totals (tres_req_str) as they were:
    only the fields say what the job would start with.
    Counts of GPUs are of any type, and of shards in a job of shards; the texts (``tres_per_node`` …) are Slurm's own,
    in the words of its version.
    ``min_nodes`` is the least that the job accepts; ``max_nodes`` is 0 where the user set no maximum. ``min_cpus`` is
    scontrol's NumCPUs. A job with no memory per node, CPU or GPU asks for all of its nodes' (--mem=0).
    ``tasks_per_part`` is above 0 where tasks are bound to sockets, cores or boards (--ntasks-per-socket …).
    """

    min_nodes: int = 0
    max_nodes: int = 0
    tasks_per_node: int = 0
    tasks_per_part: int = 0
    cpus_per_task: int = 0
    min_cpus: int = 0
    min_cpus_per_node: int = 0
    mem_mib_per_node: int = 0
    mem_mib_per_cpu: int = 0
    mem_mib_per_gpu: int = 0
    gpus_per_node: int = 0
    gpus_per_job: int = 0
    gpus_per_task: int = 0
    gpus_per_socket: int = 0
    cpus_per_gpu: int = 0
    tres_per_node: str = ""
    tres_per_job: str = ""
    tres_per_task: str = ""
    tres_per_socket: str = ""
    cpus_per_tres: str = ""
    mem_per_tres: str = ""

    @property
    def reported(self) -> bool:
        """Whether the reader reported them at all."""
        return self.min_cpus > 0

    @property
    def asks_for_memory(self) -> bool:
        """Whether the job asks for an amount of memory, as far as is known, and not for all that its nodes have."""
        return not self.reported or max(self.mem_mib_per_node, self.mem_mib_per_cpu, self.mem_mib_per_gpu) > 0


class NodeNeeds(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """What a job asks of its nodes beside a size; 0 and false ask for nothing.

    Its nodes have at least so many ``sockets``, ``cores`` a socket, ``threads`` a core, which it uses no more of, and
    MiB of temporary disk. ``contiguous``: they are in a row. ``near_gpus``: it gets only CPUs beside its GPUs
    (--gres-flags=enforce-binding). ``spares_cores``: it leaves some to the system (--core-spec, --thread-spec).
    ``few_switches``: they are below few network switches (--switches; 22.05's JSON lacks it). ``burst_buffer``: fast
    storage is set up for it (--bb, #BB, #DW).
    """

    sockets: int = 0
    cores: int = 0
    threads: int = 0
    tmp_disk_mib: int = 0
    contiguous: bool = False
    near_gpus: bool = False
    spares_cores: bool = False
    few_switches: bool = False
    burst_buffer: bool = False

    @property
    def parts(self) -> Sockets:
        """The sockets, cores and threads."""
        return Sockets(self.sockets, self.cores, self.threads)

    @property
    def which_nodes(self) -> str:
        """`` with at least 4 sockets``, for a message about its nodes; empty where it asks for no such parts."""
        asked = self.parts.describe()
        return asked and f" with {asked}"


NO_NEEDS: Final = NodeNeeds()
WITHOUT_LIMIT_S: Final = 365 * 24 * 3600
"""So long may a job without a time limit run, as slurmctld has it (YEAR_MINUTES in backfill.c)."""


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One job in slurmctld's queue, pending or running.

    Totals (``cpus``, ``gpus``, ``mem_mib``) are of the requested TRES and, once it has started, of the allocated
    ones (pyslurm: always of those requested). ``begin_s`` is the earliest start that was asked for or, in a running
    job, when it became eligible.
    ``started_s`` of a pending job is the backfill scheduler's estimate, which may lie in the past by now, or 0.
    ``nodes_certain`` is false where the user left the number of nodes to Slurm and Slurm only guesses it so far.
    ``has_run`` is true once it got nodes (a job that was cancelled while it waited has a start time, too).
    ``array_job_id`` is the id that sbatch printed for the array that the job is a task of, or the rest of; else 0.
    ``is_split`` is true once some tasks of that array stand in the queue by themselves. ``array_tasks`` are those
    that wait together in this record, as Slurm writes them (``2-9,12``); empty where that is not known.
    ``nice`` is what its priority is lowered by, its user's own and what was added.
    ``features`` is its constraint and ``excluded_nodes`` a host list, as their user wrote them. ``held_nodes`` is
    the host list of the nodes that a running job has. Where ``is_shard``, the job asks for shards of GPUs, and all
    counts of GPUs are of shards. ``waiting_tasks`` is how many tasks of an array a pending record stands for, at most
    as many as may run at once.
    ``licenses`` are those that it asks for, as Slurm writes them: ``solver:2,cad``, or ``|`` between alternatives.
    ``restarts`` counts how often it was requeued; ``is_federated`` is true where other clusters may run it, too.
    ``unread`` is true where scontrol did not show what it asks for: of that, only the totals are certain.
    """

    job_id: int
    name: str
    user: str
    account: str
    partition: str
    state: str
    reason: str
    submitted_s: int
    begin_s: int
    started_s: int
    time_limit_s: int
    priority: int
    admin_comment: str
    nodes: int
    tasks: int
    cpus: int
    gpus: int
    mem_mib: float
    gpu_type: str
    is_batch: bool
    is_array: bool
    is_heterogeneous: bool
    is_exclusive: bool
    has_deadline: bool
    nodes_certain: bool
    required_nodes: str
    qos: str = ""
    has_run: bool = False
    array_job_id: int = 0
    is_split: bool = False
    array_tasks: str = ""
    reservation: str = ""
    time_min_s: int = 0
    restarts: int = 0
    is_scrontab: bool = False
    is_federated: bool = False
    nice: int = 0
    features: str = ""
    excluded_nodes: str = ""
    needs: NodeNeeds = NO_NEEDS
    held_nodes: str = ""
    waiting_tasks: int = 1
    is_shard: bool = False
    licenses: str = ""
    unread: bool = False
    fields: RequestFields = RequestFields()

    @property
    def base_id(self) -> int:
        """The id that sbatch printed: the array's for a task of one."""
        return self.array_job_id or self.job_id

    @property
    def is_own_task(self) -> bool:
        """Whether it is a task of an array with a job id of its own: it has started, or was changed alone.

        The last task to start has the id that sbatch printed.
        """
        return self.job_id != self.base_id

    @property
    def most_s(self) -> int:
        """Seconds after its start when Slurm reckons with its end: its time limit, or a year where it has none."""
        return self.time_limit_s or WITHOUT_LIMIT_S

    @property
    def device(self) -> Device:
        """What it asks for: whole GPUs, slices or shards."""
        return Device("shard", self.gpu_type) if self.is_shard else gpu_device(self.gpu_type)

    @property
    def held(self) -> bool:
        """Whether its user or an admin holds it, which is theirs to end."""
        return self.pending and self.reason in ("JobHeldUser", "JobHeldAdmin")

    @property
    def pending(self) -> bool:
        """Whether it still waits."""
        return self.state == "PENDING"

    @property
    def running(self) -> bool:
        """Whether it holds resources."""
        return self.state in ("RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED")


def with_splits(jobs: Iterable[JobRecord]) -> tuple[JobRecord, ...]:
    """The same jobs, those of arrays of which there are several records marked as split."""
    records = tuple(jobs)
    parts = Counter(job.array_job_id for job in records if job.array_job_id)
    return tuple(
        msgspec.structs.replace(job, is_split=True) if parts[job.array_job_id] > 1 else job for job in records
    )


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One node. ``usable`` is false when it is down, drained, reserved for maintenance or not answering.

    It has ``sockets`` of ``cores`` of ``threads`` (0: not known). A core is ``cpus_per_core`` CPUs: its threads, or
    one where CPUs are configured to be cores. ``mem_mib`` is without what it keeps for itself.
    ``awaited`` is true of one of which slurmctld, just started, has not heard yet; it is usable if it holds jobs.
    ``devices`` are its GPUs, slices and shards; ``features`` are those active now. ``extra`` is its field of that
    name, ``booted_s`` when it last booted, 0 where that is unknown. ``asleep`` is true where it is powered down or
    boots: it takes jobs after a while. ``owner`` is the only user whose jobs it takes (``--exclusive=user``).
    """

    name: str
    partitions: tuple[str, ...]
    usable: bool
    cpus: int
    cpus_used: int
    mem_mib: int
    mem_mib_used: int
    devices: tuple[NodeDevices, ...] = ()
    features: frozenset[str] = frozenset()
    extra: str = ""
    booted_s: int = 0
    awaited: bool = False
    sockets: int = 0
    cores: int = 0
    threads: int = 0
    cpus_per_core: int = 1
    tmp_disk_mib: int = 0
    asleep: bool = False
    owner: str = ""

    @property
    def gpus(self) -> int:
        """Its GPUs as Slurm counts them: slices are GPUs, too."""
        return sum(each.count for each in self.devices if each.device.kind != "shard")

    @property
    def gpus_used(self) -> int:
        """Likewise those that jobs hold."""
        return sum(each.used for each in self.devices if each.device.kind != "shard")

    @property
    def gpu_types(self) -> frozenset[str]:
        """The types of its GPUs and slices."""
        return frozenset(
            each.device.type for each in self.devices if each.device.kind != "shard" and each.device.type
        )

    @property
    def has_alike_gpus(self) -> bool:
        """Whether its GPUs are whole ones of one type."""
        kinds = {each.device for each in self.devices if each.device.kind != "shard"}
        return len(kinds) == 1 and all(device.whole for device in kinds)

    @property
    def has_task_prolog(self) -> bool:
        """Whether a check since its last boot has seen that Slurm calls rlalloc's TaskProlog there."""
        return is_marked(self.extra, self.booted_s)


def cpus_per_core(cpus: int, cores: int, threads: int) -> int:
    """How many CPUs a core counts as, from all CPUs and cores of a node; as in slurmctld (vpus in node_conf.c)."""
    return threads if cpus > cores > 0 else 1


class GpuDefaults(msgspec.Struct, frozen=True):
    """What jobs get for each GPU if they do not ask for it (DefCpuPerGPU, DefMemPerGPU); 0 where nothing is set."""

    cpus: int = 0
    mem_mib: int = 0

    def before(self, others: "GpuDefaults") -> "GpuDefaults":
        """These, with the values of ``others`` where these set nothing."""
        return GpuDefaults(self.cpus or others.cpus, self.mem_mib or others.mem_mib)


class PartitionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A partition's own limits; None is no limit, or all names. ``qos`` is the partition's QOS, empty for none.

    ``is_default`` says whether it gets the jobs that name no partition.
    ``tier`` is its PriorityTier: jobs of a higher one come first whatever their priority. ``preemptable`` says
    whether its jobs may be ended for others, and ``whole_nodes`` whether each job has its nodes alone
    (OverSubscribe=EXCLUSIVE). ``gpu_defaults`` take precedence over those of slurm.conf, and so does
    ``gives_sockets``, which says whether a job gets all CPUs of its sockets (CR_Socket).
    Where a partition sets no limit of memory, slurm.conf's holds: ControllerConfig has it.
    """

    name: str
    max_time_s: int | None
    max_nodes: int | None
    min_nodes: int = 0
    total_nodes: int | None = None
    total_cpus: int | None = None
    max_cpus_per_node: int | None = None
    max_cpus_per_socket: int | None = None
    max_mem_mib_per_node: int | None = None
    max_mem_mib_per_cpu: int | None = None
    qos: str = ""
    allow_accounts: frozenset[str] | None = None
    deny_accounts: frozenset[str] = frozenset()
    allow_qos: frozenset[str] | None = None
    deny_qos: frozenset[str] = frozenset()
    tier: int = 1
    preemptable: bool = False
    whole_nodes: bool = False
    gives_sockets: bool | None = None
    is_default: bool = False
    gpu_defaults: GpuDefaults = GpuDefaults()


class AccountingRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One ended or running job in slurmdbd, or one part of it. None means: not recorded.

    ``job_id`` is the id that sbatch printed; ``part`` tells an array's tasks and a heterogeneous job's components
    apart (``_7``, ``_[8-9]`` while they wait together, ``+1``) and is empty for any other job. ``cpu_s_used`` is of
    all its steps; ``mem_mib_used`` adds up the peaks of a step's tasks, in the step where that is most.
    ``comment`` is its user's, where AccountingStoreFlags keeps it (job_comment). ``changed_size`` is true of a job
    that gave nodes back while it ran, ``ran_before`` of one that was requeued after an earlier run.
    """

    job_id: int
    part: str
    state: str
    exit_code: str
    submitted_s: int
    eligible_s: int | None
    started_s: int | None
    ended_s: int | None
    nodes: int
    cpus: int
    gpus: int
    mem_mib: float
    max_rss_mib: float | None
    consumed_energy_j: float | None
    cpu_s_used: float | None = None
    mem_mib_used: float | None = None
    comment: str = ""
    changed_size: bool = False
    ran_before: bool = False


class ControllerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What rlallocd needs to know of slurm.conf. ``limits_enforced``: associations' and QOS' limits bind.

    ``has_task_prolog``: it names a TaskProlog, ours or one that is to call ours. ``admin_level`` is what slurmctld
    lets the user of this process do, ``slurm_user`` SlurmUser's name, ``controllers`` the hosts of slurmctld: the
    primary's, then its backups'. ``gpu_defaults`` hold in partitions without their own. ``select_type`` is the
    plugin that places jobs on nodes. ``has_slurmdbd`` says whether sacct can report ended jobs.
    """

    slurm_version: str
    cluster: str
    limits_enforced: bool
    gpus_accounted: bool
    has_task_prolog: bool = True
    admin_level: AdminLevel = "slurm"
    slurm_user: str = ""
    max_mem_mib_per_node: int | None = None
    max_mem_mib_per_cpu: int | None = None
    scheduling: SchedulingRules = SchedulingRules()
    controllers: tuple[str, ...] = ()
    gpu_defaults: GpuDefaults = GpuDefaults()
    select_type: str = ""
    has_slurmdbd: bool = True


WITHOUT_GPU_UPDATES: Final = frozenset({"select/linear", "select/cons_res"})
"""Values of SelectType with which slurmctld refuses each update of GPUs, even an empty TresPerJob."""


class UpdatePlan(msgspec.Struct, frozen=True, kw_only=True):
    """All that one job's update sets: scontrol's fields with their values, in the order in which they are sent.

    ``tasks`` are those of an array that it is for (``3``, ``2-9,12``); empty for all of a job.
    """

    job_id: int
    fields: tuple[tuple[str, str], ...]
    tasks: str = ""

    @property
    def target(self) -> str:
        """What scontrol calls the job or the tasks. It takes a number of nodes only for a job or a single task."""
        if not self.tasks:
            return str(self.job_id)
        return f"{self.job_id}_{self.tasks}" if self.tasks.isdigit() else f"{self.job_id}_[{self.tasks}]"

    def without(self, *names: str) -> "UpdatePlan":
        """The same plan, but leaving these fields of the job as they are."""
        return msgspec.structs.replace(self, fields=tuple(field for field in self.fields if field[0] not in names))

    def with_nice(self, nice: int) -> "UpdatePlan":
        """The same plan, which also sets the job's nice."""
        return msgspec.structs.replace(self, fields=(*self.fields, ("Nice", str(nice))))

    def leaving_out(self, excluded_nodes: str) -> "UpdatePlan":
        """The same plan, which also sets the nodes that the job leaves out, a host list."""
        return msgspec.structs.replace(self, fields=(("ExcNodeList", excluded_nodes), *self.fields))

    def of_tasks(self, tasks: str) -> "UpdatePlan":
        """The same plan for some tasks of an array."""
        return msgspec.structs.replace(self, tasks=tasks)


class Reader(Protocol):
    """How jobs and nodes are read: by squeue's columns, the commands' JSON or pyslurm."""

    @property
    def name(self) -> str:
        """Which implementation this is, for the log."""

    def jobs(self) -> tuple[JobRecord, ...]:
        """Every job that slurmctld knows, in one call. Raises SlurmError."""

    def read_back(self, job_ids: Sequence[int]) -> dict[int, JobRecord]:
        """The jobs of these ids that slurmctld still knows, with every request field. Raises SlurmError."""

    def nodes(self) -> tuple[NodeRecord, ...]:
        """Every node, in one call. Raises SlurmError."""
