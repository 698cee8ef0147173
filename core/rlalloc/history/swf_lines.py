"""Standard Workload Format 2.2 of the Parallel Workloads Archive (cs.huji.ac.il/labs/parallel/workload/swf.html).

18 fields a line, -1 where unknown; comments and header lines begin with ``;``.
"""

from typing import Final, NamedTuple


class SwfFields(NamedTuple):
    """One line's values as text; empty where unknown."""

    job_number: str
    submit_time: str
    wait_time: str
    run_time: str
    allocated_processors: str
    average_cpu_time: str
    used_memory: str
    requested_processors: str
    requested_time: str
    requested_memory: str
    status: str
    user_id: str
    group_id: str
    executable_number: str
    queue_number: str
    partition_number: str
    preceding_job_number: str
    think_time: str


PARTS_OF_A_JOB: Final = ("2", "3", "4")
"""Status of a part of a job that was checkpointed and swapped out; line 1 of such a job sums its parts up."""


def fields_of(line: str) -> SwfFields:
    """The fields of a line that is no comment. Raises ValueError for a wrong number of them."""
    values = line.split()
    if len(values) != len(SwfFields._fields):
        raise ValueError(f"found {len(values)} fields, allowed: {len(SwfFields._fields)} (SWF 2.2)")
    return SwfFields(*("" if value == "-1" else value for value in values))


def start_time_s(comment: str) -> float | None:
    """What submit times are counted from, where this header line says it (UnixStartTime)."""
    key, _, value = comment.lstrip("; ").partition(":")
    return float(value) if key.strip() == "UnixStartTime" and value.strip().isdecimal() else None
