"""Jobs from columns of squeue: the same facts as its JSON, at a sixth of the cost.

With 2,000 jobs ``squeue --json`` takes 0.4 s and 100 MB, these columns 0.06 s (docs/results/slurm-load.md):
squeue and rlallocd spend the time, not slurmctld. Neither can ask for changes only.

Each call separates columns by a new random mark, which nobody can have put into a job's name. A row that is as in the
last reading stands for the same record, so only changed rows are parsed. request_details.py reads what the columns
leave out, for the few jobs that rlalloc may change.
"""

import logging
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from rlalloc.tres import memory_mib
from rlallocd.slurm.json_reader import JsonReader, job_record
from rlallocd.slurm.pace import BackOff
from rlallocd.slurm.request_details import RequestDetails, request_details
from rlallocd.slurm.slurm_commands import Commands
from rlallocd.slurm.slurm_errors import UnexpectedAnswer, UnknownJob, UpdateRefused
from rlallocd.slurm.slurm_records import JobRecord, NodeRecord, with_splits

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
    "nice": "Nice",
    "admin_comment": "admin_comment",
    "node_count": "NumNodes",
    "max_nodes": "MaxNodes",
    "tasks": "NumTasks",
    "cpus": "NumCPUs",
    "qos": "QOS",
    "resv_name": "Reservation",
    "federation_origin": "Origin",
    "time_minimum": "MinTime",
    "restart_cnt": "RestartCnt",
    "tasks_per_node": "NTPerNode",
    "tasks_per_board": "NTPerBoard",
    "tasks_per_socket": "NTPerSocket",
    "tasks_per_core": "NTPerCore",
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
    "shared": "",  # Capabilities.exclusive_column
    "deadline": "Deadline",
    "required_nodes": "ReqNodes",
    "features": "Feature",
}
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
_VOLATILE: Final = frozenset(
    {
        *("job_state", "state_reason", "eligible_time", "start_time", "time_limit", "priority", "admin_comment"),
        "nice",
        *("restart_cnt", "nodes"),
    }
)
_OF_THE_REQUEST: Final = tuple(at for at, key in enumerate(_COLUMNS) if key not in _VOLATILE)
_NAME, _STATE, _ADMIN_COMMENT = (list(_COLUMNS).index(key) for key in ("name", "job_state", "admin_comment"))
_SHOWN_ONE_BY_ONE: Final = 100  # more than that, and the JSON of all jobs costs less
_JOBS_PER_CALL: Final = 1000  # a command line has an end
_LONGEST_WITHOUT_COLUMNS_S: Final = 600.0
"""However often the columns cannot be read, they are tried again after this time."""


_Row = tuple[str, ...]


