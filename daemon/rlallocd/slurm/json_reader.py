"""Jobs and nodes from the commands' JSON.

The fields that are read here have the same names in all generations of Slurm. Which command prints them is in
``generations``; how a value is written (a number plain or as an object, a state as a word or a list) shows in itself.
"""

import functools
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from rlalloc.devices import node_devices
from rlalloc.tres import MOST, asks_for_shards, gpu_type_of, gpus_of, gpus_of_request, parse_tres
from rlallocd.slurm.generations import Capabilities
from rlallocd.slurm.slurm_commands import Commands
from rlallocd.slurm.slurm_errors import SlurmError, UnexpectedAnswer, UnknownJob
from rlallocd.slurm.slurm_records import JobRecord, NodeNeeds, NodeRecord, RequestFields, cpus_per_core, with_splits
from rlallocd.slurm.states import is_asleep, is_awaited, is_usable, job_state

_Record = TypeVar("_Record")
_NO_SPEC = 32766  # NO_VAL16 without the flag that tells threads from cores
_KEPT_MEMORY = re.compile(r"^NodeName=(\S+) .*? MemSpecLimit=(\d{1,12}) ", re.MULTILINE)
_KEPT_FOR_S = 600.0
_GPU_REQUESTS = ("tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket")


class JsonReader:
    """Reads through the commands of one generation of Slurm."""

    name = "the commands' JSON"

    def __init__(self, commands: Commands, capabilities: Capabilities) -> None:
        self._commands = commands
        self.capabilities = capabilities
        self._kept: Mapping[str, int] = {}
        self._kept_until_s = 0.0

    def jobs(self) -> tuple[JobRecord, ...]:
        """Every job that slurmctld knows: ended ones too, for MinJobAge seconds. Raises SlurmError."""
        return self._jobs()

    def jobs_of(self, job_ids: Sequence[int]) -> tuple[JobRecord, ...]:
        """At least these jobs, in one call: some versions print all, others those and the rest of their arrays.

        Raises SlurmError; UnknownJob where slurmctld knows none of them any more.
        """
        return self._jobs(f"--jobs={','.join(str(job_id) for job_id in job_ids)}")

    def read_back(self, job_ids: Sequence[int]) -> dict[int, JobRecord]:
        """The jobs of these ids that slurmctld still knows, with every request field. Raises SlurmError."""
        if not job_ids:
            return {}
        wanted = set(job_ids)
        try:
            jobs = {job.job_id: job for job in self.jobs_of(job_ids) if job.job_id in wanted}
            if self.capabilities.json_tells_cpus_per_task:
                return jobs
            return jobs | self._with_cpus_per_task({job_id: job for job_id, job in jobs.items() if job.pending})
        except UnknownJob:
            return {}

    def nodes(self) -> tuple[NodeRecord, ...]:
        """Every node. Raises SlurmError."""
        text = self._commands.run(*self.capabilities.nodes_command, self.capabilities.json_option)
        nodes = _read(node_record, text, "nodes")
        if '"specialized_memory"' in text:
            return nodes
        kept = self._kept_memory()
        return tuple(
            msgspec.structs.replace(node, mem_mib=node.mem_mib - kept[node.name]) if node.name in kept else node
            for node in nodes
        )

    def _kept_memory(self) -> Mapping[str, int]:
        """MiB that nodes keep for themselves, by name; read anew after a while, as it seldom changes."""
        if time.monotonic() >= self._kept_until_s:
            try:
                text = self._commands.run("scontrol", "show", "node", "--all", "--oneliner")
                self._kept = {name: int(mib) for name, mib in _KEPT_MEMORY.findall(text)}
            except SlurmError:
                if not self._kept_until_s:
                    raise
            self._kept_until_s = time.monotonic() + _KEPT_FOR_S
        return self._kept

    def _with_cpus_per_task(self, jobs: Mapping[int, JobRecord]) -> dict[int, JobRecord]:
        """The same jobs with CPUs per task, from a column of squeue."""
        if not jobs:
            return {}
        text = self._commands.run(
            *("squeue", "--noheader", "--all", "--states=all", f"--jobs={','.join(str(job_id) for job_id in jobs)}"),
            "--Format=JobID: ,cpus-per-task: ",
        )
        told = {int(job_id): int(count) for job_id, count in re.findall(r"^(\d+) +(\d+)\s*$", text, re.MULTILINE)}
        return {
            job_id: msgspec.structs.replace(
                job, fields=msgspec.structs.replace(job.fields, cpus_per_task=told.get(job_id, 0))
            )
            for job_id, job in jobs.items()
        }

    def _jobs(self, *options: str) -> tuple[JobRecord, ...]:
        text = self._commands.run("squeue", self.capabilities.json_option, "--all", "--states=all", *options)
        return with_splits(_read(job_record, text, "jobs"))


