"""The columns of squeue, how its rows are told apart, and the records that they stand for.

Texts that somebody may have written as they liked are separated by a random mark, new in each call: nobody can have
put it into a job's name. The columns of a job's request come first: while it waits, they stay the same. Of a row
whose request is known, only the others are parsed.
"""

import re
import secrets
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from rlalloc.tres import memory_mib
from rlallocd.slurm.generations import Capabilities
from rlallocd.slurm.json_reader import job_record, signed, words_of
from rlallocd.slurm.request_details import RequestDetails
from rlallocd.slurm.slurm_errors import UnexpectedAnswer
from rlallocd.slurm.slurm_records import JobRecord
from rlallocd.slurm.states import job_state

_OF_THE_REQUEST: Final = {
    "job_id": "JobID",
    "user_name": "UserName",
    "partition": "Partition",
    "submit_time": "SubmitTime",
    "node_count": "NumNodes",
    "max_nodes": "MaxNodes",
    "tasks": "NumTasks",
    "cpus": "NumCPUs",
    "qos": "QOS",
    "resv_name": "Reservation",
    "federation_origin": "Origin",
    "time_minimum": "MinTime",
    "tasks_per_node": "NTPerNode",
    "tasks_per_board": "NTPerBoard",
    "tasks_per_socket": "NTPerSocket",
    "tasks_per_core": "NTPerCore",
    "cpus_per_task": "cpus-per-task",
    "minimum_cpus_per_node": "MinCpus",
    "minimum_memory": "MinMemory",  # per node or per CPU
    "tres_req_str": "tres-alloc",  # of a pending job the requested ones
    "batch_flag": "BatchFlag",
    "array_job_id": "ArrayJobID",
    "array_task_id": "ArrayTaskID",
    "het_job_id": "HetJobID",
    "shared": "",  # Capabilities.exclusive_column
    "deadline": "Deadline",
}
_TEXTS_OF_THE_REQUEST: Final = {
    "name": "Name",
    "account": "Account",  # any text where Slurm does not check it
    "features": "Feature",
    "licenses": "Licenses",
    "required_nodes": "ReqNodes",
    "tres_per_node": "tres-per-node",
    "tres_per_job": "tres-per-job",
    "tres_per_task": "tres-per-task",
    "tres_per_socket": "tres-per-socket",
    "cpus_per_tres": "cpus-per-tres",
    "memory_per_tres": "mem-per-tres",
}
_OF_THE_MOMENT: Final = {
    "job_state": "State",
    "state_reason": "Reason",
    "eligible_time": "EligibleTime",
    "start_time": "StartTime",
    "time_limit": "TimeLimit",
    "priority": "PriorityLong",
    "nice": "Nice",
    "restart_cnt": "RestartCnt",
    "nodes": "NodeList",
}
_TEXTS_OF_THE_MOMENT: Final = {
    "admin_comment": "admin_comment",
}
COLUMNS: Final = _OF_THE_REQUEST | _TEXTS_OF_THE_REQUEST | _OF_THE_MOMENT | _TEXTS_OF_THE_MOMENT
"""Field of squeue's JSON: column of ``squeue --Format``."""
_NUMBERS: Final = frozenset(
    {
        *("job_id", "submit_time", "eligible_time", "start_time", "priority", "node_count", "max_nodes", "tasks"),
        *("cpus", "batch_flag", "array_job_id", "het_job_id", "deadline"),
        *("tasks_per_node", "tasks_per_board", "tasks_per_socket", "tasks_per_core", "restart_cnt"),
        *("cpus_per_task", "minimum_cpus_per_node"),
    }
)
_NODES_UNAVAILABLE: Final = "Nodes required for job are DOWN"  # slurmctld's schedule(), for WAIT_RESOURCES
_NOTHING: Final = frozenset({"", "N/A", "(null)", "NONE", "Unknown"})
_LIMIT: Final = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")
_NO_VAL: Final = 4294967294  # slurm.h
_ARRAY_TASKS: Final = list(_OF_THE_REQUEST).index("array_task_id")
_END: Final = "|"
"""What follows a column that Slurm words itself, and each mark."""
_REQUEST_END, _ROW_END = "+|", "-|"
"""What follows a mark after the last column of the request, and after the last one of a row."""


