"""Jobs from columns of squeue: what its JSON says, at a sixth of the cost.

With 2,000 jobs on Slurm 22.05 ``squeue --json`` takes 0.4 s and 100 MB, these columns 0.06 s (docs/benchmarks.md):
the time is spent in squeue and in us, not in slurmctld. Neither can ask for what has changed alone.

Each call separates columns by a mark of its own, which nobody can have put into a job's name. A row that reads as in
the reading before stands for the same record, so that only what has changed is interpreted. Where a row cannot tell
all, that job is read from the JSON.
"""

import logging
import re
import secrets
from collections.abc import Mapping
from typing import Any, Final

from rlallocd.slurm.commands import Commands
from rlallocd.slurm.errors import UnexpectedAnswer, UpdateRefused
from rlallocd.slurm.json_reader import JsonReader, job_record
from rlallocd.slurm.records import JobRecord, NodeRecord
from rlallocd.slurm.tres import memory_mib, parse_tres

_log = logging.getLogger(__name__)

_COLUMNS: Final = {
    "job_id": "JobID",
    "name": "Name",
    "user_name": "UserName",
    "account": "Account",
    "partition": "Partition",
    "job_state": "State",
    "state_reason": "Reason",
    "submit_time": "SubmitTime",
    "eligible_time": "EligibleTime",
    "start_time": "StartTime",
    "time_limit": "TimeLimit",
    "priority": "PriorityLong",
    "admin_comment": "admin_comment",
    "node_count": "NumNodes",
    "max_nodes": "MaxNodes",
    "tasks": "NumTasks",
    "cpus": "NumCPUs",
    "tasks_per_node": "NTPerNode",
    "cpus_per_task": "cpus-per-task",
    "minimum_cpus_per_node": "MinCpus",
    "minimum_memory": "MinMemory",  # per node or per CPU
    "tres_req_str": "tres-alloc",  # of a pending job the requested ones
    "nodes": "NodeList",
    "tres_per_node": "tres-per-node",
    "tres_per_job": "tres-per-job",
    "tres_per_task": "tres-per-task",
    "tres_per_socket": "tres-per-socket",
    "cpus_per_tres": "cpus-per-tres",
    "memory_per_tres": "mem-per-tres",
    "batch_flag": "BatchFlag",
    "array_job_id": "ArrayJobID",
    "array_task_id": "ArrayTaskID",
    "het_job_id": "HetJobID",
    "shared": "OverSubscribe",
    "deadline": "Deadline",
    "required_nodes": "ReqNodes",
}
"""Field of squeue's JSON: column of ``squeue --Format``."""
_NUMBERS: Final = frozenset(
    {
        *("job_id", "submit_time", "eligible_time", "start_time", "priority", "node_count", "max_nodes", "tasks"),
        *("cpus", "batch_flag", "array_job_id", "het_job_id", "deadline"),
        *("tasks_per_node", "cpus_per_task", "minimum_cpus_per_node"),
    }
)
_NOTHING: Final = frozenset({"", "N/A", "(null)", "NONE", "Unknown"})
_LIMIT: Final = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")
_NO_VAL: Final = 4294967294  # slurm.h
_TAKES_WHOLE_NODES: Final = {"NO": "none"}  # --exclusive; OverSubscribe=OK is the default
_JOBS_PER_CALL: Final = 1000  # a command line has an end