def job_record(job: Mapping[str, Any]) -> JobRecord:
    """Read one job of squeue's JSON, whatever the version."""
    tres = _tres_of(job.get("tres_alloc_str") or job.get("tres_req_str") or "")
    # 22.05 guesses 2 nodes for --gpus-per-task with -N1, although max_nodes is 1.
    nodes = min(_number(job.get("node_count")) or 1, _number(job.get("max_nodes")) or sys.maxsize)
    # 22.05 counts one node in the TRES of --ntasks=4 --ntasks-per-node=2 --gpus-per-node=2.
    gpus = max(gpus_of(tres), nodes * gpus_of_request(job.get("tres_per_node") or ""))
    is_shard = asks_for_shards(*(job.get(field) or "" for field in _GPU_REQUESTS))
    fields = _request_fields(job, tres, "shard" if is_shard else "gpu")
    if is_shard or not gpus:  # AccountingStorageTRES seldom names shards, and cannot name GPUs without slurmdbd
        of_tasks = (_number(job.get("tasks")) or 1) * fields.gpus_per_task
        gpus = nodes * fields.gpus_per_node or fields.gpus_per_job or of_tasks
    # The TRES of a pending --cpus-per-gpu job have one CPU a task, and the memory of those where it is per CPU.
    counted_cpus = int(tres.get("cpu", 0)) or _number(job.get("cpus"))
    cpus = max(counted_cpus, gpus * gpus_of_request(job.get("cpus_per_tres") or ""))
    mem_mib = tres.get("mem", 0.0)
    if cpus > counted_cpus and not job.get("memory_per_tres"):
        mem_mib = max(mem_mib, float(cpus * _number(job.get("memory_per_cpu"))))
    return JobRecord(
        job_id=_number(job["job_id"]),
        name=job.get("name") or "",
        user=job.get("user_name") or str(job.get("user_id")),
        account=job.get("account") or "",
        partition=job.get("partition") or "",
        state=job_state(words_of(job.get("job_state"))),
        reason=job.get("state_reason") or "",
        submitted_s=_number(job.get("submit_time")),
        begin_s=_number(job.get("eligible_time")),
        started_s=_number(job.get("start_time")),
        time_limit_s=_number(job.get("time_limit")) * 60,
        priority=_number(job.get("priority")),
        admin_comment=job.get("admin_comment") or "",
        nodes=nodes,
        tasks=_number(job.get("tasks")) or 1,
        cpus=min(cpus, MOST),
        gpus=min(gpus, MOST),
        mem_mib=min(mem_mib, float(MOST * MOST)),
        gpu_type=gpu_type_of(*(job.get(field) or "" for field in _GPU_REQUESTS)),
        is_shard=is_shard,
        is_batch=bool(job.get("batch_flag")),
        is_array=bool(_number(job.get("array_job_id"))),
        is_heterogeneous=bool(_number(job.get("het_job_id"))),
        is_exclusive=_exclusive(job),
        has_deadline=bool(_number(job.get("deadline"))),
        nodes_certain=nodes == int(tres.get("node", nodes)),
        required_nodes=job.get("required_nodes") or "",
        qos=job.get("qos") or "",
        has_run=bool(job.get("tres_alloc_str")),
        array_job_id=_number(job.get("array_job_id")),
        array_tasks=whole_list(job.get("array_task_string") or ""),
        reservation=job.get("resv_name") or "",
        time_min_s=_number(job.get("time_minimum")) * 60,
        restarts=_number(job.get("restart_cnt")),
        is_scrontab="CRON_JOB" in words_of(job.get("flags")),
        is_federated=bool(job.get("federation_origin")),
        nice=signed(_number(job.get("nice"))),
        features=job.get("features") or "",
        excluded_nodes=job.get("excluded_nodes") or "",
        needs=_needs(job),
        licenses=job.get("licenses") or "",
        held_nodes=(job.get("nodes") or "") if job.get("tres_alloc_str") else "",
        waiting_tasks=waiting_tasks(
            job.get("array_task_column") or job.get("array_task_string") or "", _number(job.get("array_max_tasks"))
        ),
        fields=fields,
    )


