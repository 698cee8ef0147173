"""What sacct prints of a real site, as text or as JSON.

The text has to come with its header line, from::

    SLURM_TIME_FORMAT=%s sacct --allusers --parsable2 --starttime=2026-01-01 --format=JobIDRaw,User,Account,\
Partition,QOS,State,Submit,Start,End,ElapsedRaw,TimelimitRaw,NNodes,NTasks,ReqTRES,AllocTRES,TotalCPU,MaxRSS

Times may also be local (2026-01-31T12:00:00). Steps follow their job; MaxRSS and NTasks are theirs. JobName is left
out on purpose: a name may hold the delimiter.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from rlalloc.history.sacct_rows import SacctColumns, clock_s, state_of, with_steps
from rlalloc.past_job import NOT_ENDED_STATES
from rlalloc.tres import memory_mib, parse_tres
from rlalloc_simulator.workloads.readers.trace_table import Row, read_table, wall_clock_s
from rlalloc_simulator.workloads.readers.trace_tres import gpus_and_type
from rlalloc_simulator.workloads.trace_job import TraceJob, TraceState
from rlalloc_simulator.workloads.workload_errors import WorkloadError

COLUMNS: Final = (
    "JobIDRaw", "User", "Account", "Partition", "QOS", "State", "Submit", "Start", "End", "ElapsedRaw",
    "TimelimitRaw", "NNodes", "NTasks", "ReqTRES", "AllocTRES", "TotalCPU", "MaxRSS",
)  # fmt: skip
_STATES: Final[dict[str, TraceState]] = {
    "COMPLETED": "COMPLETED",
    "FAILED": "FAILED",
    "CANCELLED": "CANCELLED",
    "DEADLINE": "CANCELLED",
    "TIMEOUT": "TIMEOUT",
    "OUT_OF_MEMORY": "OUT_OF_MEMORY",
    "NODE_FAIL": "NODE_FAIL",
    "BOOT_FAIL": "NODE_FAIL",
    "PREEMPTED": "NODE_FAIL",
}
_NO_WORK_OF_THE_JOB: Final = frozenset({"batch", "extern", "interactive"})


def read_sacct(paths: Sequence[Path]) -> Iterator[TraceJob]:
    """Read sacct's text. Raises WorkloadError."""
    for path in paths:
        rows = read_table(path, COLUMNS, delimiter=_delimiter(path))
        for row, steps in with_steps(rows, lambda row: row.text("JobIDRaw")):
            yield from _text_job(row, steps)


