"""Alibaba's GPU traces (github.com/alibaba/clusterdata).

``read_pai``     cluster-trace-gpu-v2020 (Weng et al., NSDI 2022): pai_job_table.csv and pai_task_table.csv, joined by
                 job_name, and pai_sensor_table.csv if it is given. The published tables have no header line; their
                 columns are in the .header files beside them.
``read_gpu2023`` cluster-trace-gpu-v2023 (Weng et al., ATC 2023): openb_pod_list_*.csv

Both share GPUs between jobs; Slurm as rlalloc drives it does not: a part of a GPU is read as a whole one.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from rlalloc_simulator.workloads.readers.trace_table import Row, read_table
from rlalloc_simulator.workloads.trace_job import TraceJob, TraceState
from rlalloc_simulator.workloads.workload_errors import WorkloadError

_TABLES: Final = {
    "pai_job_table": ("job_name", "inst_id", "user", "status", "start_time", "end_time"),
    "pai_task_table": (
        "job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem", "plan_gpu",
        "gpu_type",
    ),
    "pai_sensor_table": (
        "job_name", "task_name", "worker_name", "inst_id", "machine", "gpu_name", "cpu_usage", "gpu_wrk_util",
        "avg_mem", "max_mem", "avg_gpu_wrk_mem", "max_gpu_wrk_mem", "read", "write", "read_count", "write_count",
    ),
}  # fmt: skip
_PAI_STATES: Final[dict[str, TraceState]] = {"Terminated": "COMPLETED", "Failed": "FAILED"}
_UTC_PLUS_8_S: Final = 8 * 3600.0
_POD_STATES: Final[dict[str, TraceState]] = {
    "Succeeded": "COMPLETED",
    "Failed": "FAILED",
    "Running": "CANCELLED",
    "Pending": "CANCELLED",
}
"""A pod's last phase before it was deleted: one that was running or pending then was ended by somebody."""


class _Tasks:
    """What a job's tasks request together; percentages are of one CPU or GPU."""

    def __init__(self) -> None:
        self.gpus = 0.0
        self.cpus = 0.0
        self.mem_gib = 0.0
        self.start_s: float | None = None
        self.gpu_type = ""

    def add(self, row: Row) -> None:
        count = max(1, int(row.optional("inst_num") or 1))
        gpus, start_s = row.optional("plan_gpu") or 0.0, row.optional("start_time")
        self.gpus += count * gpus / 100
        self.cpus += count * (row.optional("plan_cpu") or 0.0) / 100
        self.mem_gib += count * (row.optional("plan_mem") or 0.0)
        if start_s is not None:
            self.start_s = start_s if self.start_s is None else min(self.start_s, start_s)
        if gpus and row.text("gpu_type"):
            self.gpu_type = row.text("gpu_type")


class _Sensors:
    """What a job's instances used together."""

    def __init__(self) -> None:
        self.cpus = 0.0
        self.max_mem_gib = 0.0


def read_pai(paths: Sequence[Path]) -> Iterator[TraceJob]:
    """Read the tables; their names say which is which. Instances become tasks of one job.

    The clock is that of UTC+8, as the authors say. Jobs still running or waiting at the end are left out.
    Raises WorkloadError.
    """
    by_table = {_table_of(path): path for path in paths}
    for table in ("pai_job_table", "pai_task_table"):
        if table not in by_table:
            raise WorkloadError(f"{table}.csv is missing: name it beside the other tables of the trace")
    tasks: defaultdict[str, _Tasks] = defaultdict(_Tasks)
    for row in _rows(by_table["pai_task_table"], "pai_task_table"):
        tasks[row.text("job_name")].add(row)
    sensors: defaultdict[str, _Sensors] = defaultdict(_Sensors)
    if "pai_sensor_table" in by_table:
        for row in _rows(by_table["pai_sensor_table"], "pai_sensor_table"):
            used = sensors[row.text("job_name")]
            used.cpus += (row.optional("cpu_usage") or 0.0) / 100
            used.max_mem_gib += row.optional("max_mem") or 0.0
    for row in _rows(by_table["pai_job_table"], "pai_job_table"):
        state, asked = _PAI_STATES.get(row.text("status")), tasks.get(row.text("job_name"))
        end_s = row.optional("end_time")
        if row.text("status") not in (*_PAI_STATES, "Running", "Waiting"):
            raise row.error("status", "Terminated, Failed, Running, Waiting")
        if state is not None and asked is not None and asked.start_s is not None and end_s is not None:
            yield _pai_job(row, state, asked, end_s, sensors.get(row.text("job_name")))


def _pai_job(row: Row, state: TraceState, asked: _Tasks, end_s: float, used: _Sensors | None) -> TraceJob:
    submit_s = row.number("start_time")
    start_s = asked.start_s if asked.start_s is not None else submit_s
    gpus = math.ceil(asked.gpus)
    nodes = max(1, math.ceil(gpus / 8))  # no machine has more than 8 GPUs (pai_machine_spec)
    return TraceJob(
        key=row.text("job_name"),
        submit_s=submit_s + _UTC_PLUS_8_S,
        gpus=gpus,
        elapsed_s=max(0.0, end_s - start_s),
        state=state,
        user=row.text("user"),
        nodes=nodes,
        cpus=asked.cpus or None,
        mem_mib=asked.mem_gib * 1024 if asked.mem_gib else None,
        gpu_type=asked.gpu_type if asked.gpu_type != "MISC" else "",
        cpus_used=used.cpus or None if used else None,
        max_rss_mib=used.max_mem_gib * 1024 or None if used else None,
    )


def _table_of(path: Path) -> str:
    table = next((name for name in _TABLES if path.name.startswith(name)), None)
    if table is None:
        raise WorkloadError(
            f"{path}: not one of {', '.join(f'{name}.csv' for name in _TABLES)}; keep the tables' names"
        )
    return table


def _rows(path: Path, table: str) -> Iterator[Row]:
    columns = _TABLES[table]
    for row in read_table(path, columns, header=columns):
        if row.text("job_name") != "job_name":  # somebody put the header into the file
            yield row


def read_gpu2023(paths: Sequence[Path]) -> Iterator[TraceJob]:
    """Read openb_pod_list_*.csv: a pod is a job on one node. Raises WorkloadError."""
    needed = (
        "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_spec", "qos", "pod_phase", "creation_time",
        "deletion_time", "scheduled_time",
    )  # fmt: skip
    for path in paths:
        for row in read_table(path, needed):
            yield _pod(row)


def _pod(row: Row) -> TraceJob:
    state = _POD_STATES.get(row.text("pod_phase"))
    if state is None:
        raise row.error("pod_phase", ", ".join(_POD_STATES))
    created_s, deleted_s, started_s = (
        row.number("creation_time"),
        row.number("deletion_time"),
        row.optional("scheduled_time"),
    )
    spec = row.text("gpu_spec")
    return TraceJob(
        key=row.text("name"),
        submit_s=created_s,
        gpus=row.count("num_gpu"),
        elapsed_s=0.0 if started_s is None else max(0.0, deleted_s - started_s),
        state=state,
        ended_pending_s=max(0.0, deleted_s - created_s) if started_s is None else None,
        qos=row.text("qos"),
        job_class="serve" if row.text("qos") == "LS" and row.count("num_gpu") else None,
        nodes=1,
        cpus=row.number("cpu_milli") / 1000 or None,
        mem_mib=row.number("memory_mib") or None,
        # A choice of types has no word in Slurm's request but a constraint.
        gpu_type=spec if spec not in ("", "nan") and "|" not in spec else "",
    )