@functools.lru_cache(maxsize=4096)
def _tres_of(text: str) -> Mapping[str, float]:
    """Kept: many jobs ask for the same."""
    return parse_tres(text)


def whole_list(tasks: str) -> str:
    """A list of array tasks without the limit on how many run at once (``%4``); empty if Slurm has cut the list."""
    return "" if "..." in tasks else tasks.partition("%")[0]


def waiting_tasks(text: str, most: int = 0) -> int:
    """How many tasks a list such as ``0-99,102`` or ``1-9:2%4`` has, at most as many as may run at once; 1 for none.

    ``most`` is that number, where the list does not tell it. A long list is cut short by Slurm.
    """
    ranges, _, limit = text.strip("[]").partition("%")
    count = sum(
        len(range(int(match[1]), int(match[2] or match[1]) + 1, int(match[3] or 1)))
        for match in re.finditer(r"(\d+)(?:-(\d+)(?::(\d+))?)?", ranges)
    )
    most = int(limit) if limit.isdigit() else most
    return max(1, min(count, most) if most else count)


def _needs(job: Mapping[str, Any]) -> NodeNeeds:
    flags = words_of(job.get("flags"))
    return NodeNeeds(
        sockets=_number(job.get("sockets_per_node")),
        cores=_number(job.get("cores_per_socket")),
        threads=_number(job.get("threads_per_core")),
        tmp_disk_mib=_number(job.get("minimum_tmp_disk_per_node")),
        contiguous=bool(job.get("contiguous")),
        near_gpus="GRES_ENFORCE_BIND" in flags or "GRES_BINDING_ENFORCED" in flags,  # 22.05, since 23.02
        spares_cores=any(0 < _number(job.get(name)) < _NO_SPEC for name in ("core_spec", "thread_spec")),
        few_switches=_number(job.get("required_switches")) > 0,
        burst_buffer=bool(job.get("burst_buffer")),
    )


