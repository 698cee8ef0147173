"""Logs in the Standard Workload Format (rlalloc.history.swf_lines).

It has processors, but neither nodes nor GPUs: no rule of rlalloc covers its jobs, but they fill a cluster.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from rlalloc.history.swf_lines import PARTS_OF_A_JOB, fields_of, start_time_s
from rlalloc_simulator.workloads.readers.trace_table import Row
from rlalloc_simulator.workloads.trace_job import TraceJob, TraceState
from rlalloc_simulator.workloads.workload_errors import WorkloadError

_STATES: Final[dict[int, TraceState]] = {0: "FAILED", 1: "COMPLETED", 5: "CANCELLED", -1: "UNKNOWN"}


def read_swf(paths: Sequence[Path]) -> Iterator[TraceJob]:
    """Read the jobs of one log. Raises WorkloadError."""
    for path in paths:
        try:
            file = path.open(encoding="utf-8", errors="replace")
        except OSError as err:
            raise WorkloadError(f"{path}: {err.strerror}; name an SWF log") from err
        with file:
            start_s = 0.0
            for number, line in enumerate(file, 1):
                if line.startswith(";"):
                    start_s = start_time_s(line) or start_s
                elif line.strip():
                    job = _job(path, number, line, start_s)
                    if job is not None:
                        yield job


def _job(path: Path, number: int, line: str, start_s: float) -> TraceJob | None:
    try:
        fields = fields_of(line)
    except ValueError as err:
        raise WorkloadError(f"{path}, line {number}: {err}") from err
    if fields.status in PARTS_OF_A_JOB:
        return None
    row = Row(path, number, fields._asdict())
    status = int(row.number("status")) if row.text("status") else -1
    if status not in _STATES:
        raise row.error("status", "-1 to 5")
    processors = row.optional("requested_processors") or row.optional("allocated_processors")
    if not processors:
        return None  # nothing asked and nothing given: no job that can be run again
    submit_s, wait_s, run_s = row.number("submit_time"), row.optional("wait_time"), row.optional("run_time")
    never_ran = status == 5 and not run_s
    memory_kib, used_kib = row.optional("requested_memory"), row.optional("used_memory")
    cpu_s = row.optional("average_cpu_time")
    allocated = row.optional("allocated_processors") or processors
    preceding = row.text("preceding_job_number")
    return TraceJob(
        key=row.text("job_number"),
        submit_s=start_s + submit_s,
        gpus=0,
        elapsed_s=run_s or 0.0,
        state=_STATES[status],
        ended_pending_s=(wait_s or 0.0) if never_ran else None,
        user=f"u{row.text('user_id')}" if row.text("user_id") else "",
        account=f"g{row.text('group_id')}" if row.text("group_id") else "",
        partition=f"q{row.text('queue_number')}" if row.text("queue_number") else "",
        tasks=int(processors),
        cpus=processors,
        mem_mib=memory_kib * processors / 1024 if memory_kib else None,
        time_limit_s=row.optional("requested_time"),
        cpus_used=cpu_s * allocated / run_s if cpu_s and run_s else None,
        max_rss_mib=used_kib * allocated / 1024 if used_kib else None,
        after=(preceding,) if preceding else (),
    )
