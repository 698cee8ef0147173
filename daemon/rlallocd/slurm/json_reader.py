"""Jobs and nodes from ``squeue --json`` and ``sinfo --json``.

The schema differs between versions (22.05: v0.0.38, plain numbers or null; 23.02 and later: ``{set, infinite,
number}`` objects, states as lists); what is read here is what all of them have.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from rlallocd.slurm.commands import Commands
from rlallocd.slurm.errors import UnexpectedAnswer
from rlallocd.slurm.records import JobRecord, NodeRecord
from rlallocd.slurm.tres import gpu_type_of, gpus_of, parse_tres

_NOT_USABLE = frozenset({"DOWN", "DRAIN", "FAIL", "MAINTENANCE", "NOT_RESPONDING", "ERROR", "UNKNOWN", "FUTURE"})
_GPU_REQUESTS = ("tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket")


class JsonReader:
    """Reads through the commands."""

    name = "the commands' JSON"

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    def jobs(self) -> tuple[JobRecord, ...]:
        """Every job in slurmctld's queue. Raises SlurmError."""
        return tuple(job_record(job) for job in _list(self._commands.run("squeue", "--json", "--all"), "jobs"))

    def nodes(self) -> tuple[NodeRecord, ...]:
        """Every node. Raises SlurmError."""
        return tuple(node_record(node) for node in _list(self._commands.run("sinfo", "--json", "--all"), "nodes"))


def job_record(job: Mapping[str, Any]) -> JobRecord:
    """Read one job of squeue's JSON, whatever the version."""
    tres = parse_tres(job.get("tres_req_str") or "")
    started_s = _number(job.get("start_time"))
    time_limit_s = _number(job.get("time_limit")) * 60
    return JobRecord(
        job_id=_number(job["job_id"]),
        name=job.get("name") or "",
        user=job.get("user_name") or str(job.get("user_id")),
        account=job.get("account") or "",
        partition=job.get("partition") or "",
        state=_words(job.get("job_state"))[0],
        reason=job.get("state_reason") or "",
        submitted_s=_number(job.get("submit_time")),
        begin_s=_number(job.get("eligible_time")),
        started_s=started_s,
        expected_end_s=started_s + time_limit_s,
        time_limit_s=time_limit_s,
        priority=_number(job.get("priority")),
        admin_comment=job.get("admin_comment") or "",
        nodes=_number(job.get("node_count")) or int(tres.get("node", 1)),
        tasks=_number(job.get("tasks")) or 1,
        cpus=int(tres.get("cpu", 0)) or _number(job.get("cpus")),
        gpus=gpus_of(tres),
        mem_mib=tres.get("mem", 0.0),
        gpu_type=gpu_type_of(*(job.get(field) or "" for field in _GPU_REQUESTS)),
        is_batch=bool(job.get("batch_flag")),
        is_array=bool(_number(job.get("array_job_id"))),
        is_heterogeneous=bool(_number(job.get("het_job_id"))),
        is_exclusive=_exclusive(job),
        required_nodes=job.get("required_nodes") or "",
    )


def node_record(node: Mapping[str, Any]) -> NodeRecord:
    """Read one node of sinfo's or scontrol's JSON, whatever the version."""
    states = {word.upper() for word in (*_words(node.get("state")), *_words(node.get("state_flags")))}
    return NodeRecord(
        name=node["name"],
        partitions=tuple(_words(node.get("partitions"))),
        usable=not any(state.startswith(tuple(_NOT_USABLE)) for state in states),
        cpus=_number(node.get("effective_cpus")) or _number(node.get("cpus")),
        cpus_used=_number(node.get("alloc_cpus")),
        mem_mib=_number(node.get("real_memory")),
        mem_mib_used=_number(node.get("alloc_memory")),
        gpus=gpus_of(parse_tres(node.get("tres") or "")),
        gpus_used=gpus_of(parse_tres(node.get("tres_used") or "")),
    )


def _list(text: str, key: str) -> list[dict[str, Any]]:
    try:
        answer = msgspec.json.decode(text)
        items: list[dict[str, Any]] = answer[key]
    except (msgspec.DecodeError, KeyError, TypeError) as err:
        raise UnexpectedAnswer(f"no {key!r} in Slurm's JSON, which begins {text[:80]!r}") from err
    return items


def _number(value: Any) -> int:
    """A number of any version: plain, null, or ``{set, infinite, number}``; 0 where unset or infinite."""
    if isinstance(value, Mapping):
        return int(value["number"]) if value.get("set") and not value.get("infinite") else 0
    return int(value) if value is not None else 0


def _words(value: Any) -> list[str]:
    """A state or a list of names: a list in later versions, one string in earlier ones."""
    if isinstance(value, str):
        return re.split(r"[,+ ]", value)
    return list(value) if value else [""]


def _exclusive(job: Mapping[str, Any]) -> bool:
    shared = job.get("shared")
    return shared == "none" or (isinstance(shared, list) and "none" in shared)