class Row(NamedTuple):
    """One job as squeue prints it: the texts of its request, and of the columns that change while it waits.

    ``request_key`` stands for the request in all readings of this process.
    """

    request_key: str
    request: list[str]
    moment: list[str]

    @property
    def job_id(self) -> int:
        """The job's id."""
        return int(self.request[0])

    @property
    def name(self) -> str:
        """The job's name, which can be any text."""
        return self.request[len(_OF_THE_REQUEST)]

    @property
    def has_tasks(self) -> bool:
        """Whether it stands for several waiting tasks of an array, including tasks with job ids of their own."""
        tasks = self.request[_ARRAY_TASKS]
        return tasks not in _NOTHING and not tasks.isdigit()

    @property
    def is_pending(self) -> bool:
        """Whether it waits."""
        return self.moment[0] == "PENDING"

    @property
    def may_be_ours(self) -> bool:
        """Whether rlalloc may change the job: it is pending and has an AdminComment, where the tag would be."""
        return self.is_pending and self.moment[-1] not in _NOTHING

    @property
    def has_nodes(self) -> bool:
        """Whether it has got nodes."""
        return self.moment[-2] not in _NOTHING


class Marks:
    """The marks of one reading. In the keys of rows a secret of this process stands for them, which nobody sees."""

    _secret: Final = f"|{secrets.token_hex(4)}"

    def __init__(self, capabilities: Capabilities) -> None:
        self._mark = f"|{secrets.token_hex(4)}"
        self._columns = COLUMNS | {"shared": capabilities.exclusive_column}

    @property
    def option(self) -> str:
        """What squeue is asked to print."""
        ends = dict.fromkeys(COLUMNS, _END)
        ends |= dict.fromkeys(_TEXTS_OF_THE_REQUEST | _TEXTS_OF_THE_MOMENT, f"{self._mark}{_END}")
        for kind in (_OF_THE_REQUEST, _OF_THE_MOMENT):
            ends[next(reversed(kind))] = f"{self._mark}{_END}"
        ends[next(reversed(_TEXTS_OF_THE_REQUEST))] = f"{self._mark}{_REQUEST_END}"
        ends[next(reversed(_TEXTS_OF_THE_MOMENT))] = f"{self._mark}{_ROW_END}"
        return f"--Format={','.join(f'{column}:{ends[key]}' for key, column in self._columns.items())}"

    def keys(self, text: str) -> list[str]:
        """The keys of all rows that squeue printed: a job that is as before has the same. Raises UnexpectedAnswer."""
        keys = [row.lstrip() for row in text.replace(self._mark, self._secret).split(f"{self._secret}{_ROW_END}")]
        if keys.pop():
            raise UnexpectedAnswer(f"squeue printed no whole rows: {text[:80]!r}")
        return keys

    @classmethod
    def row(cls, key: str) -> Row:
        """The row of a key. Raises UnexpectedAnswer."""
        request_key, _, moment_key = key.partition(f"{cls._secret}{_REQUEST_END}")
        request, moment = cls._texts(request_key), cls._texts(moment_key)
        expected = len(_OF_THE_REQUEST) + len(_TEXTS_OF_THE_REQUEST), len(_OF_THE_MOMENT) + len(_TEXTS_OF_THE_MOMENT)
        if (len(request), len(moment)) != expected:
            raise UnexpectedAnswer(f"squeue printed {len(request)} and {len(moment)} columns instead of {expected}")
        if not request[0].isdigit():
            raise UnexpectedAnswer(f"squeue printed no job id in a row: {request[0][:80]!r}")
        return Row(request_key, request, moment)

    @classmethod
    def _texts(cls, part: str) -> list[str]:
        words, *texts = part.split(f"{cls._secret}{_END}")
        return [*words.split(_END), *texts]


