"""Microsoft's Philly traces (Jeon et al., ATC 2019; github.com/msr-fiddle/philly-traces, CC-BY-4.0).

``read_philly``      the published cluster_job_log: a JSON list of jobs with their attempts
``read_philly_csv``  timestamp, duration [s], num_gpus, gpu_time, cluster, as petuum/adaptdl (branch osdi21-artifact)
                     prepared it: no users, no ends, no requests but GPUs
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from rlalloc_simulator.workloads.readers.trace_table import read_table, wall_clock_s
from rlalloc_simulator.workloads.trace_job import TraceJob, TraceState
from rlalloc_simulator.workloads.workload_errors import WorkloadError

_STATES: Final[dict[str, TraceState]] = {"Pass": "COMPLETED", "Failed": "FAILED", "Killed": "CANCELLED"}


class _Server(msgspec.Struct):
    ip: str
    gpus: tuple[str, ...]


class _Attempt(msgspec.Struct):
    detail: tuple[_Server, ...] = ()
    start_time: str | None = None
    end_time: str | None = None


class _Job(msgspec.Struct):
    status: str
    vc: str
    jobid: str
    submitted_time: str
    attempts: tuple[_Attempt, ...] = ()
    user: str | None = None


def read_philly(paths: Sequence[Path]) -> Iterator[TraceJob]:
    """Read the published job log.

    Attempts are one job that was started again: their run times add up. Jobs that were still running when the log
    was taken, or whose times it lost, are left out, as are jobs without a recorded attempt that were not killed.
    Raises WorkloadError.
    """
    for path in paths:
        try:
            jobs = msgspec.json.decode(path.read_bytes(), type=list[_Job])
        except OSError as err:
            raise WorkloadError(f"{path}: {err.strerror}; name Philly's cluster_job_log") from err
        except msgspec.MsgspecError as err:
            raise WorkloadError(
                f"{path}: not Philly's cluster_job_log ({err}); for the CSV form use philly-csv"
            ) from err
        for number, job in enumerate(jobs, 1):
            read = _job(path, number, job)
            if read is not None:
                yield read


def _job(path: Path, number: int, job: _Job) -> TraceJob | None:
    state = _STATES.get(job.status)
    if state is None:
        raise WorkloadError(f"{path}, job {number}, key status: found {job.status!r}, allowed: {', '.join(_STATES)}")
    submit_s = wall_clock_s(job.submitted_time)
    if submit_s is None:
        if job.submitted_time in ("None", ""):
            return None
        raise WorkloadError(
            f"{path}, job {number}, key submitted_time: found {job.submitted_time!r}, allowed: 2017-10-07 01:11:39"
        )
    elapsed_s = 0.0
    servers: tuple[_Server, ...] = ()
    for attempt in job.attempts:
        start_s, end_s = _time_s(attempt.start_time), _time_s(attempt.end_time)
        if start_s is None or end_s is None:
            return None  # still running, or lost
        elapsed_s += max(0.0, end_s - start_s)
        servers = attempt.detail or servers
    gpus = [len(server.gpus) for server in servers]
    if not gpus:
        return None  # its size is not known
    return TraceJob(
        key=job.jobid,
        submit_s=submit_s,
        gpus=sum(gpus),
        elapsed_s=elapsed_s,
        state=state,
        user=job.user or "",
        account=job.vc,
    )


def _time_s(text: str | None) -> float | None:
    return wall_clock_s(text) if text else None


def read_philly_csv(paths: Sequence[Path]) -> Iterator[TraceJob]:
    """Read the prepared table. Raises WorkloadError."""
    for path in paths:
        for row in read_table(path, ("timestamp", "duration", "num_gpus", "cluster")):
            if not row.text("num_gpus"):
                continue
            yield TraceJob(
                key="",
                submit_s=row.time("timestamp"),
                gpus=row.count("num_gpus"),
                elapsed_s=row.number("duration"),
                account=row.text("cluster"),
            )
