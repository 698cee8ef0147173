"""A Slurm of a few lines, for faults and bursts that a real one cannot be made to have; it carries out no update."""

from collections import Counter
from collections.abc import Callable, Sequence, Set
from contextlib import AbstractContextManager, nullcontext

import msgspec

from rlalloc.devices import NodeDevices, gpu_device
from rlalloc.past_job import PastJob
from rlallocd.slurm import (
    AccountingRecord,
    Commands,
    ControllerConfig,
    ControllerPing,
    EndedJobs,
    Holder,
    JobRecord,
    NodeRecord,
    PartitionRecord,
    SiteLimits,
    UpdatePlan,
)
from rlallocd.slurm.generations import capabilities_of
from rlallocd.slurm.node_mark import TASK_PROLOG_VERSION


def gpus(gpu_type: str, count: int, used: int = 0) -> tuple[NodeDevices, ...]:
    """The devices of a node with alike GPUs."""
    return (NodeDevices(gpu_device(gpu_type), count, used),) if count else ()


NODE = NodeRecord(
    name="n1",
    partitions=("gpu",),
    usable=True,
    cpus=64,
    cpus_used=0,
    mem_mib=512_000,
    mem_mib_used=0,
    devices=gpus("a100", 8, 0),
    extra=f"rlalloc-task-prolog@2/{TASK_PROLOG_VERSION}",
    booted_s=1,
)


class SlurmInMemory:
    """It counts its calls by name and tells ``called`` of each, which may raise or do something meanwhile."""

    def __init__(self, jobs: Sequence[JobRecord] = (), called: Callable[[str], None] = lambda _: None) -> None:
        self.queue = {job.job_id: job for job in jobs}
        self.called = called
        self.calls: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.config = ControllerConfig(
            slurm_version="22.05.8", cluster="test", limits_enforced=False, gpus_accounted=True
        )
        self.capabilities = capabilities_of("22.05.8")
        self.node = NODE
        self.begun: list[int] = []
        self.ended: list[PastJob] = []
        self.command_timeout_s = 0.0
        self.most_jobs = 100
        self.down: set[str] = set()
        self.may_change: Callable[[], None] = lambda: None
        self.may_begin_batch: Callable[[], None] = lambda: None

    def commands_apart(self) -> Commands:
        """Commands for another thread."""
        return Commands(1.0)

    def time_calls(self, took: Callable[[str, float], None]) -> None:
        """Nothing here takes any time."""

    def jobs(self) -> tuple[JobRecord, ...]:
        self._call("squeue")
        return tuple(self.queue.values())

    def nodes(self) -> tuple[NodeRecord, ...]:
        self._call("sinfo")
        return (self.node,)

    def partitions(self) -> dict[str, PartitionRecord]:
        self._call("scontrol show")
        return {"gpu": PartitionRecord(name="gpu", max_time_s=None, max_nodes=None)}

    def limits(self, holders: Set[Holder], *, licenses: bool = False) -> SiteLimits:
        del holders, licenses
        return SiteLimits(enforced=False)

    def never_runs(self, _jobs: Sequence[JobRecord]) -> dict[int, str]:
        return {}

    def forget_limits(self) -> None:
        pass

    def forget_reservations(self, older_than_s: float) -> None:
        pass

    def read_back(self, job_ids: Sequence[int]) -> dict[int, JobRecord]:
        self.may_begin_batch()
        self._call("squeue")
        return {job_id: self.queue[job_id] for job_id in job_ids}

    def update(self, _plan: UpdatePlan) -> None:
        self.may_change()
        self._call("scontrol update")

    def together(self) -> AbstractContextManager[None]:
        """Updates take no process here."""
        return nullcontext()

    def begin(self, job_ids: Sequence[int], _begin_s: float) -> None:
        self.may_change()
        self._call("scontrol begin")
        self.begun += job_ids
        self.queue |= {job_id: msgspec.structs.replace(self.queue[job_id], begin_s=0) for job_id in job_ids}

    def release(self, target: str) -> None:
        self.may_change()
        self._call("scontrol release")
        job_id = int(target.partition("_")[0])
        self.queue[job_id] = msgspec.structs.replace(self.queue[job_id], reason="None")

    def accounting(self, _job_ids: Sequence[int], _since_s: float) -> tuple[AccountingRecord, ...]:
        self._call("sacct")
        return ()

    def ended_jobs(self, since_s: float, until_s: float) -> EndedJobs:
        self._call("sacct ended")
        jobs = tuple(job for job in self.ended if since_s <= job.ended_s <= until_s)
        return EndedJobs(jobs, until_s, 0)

    def earlier_ended_jobs(self, since_s: float, until_s: float) -> EndedJobs:
        self._call("sacct earlier")
        jobs = tuple(job for job in self.ended if since_s <= job.ended_s <= until_s)
        return EndedJobs(jobs, until_s, 0)

    def ping(self) -> tuple[ControllerPing, ...]:
        self._call("scontrol ping")
        return tuple(ControllerPing(host, host not in self.down) for host in self.config.controllers)

    def only_while(self, may_change: Callable[[], None], may_begin_batch: Callable[[], None]) -> None:
        self.may_change, self.may_begin_batch = may_change, may_begin_batch

    def set_command_timeout(self, timeout_s: float) -> None:
        self.command_timeout_s = timeout_s

    def _call(self, command: str) -> None:
        self.calls[command] += 1
        self.called(command)