def record_of(row: Row, details: RequestDetails | None, capabilities: Capabilities) -> JobRecord:
    """The job of a row; ``details`` are what the columns leave out, None where that is not known."""
    said = dict(zip(COLUMNS, (*row.request, *row.moment), strict=True))
    shared = "none" if said["shared"] == capabilities.exclusive_word else ""
    record = job_record(_as_in_json(said, details) | {"shared": shared})
    if details is None:
        return record
    record = msgspec.structs.replace(record, needs=details.needs)
    if not record.array_job_id:
        return record
    return msgspec.structs.replace(record, is_split=details.is_split, array_tasks=details.array_tasks)


def at_this_moment(record: JobRecord, row: Row) -> JobRecord:
    """The job of a row with the request of a record, and which has nodes where the record has some."""
    state, reason, eligible, start, limit, priority, nice, restarts, nodes, admin_comment = row.moment
    return msgspec.structs.replace(
        record,
        state=_state(state),
        reason=_reason(reason),
        begin_s=_number(eligible),
        started_s=_number(start),
        time_limit_s=60 * _minutes(limit),
        priority=_number(priority),
        admin_comment="" if admin_comment in _NOTHING else admin_comment,
        nice=_nice(nice),
        restarts=_number(restarts),
        held_nodes=nodes if record.has_run else "",
    )


def _as_in_json(said: Mapping[str, str], details: RequestDetails | None) -> dict[str, Any]:
    """The columns of one job under the names of squeue's JSON.

    Without details, memory counts as per node and the number of nodes as fixed.
    """
    values: dict[str, Any] = {key: "" if text in _NOTHING else text for key, text in said.items()}
    values |= {key: _number(said[key]) for key in _NUMBERS}
    values["federation_origin"] = values["federation_origin"].removeprefix("NA")  # of a job in no federation
    values["name"] = said["name"]  # a job may be called N/A
    values["state_reason"] = _reason(said["state_reason"])
    values |= {key: _minutes(said[key]) for key in ("time_limit", "time_minimum")}
    values["nice"] = _nice(said["nice"])
    per_cpu = details is not None and details.mem_per_cpu
    values["memory_per_cpu" if per_cpu else "memory_per_node"] = round(memory_mib(said["minimum_memory"]) or 0)
    if details is not None:
        values["max_nodes"] = details.max_nodes
        values["flags"] = ["CRON_JOB"] if details.is_scrontab else []
        values["excluded_nodes"] = details.excluded_nodes
    values["tres_alloc_str"] = values["tres_req_str"] if values["nodes"] else ""
    if said["array_task_id"] in _NOTHING:  # the column shows the job's own id then
        values["array_job_id"] = 0
    else:
        values["array_task_column"] = _tasks_of_the_record(said["array_task_id"], details)
    return values


def _tasks_of_the_record(column: str, details: RequestDetails | None) -> str:
    """The tasks that wait together, and how many may run at once.

    Where squeue has added other tasks to them, it leaves out how many may run.
    """
    if details is None or not (details.own_tasks and details.array_tasks):
        return column
    return f"{details.array_tasks}%{details.array_parallel}" if details.array_parallel else details.array_tasks


@lru_cache(maxsize=1024)
def _state(text: str) -> str:
    return job_state(words_of("" if text in _NOTHING else text))


@lru_cache(maxsize=4096)
def _reason(text: str) -> str:
    """The name of the reason, without the text after it: ``RaisedSignal:9(Killed)``, ``ReqNodeNotAvail, …``.

    For one, squeue prints a sentence alone.
    """
    return "Resources" if text.startswith(_NODES_UNAVAILABLE) else re.split("[:,]", text)[0]


def _number(text: str) -> int:
    """A count or a time; 0 where there is none, or where Slurm prints NO_VAL (tasks of cancelled jobs)."""
    return number if text.isdigit() and (number := int(text)) < _NO_VAL else 0


def _nice(text: str) -> int:
    return signed(int(text)) if text.removeprefix("-").isdigit() else 0


@lru_cache(maxsize=4096)
def _minutes(limit: str) -> int:
    """``[days-][hours:]minutes:seconds`` in minutes; 0 for UNLIMITED."""
    match = _LIMIT.fullmatch(limit)
    if match is None:
        return 0
    days, hours, minutes, _ = (int(part or 0) for part in match.groups())
    return (days * 24 + hours) * 60 + minutes