def _delimiter(path: Path) -> str:
    """The character behind the first column's name: ``|``, or what --delimiter said."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return SacctColumns(file.readline()).delimiter
    except OSError as err:
        raise WorkloadError(f"{path}: {err.strerror}; name a file that sacct wrote") from err


def _text_job(row: Row, steps: Sequence[Row]) -> Iterable[TraceJob]:
    state = _state(row.text("State"))
    if state is None:
        if state_of(row.text("State")) in NOT_ENDED_STATES:
            return ()
        raise row.error("State", f"one of {', '.join((*_STATES, *sorted(NOT_ENDED_STATES)))}")
    requested, allocated = parse_tres(row.text("ReqTRES")), parse_tres(row.text("AllocTRES"))
    limit = row.text("TimelimitRaw")
    rss = [
        (memory_mib(step.text("MaxRSS")) or 0.0) * max(1.0, step.optional("NTasks") or 1.0)
        for step in steps
        if not step.text("JobIDRaw").endswith(".extern")
    ]
    tasks = [
        step.count("NTasks")
        for step in steps
        if step.text("JobIDRaw").partition(".")[2] not in _NO_WORK_OF_THE_JOB and step.text("NTasks")
    ]
    return _jobs(
        key=row.text("JobIDRaw"),
        state=state,
        times=(_time(row, "Submit"), _time(row, "Start"), _time(row, "End")),
        elapsed_s=row.number("ElapsedRaw"),
        limit_s=float(limit) * 60 if limit.isdigit() else None,
        nodes=int(requested.get("node", 0)) or int(row.optional("NNodes") or 1),
        tasks=max(tasks, default=0),
        requested=requested,
        allocated=allocated,
        cpu_s=clock_s(row.text("TotalCPU")),
        rss_mib=max(rss, default=0.0),
        names=(row.text("User"), row.text("Account"), row.text("Partition"), row.text("QOS")),
    )


def _state(text: str) -> TraceState | None:
    return _STATES.get(state_of(text))


def _time(row: Row, key: str) -> float | None:
    text = row.text(key)
    if text in ("", "Unknown", "None"):
        return None
    value = float(text) if text.isdigit() else wall_clock_s(text)
    if value is None:
        raise row.error(key, "seconds since the epoch (SLURM_TIME_FORMAT=%s) or 2026-01-31T12:00:00")
    return value


def _jobs(  # noqa: PLR0913 (what the two forms of sacct have in common)
    *,
    key: str,
    state: TraceState,
    times: tuple[float | None, float | None, float | None],
    elapsed_s: float,
    limit_s: float | None,
    nodes: int,
    tasks: int,
    requested: dict[str, float],
    allocated: dict[str, float],
    cpu_s: float | None,
    rss_mib: float,
    names: tuple[str, str, str, str],
) -> Iterator[TraceJob]:
    """The job, or nothing if it has no submission."""
    submit_s, start_s, end_s = times
    if submit_s is None:
        return
    never_ran = elapsed_s == 0 and state == "CANCELLED"
    gpus, gpu_type = gpus_and_type(requested)
    if not gpus:
        gpus, gpu_type = gpus_and_type(allocated)
    yield TraceJob(
        key=key,
        submit_s=submit_s,
        gpus=gpus,
        elapsed_s=elapsed_s,
        state=state,
        ended_pending_s=max(0.0, (end_s or start_s or submit_s) - submit_s) if never_ran else None,
        user=names[0],
        account=names[1],
        partition=names[2].split(",")[0],
        qos=names[3],
        nodes=nodes,
        tasks=tasks or nodes,
        cpus=requested.get("cpu") or allocated.get("cpu"),
        mem_mib=requested.get("mem") or allocated.get("mem"),
        gpu_type=gpu_type,
        time_limit_s=limit_s,
        cpus_used=cpu_s / elapsed_s if cpu_s and elapsed_s else None,
        max_rss_mib=rss_mib or None,
    )


def read_sacct_json(paths: Sequence[Path]) -> Iterator[TraceJob]:
    """Read ``sacct --json`` of 22.05 or later: numbers are plain there and objects since. Raises WorkloadError."""
    for path in paths:
        try:
            found = msgspec.json.decode(path.read_bytes())
        except OSError as err:
            raise WorkloadError(f"{path}: {err.strerror}; name a file that sacct --json wrote") from err
        except msgspec.DecodeError as err:
            raise WorkloadError(f"{path}: not JSON ({err}); write it with sacct --json, or use --from sacct") from err
        jobs = found.get("jobs") if isinstance(found, dict) else None
        if not isinstance(jobs, list):
            raise WorkloadError(f"{path}, key jobs: found none, allowed: the list that sacct --json writes")
        for number, job in enumerate(jobs, 1):
            try:
                yield from _json_job(path, number, job)
            except (KeyError, TypeError, AttributeError) as err:
                raise WorkloadError(f"{path}, job {number}: not as sacct --json writes it: {err!r}") from err


def _json_job(path: Path, number: int, job: dict[str, Any]) -> Iterable[TraceJob]:
    current = job["state"]["current"]
    name = current[0] if isinstance(current, list) else current
    state = _state(name)
    if state is None:
        if name in NOT_ENDED_STATES:
            return ()
        raise WorkloadError(f"{path}, job {number}, key state.current: found {name!r}, allowed: {', '.join(_STATES)}")
    requested, allocated = _json_tres(job["tres"]["requested"]), _json_tres(job["tres"]["allocated"])
    time = job["time"]
    limit_min = _number(time["limit"])
    steps = [step for step in job["steps"] if str(step["step"]["name"]) != "extern"]
    tasks = [int(step["tasks"]["count"]) for step in steps if step["step"]["name"] not in _NO_WORK_OF_THE_JOB]
    return _jobs(
        key=str(job["job_id"]),
        state=state,
        times=tuple(_number(time[key]) or None for key in ("submission", "start", "end")),  # type: ignore[arg-type]
        elapsed_s=_number(time["elapsed"]) or 0.0,
        limit_s=limit_min * 60 if limit_min else None,
        nodes=int(requested.get("node", 0)) or int(job["allocation_nodes"]) or 1,
        tasks=max(tasks, default=0),
        requested=requested,
        allocated=allocated,
        # The job's own total is 0 in 22.05.
        cpu_s=max(_cpu_s(job), sum(_cpu_s(step) for step in job["steps"])),
        rss_mib=max((_json_rss_mib(step) for step in steps), default=0.0),
        names=(str(job["user"]), str(job["account"]), str(job["partition"]), str(job["qos"])),
    )


def _json_tres(counts: Iterable[dict[str, Any]]) -> dict[str, float]:
    """By the names of the text form; memory is in MiB in both."""
    return {
        f"{part['type']}/{part['name']}" if part["name"] else str(part["type"]): float(part["count"])
        for part in counts
        if (part["count"] or 0) > 0  # null and -2 (22.05, energy) are "unknown"
    }


def _cpu_s(part: dict[str, Any]) -> float:
    """CPU time of a job or a step."""
    total = part["time"]["total"]
    return float(total["seconds"]) + float(total["microseconds"]) / 1e6


def _json_rss_mib(step: dict[str, Any]) -> float:
    """A step's largest task [bytes] times its tasks."""
    largest = _json_tres(step["tres"]["requested"]["max"]).get("mem", 0.0)
    return largest / 1024**2 * max(1, int(step["tasks"]["count"]))


def _number(value: Any) -> float | None:
    """A number, plain (22.05) or as ``{set, infinite, number}``; None where it is not set."""
    if isinstance(value, dict):
        return float(value["number"]) if value.get("set") and not value.get("infinite") else None
    return None if value is None else float(value)