def _request_fields(job: Mapping[str, Any], tres: Mapping[str, float], devices: str) -> RequestFields:
    requests = {name: job.get(name) or "" for name in (*_GPU_REQUESTS, "cpus_per_tres")}
    tasks, tasks_per_node = _number(job.get("tasks")), _number(job.get("tasks_per_node"))
    # The TRES count the least number of nodes (node_count is a guess), but not what follows from tasks a node.
    min_nodes = max(int(tres.get("node", 1)), -(-tasks // tasks_per_node) if tasks_per_node else 1)
    mem_mib_per_gpu = gpus_of_request(job.get("memory_per_tres") or "")
    return RequestFields(
        min_nodes=min_nodes,
        max_nodes=_number(job.get("max_nodes")),
        tasks_per_node=tasks_per_node,
        tasks_per_part=max(_number(job.get(f"tasks_per_{part}")) for part in ("board", "socket", "core")),
        cpus_per_task=_number(job.get("cpus_per_task")),
        min_cpus=_number(job.get("cpus")),
        min_cpus_per_node=_number(job.get("minimum_cpus_per_node")),
        mem_mib_per_node=_number(job.get("memory_per_node")),
        # Beside memory per GPU, slurmctld sets DefMemPerCPU, and clears it when it tries to start the job (22.05).
        # One that somebody sets does not show, either.
        mem_mib_per_cpu=0 if mem_mib_per_gpu else _number(job.get("memory_per_cpu")),
        mem_mib_per_gpu=mem_mib_per_gpu,
        gpus_per_node=gpus_of_request(requests["tres_per_node"], devices),
        gpus_per_job=gpus_of_request(requests["tres_per_job"], devices),
        gpus_per_task=gpus_of_request(requests["tres_per_task"], devices),
        gpus_per_socket=gpus_of_request(requests["tres_per_socket"], devices),
        cpus_per_gpu=gpus_of_request(requests["cpus_per_tres"]),
        mem_per_tres=job.get("memory_per_tres") or "",
        **requests,
    )


def node_record(node: Mapping[str, Any]) -> NodeRecord:
    """Read one node of sinfo's or scontrol's JSON, whatever the version."""
    states = (*words_of(node.get("state")), *words_of(node.get("state_flags")))
    cpus, sockets, cores, threads = (_number(node.get(name)) for name in ("cpus", "sockets", "cores", "threads"))
    return NodeRecord(
        name=node["name"],
        partitions=tuple(words_of(node.get("partitions"))),
        usable=is_usable(states),
        awaited=is_awaited(states, _number(node.get("boot_time"))),
        asleep=is_asleep(states),
        owner=node.get("owner") or "",
        # Without those that the node keeps for itself (CoreSpecCount): 22.05 shows this only in the node's TRES.
        cpus=_number(node.get("effective_cpus")) or int(parse_tres(node.get("tres") or "").get("cpu", cpus)),
        cpus_used=_number(node.get("alloc_cpus")),
        # Without what the node keeps for itself (MemSpecLimit), which 22.05 tells only in scontrol's text.
        mem_mib=_number(node.get("real_memory")) - _number(node.get("specialized_memory")),
        mem_mib_used=_number(node.get("alloc_memory")),
        devices=node_devices(node.get("gres") or "", node.get("gres_used") or _gres_of(node.get("tres_used") or "")),
        features=_features(node.get("active_features")),
        extra=node.get("extra") or "",
        booted_s=_number(node.get("boot_time")),
        sockets=sockets,
        cores=cores,
        threads=threads,
        cpus_per_core=cpus_per_core(cpus, sockets * cores, threads),
        tmp_disk_mib=_number(node.get("temporary_disk")),
    )


def _gres_of(tres: str) -> str:
    """The GPUs in a TRES string, as GRES has them."""
    return f"gpu:{gpus_of(parse_tres(tres))}"


def _read(read: Callable[[Mapping[str, Any]], _Record], text: str, key: str) -> tuple[_Record, ...]:
    try:
        return tuple(read(item) for item in msgspec.json.decode(text)[key])
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError) as err:
        raise UnexpectedAnswer(f"cannot read {key!r} in Slurm's JSON ({err!r}), which begins {text[:80]!r}") from err


def _number(value: Any) -> int:
    """A number: plain, null, or ``{set, infinite, number}``; 0 where unset or infinite.

    The value decides, not the generation: both forms stand in one schema, and slurm.conf's DataParserParameters
    changes which field has which.
    """
    if isinstance(value, dict):
        return int(value["number"]) if value.get("set") and not value.get("infinite") else 0
    return int(value) if value is not None else 0


def signed(number: int) -> int:
    """A nice: some versions print a negative one as a number of 32 bits without a sign. None is that large."""
    return number - 2**32 if number >= 2**31 else number


def words_of(value: Any) -> list[str]:
    """A state or names: a list, or one string in which they are joined."""
    if isinstance(value, str):
        return [word for word in re.split(r"[,+ ]", value) if word]
    return list(value or ())


def _features(value: Any) -> frozenset[str]:
    """Names of features: a list, or one string with commas. A name may have a ``+`` in it."""
    return frozenset(filter(None, value.split(",") if isinstance(value, str) else value or ()))


def _exclusive(job: Mapping[str, Any]) -> bool:
    shared = job.get("shared")
    return shared == "none" or (isinstance(shared, list) and "none" in shared)