class SqueueReader:
    """Reads jobs from columns, all else through ``json_reader``.

    When columns cannot be read, ``json_reader`` reads the jobs, too, until a back-off is over: one odd answer must
    not cost a site the fast reading until the next restart. ``clock`` returns monotonic seconds.
    """

    name = "the commands' columns and JSON"

    def __init__(
        self, commands: Commands, json_reader: JsonReader, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._commands = commands
        self._json_reader = json_reader
        self._clock = clock
        self._back_off = BackOff(_LONGEST_WITHOUT_COLUMNS_S)
        self._json_until_s: float | None = None
        self._records: dict[_Row, JobRecord] = {}
        self._jobs: tuple[JobRecord, ...] = ()
        self._details: dict[_Row, RequestDetails] = {}
        self._columns = tuple((_COLUMNS | {"shared": json_reader.capabilities.exclusive_column}).values())

    def jobs(self) -> tuple[JobRecord, ...]:
        """Every job that slurmctld knows: ended ones too, for MinJobAge seconds. Raises SlurmError."""
        rows = self._rows_or_none()
        if rows is None:
            return self._json_reader.jobs()
        new = [row for row in rows if row not in self._records]
        if not new and len(rows) == len(self._records):
            return self._jobs
        self._read_details([row for row in new if _may_be_ours(row) and _request(row) not in self._details])
        self._records = {row: self._records.get(row) or self._record(row) for row in rows}
        self._details = {key: self._details[key] for row in rows if (key := _request(row)) in self._details}
        self._jobs = with_splits(self._records.values())
        return self._jobs

    def read_back(self, job_ids: Sequence[int]) -> dict[int, JobRecord]:
        """The jobs of these ids that slurmctld still knows, with every request field. Raises SlurmError."""
        if not job_ids:
            return {}
        if len(job_ids) > _JOBS_PER_CALL:
            return self._json_reader.read_back(job_ids)
        rows = self._rows_or_none(f"--jobs={','.join(str(job_id) for job_id in job_ids)}")
        if rows is None:
            return self._json_reader.read_back(job_ids)
        wanted = {int(row[0]): row for row in rows if int(row[0]) in set(job_ids)}
        self._read_details([row for row in wanted.values() if _is_pending(row)])
        for row in wanted.values():
            self._records.pop(row, None)
        return {job_id: self._record(row) for job_id, row in wanted.items()}

    def nodes(self) -> tuple[NodeRecord, ...]:
        """Every node. Raises SlurmError."""
        return self._json_reader.nodes()

    def _rows_or_none(self, *options: str) -> list[_Row] | None:
        """The rows of squeue; None while columns cannot be read. Raises SlurmUnavailable."""
        if self._json_until_s is not None and self._clock() < self._json_until_s:
            return None
        try:
            rows = self._rows(*options)
        except UnknownJob:
            rows = []
        except (UnexpectedAnswer, UpdateRefused) as err:
            wait_s = self._back_off.failed()
            self._json_until_s = self._clock() + wait_s
            _log.warning("squeue is read as JSON, which is slower, for the next %.0f s: %s", wait_s, err)
            return None
        if self._json_until_s is not None:
            _log.info("squeue is read in columns again")
            self._back_off.succeeded()
            self._json_until_s = None
        return rows

    def _rows(self, *options: str) -> list[_Row]:
        mark = f"|{secrets.token_hex(4)}|"
        text = self._commands.run(
            *("squeue", "--all", "--states=all", "--noheader", "--noconvert"),
            *options,
            f"--Format={','.join(f'{column}:{mark}' for column in self._columns)}",
        )
        fields = text.split(mark)
        width = len(_COLUMNS)
        if len(fields) % width != 1 or fields[-1].strip():
            raise UnexpectedAnswer(f"squeue printed {len(fields) - 1} fields in rows of {width}: {text[:80]!r}")
        rows = [(fields[at].strip(), *fields[at + 1 : at + width]) for at in range(0, len(fields) - 1, width)]
        if not all(row[0].isdigit() for row in rows):
            raise UnexpectedAnswer(f"squeue printed no job id in a row: {text[:80]!r}")
        return rows

    def _read_details(self, rows: Sequence[_Row]) -> None:
        """Read what columns leave out, for jobs that rlalloc may change."""
        if len(rows) > _SHOWN_ONE_BY_ONE:
            found = {
                job.job_id: RequestDetails(
                    max_nodes=job.fields.max_nodes,
                    mem_per_cpu=job.fields.mem_mib_per_cpu > 0,
                    is_scrontab=job.is_scrontab,
                    is_split=job.is_split,
                    array_tasks=job.array_tasks,
                    excluded_nodes=job.excluded_nodes,
                    needs=job.needs,
                )
                for job in self._json_reader.jobs()
            }
        else:
            found = request_details(self._commands, {int(row[0]): row[_NAME] for row in rows})
        self._details |= {_request(row): found[job_id] for row in rows if (job_id := int(row[0])) in found}

    def _record(self, row: _Row) -> JobRecord:
        said = dict(zip(_COLUMNS, row, strict=True))
        details = self._details.get(_request(row))
        whole_nodes = said["shared"] == self._json_reader.capabilities.exclusive_word
        record = job_record(_as_in_json(said, details) | {"shared": "none" if whole_nodes else ""})
        if details is None:
            return record
        record = msgspec.structs.replace(record, needs=details.needs)
        if not record.array_job_id:
            return record
        return msgspec.structs.replace(record, is_split=details.is_split, array_tasks=details.array_tasks)


def _request(row: _Row) -> _Row:
    """The part of a row that stays the same while a job waits."""
    return tuple(row[at] for at in _OF_THE_REQUEST)


def _is_pending(row: _Row) -> bool:
    return row[_STATE] == "PENDING"


def _may_be_ours(row: _Row) -> bool:
    """Whether rlalloc may change a job: it is pending and has an AdminComment, where the tag would be."""
    return _is_pending(row) and row[_ADMIN_COMMENT] not in _NOTHING


def _as_in_json(said: Mapping[str, str], details: RequestDetails | None) -> dict[str, Any]:
    """The columns of one job under the names of squeue's JSON.

    Without details, memory counts as per node and the number of nodes as fixed.
    """
    values: dict[str, Any] = {key: "" if text in _NOTHING else text for key, text in said.items()}
    values |= {key: _number(said[key]) for key in _NUMBERS}
    values["federation_origin"] = values["federation_origin"].removeprefix("NA")  # of a job in no federation
    values["name"] = said["name"]  # a job may be called N/A
    values["state_reason"] = _reason(said)
    values |= {key: _minutes(said[key]) for key in ("time_limit", "time_minimum")}
    values["nice"] = int(said["nice"]) if said["nice"].removeprefix("-").isdigit() else 0
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
        values["array_task_column"] = said["array_task_id"]
    return values


def _reason(said: Mapping[str, str]) -> str:
    """The name of the reason, without the text after it: ``RaisedSignal:9(Killed)``, ``ReqNodeNotAvail, …``.

    For one, squeue prints a sentence alone.
    """
    text = said["state_reason"]
    return "Resources" if text.startswith(_NODES_UNAVAILABLE) else re.split("[:,]", text)[0]


def _number(text: str) -> int:
    """A count or a time; 0 where there is none, or where Slurm prints NO_VAL (tasks of cancelled jobs)."""
    return int(text) if text.isdigit() and int(text) < _NO_VAL else 0


def _minutes(limit: str) -> int:
    """``[days-][hours:]minutes:seconds`` in minutes; 0 for UNLIMITED."""
    match = _LIMIT.fullmatch(limit)
    if match is None:
        return 0
    days, hours, minutes, _ = (int(part or 0) for part in match.groups())
    return (days * 24 + hours) * 60 + minutes