class SqueueReader:
    """Reads jobs from columns, all else through ``json_reader``."""

    name = "the commands' columns and JSON"

    def __init__(self, commands: Commands, json_reader: JsonReader) -> None:
        self._commands = commands
        self._json_reader = json_reader
        self._known: dict[tuple[str, ...], JobRecord] = {}
        self._columns_work = True

    def jobs(self) -> tuple[JobRecord, ...]:
        """Every job that slurmctld knows: ended ones too, for MinJobAge seconds. Raises SlurmError."""
        if not self._columns_work:
            return self._json_reader.jobs()
        try:
            rows = self._rows()
        except (UnexpectedAnswer, UpdateRefused) as err:
            self._columns_work = False
            _log.warning("this version's squeue is read as JSON from now on, which is slower: %s", err)
            return self._json_reader.jobs()
        known = {row: self._known.get(row) or _record(row) for row in rows}
        unclear = {int(row[0]): row for row, record in known.items() if record is None}
        if unclear:
            known |= {unclear[job.job_id]: job for job in self._in_full(list(unclear)) if job.job_id in unclear}
        self._known = {row: record for row, record in known.items() if record is not None}
        return tuple(self._known.values())

    def nodes(self) -> tuple[NodeRecord, ...]:
        """Every node. Raises SlurmError."""
        return self._json_reader.nodes()

    def _rows(self) -> list[tuple[str, ...]]:
        mark = f"|{secrets.token_hex(4)}|"
        text = self._commands.run(
            *("squeue", "--all", "--states=all", "--noheader", "--noconvert"),
            f"--Format={','.join(f'{column}:{mark}' for column in _COLUMNS.values())}",
        )
        fields = text.split(mark)
        width = len(_COLUMNS)
        if len(fields) % width != 1 or fields[-1].strip():
            raise UnexpectedAnswer(f"squeue printed {len(fields) - 1} fields in rows of {width}: {text[:80]!r}")
        rows = [(fields[at].strip(), *fields[at + 1 : at + width]) for at in range(0, len(fields) - 1, width)]
        if not all(row[0].isdigit() for row in rows):
            raise UnexpectedAnswer(f"squeue printed no job id in a row: {text[:80]!r}")
        return rows

    def _in_full(self, job_ids: list[int]) -> tuple[JobRecord, ...]:
        if len(job_ids) > _JOBS_PER_CALL:
            return self._json_reader.jobs()
        try:
            return self._json_reader.jobs_of(job_ids)
        except UpdateRefused:  # "Invalid job id": they have all left the queue
            return ()


def _record(row: tuple[str, ...]) -> JobRecord | None:
    """The record of one row, or None where only the JSON tells all."""
    said = dict(zip(_COLUMNS, row, strict=True))
    if _is_unclear(said):
        return None
    return job_record(_as_in_json(said))


def _is_unclear(said: Mapping[str, str]) -> bool:
    """Whether a job's columns leave open what its JSON tells and we need to know.

    Memory may be per CPU or per node; a number of nodes may be a range; a reason is a sentence where Slurm has one.
    All that matters where we may change the job: while it is pending, with our tag in its AdminComment.
    """
    if said["job_state"] != "PENDING" or said["admin_comment"] in _NOTHING:
        return False
    per_node, per_cpu = _memory_fits(said)
    return per_node == per_cpu or not said["node_count"].isdigit() or re.fullmatch(r"\w+", _reason(said)) is None


def _as_in_json(said: Mapping[str, str]) -> dict[str, Any]:
    """The columns of one job in the terms of squeue's JSON."""
    values: dict[str, Any] = {key: "" if text in _NOTHING else text for key, text in said.items()}
    values |= {key: _number(said[key]) for key in _NUMBERS}
    values["name"] = said["name"]  # a job may be called N/A
    values["state_reason"] = _reason(said)
    values["time_limit"] = _minutes(said["time_limit"])
    per_node, _ = _memory_fits(said)
    values["memory_per_node" if per_node else "memory_per_cpu"] = round(memory_mib(said["minimum_memory"]) or 0)
    values["tres_alloc_str"] = values["tres_req_str"] if values["nodes"] else ""
    values["shared"] = _TAKES_WHOLE_NODES.get(said["shared"])
    if said["array_task_id"] in _NOTHING:  # the column shows the job's own id then
        values["array_job_id"] = 0
    return values


def _memory_fits(said: Mapping[str, str]) -> tuple[bool, bool]:
    """Whether a job's memory makes up its total if it is per node, and if it is per CPU. Totals have three digits."""
    least = memory_mib(said["minimum_memory"]) or 0.0
    if not least:
        return True, False  # --mem=0, or --mem-per-gpu: neither column nor JSON has a number
    tres = parse_tres(said["tres_req_str"])
    total, nodes, cpus = (tres.get(name, 0.0) for name in ("mem", "node", "cpu"))
    return abs(least * nodes - total) <= 0.005 * total + 1, abs(least * cpus - total) <= 0.005 * total + 1


def _reason(said: Mapping[str, str]) -> str:
    """The name of the reason, without what is said of it: ``RaisedSignal:9(Killed)``, ``ReqNodeNotAvail, …``."""
    return re.split("[:,]", said["state_reason"])[0]


def _number(text: str) -> int:
    """A count or a time; 0 where there is none, or Slurm's mark of none (NO_VAL, tasks of cancelled jobs)."""
    return int(text) if text.isdigit() and int(text) < _NO_VAL else 0


def _minutes(limit: str) -> int:
    """``[days-][hours:]minutes:seconds`` in minutes; 0 for UNLIMITED."""
    match = _LIMIT.fullmatch(limit)
    if match is None:
        return 0
    days, hours, minutes, _ = (int(part or 0) for part in match.groups())
    return (days * 24 + hours) * 60 + minutes
