"""Ended jobs from a log in the Standard Workload Format.

The format has numbers instead of names: user 12 is ``u12``, group 3 the account ``g3``, queue 1 the partition ``q1``,
partition 2 the QOS ``p2``, and executable 17 the script ``e17``. It has processors, but neither nodes nor GPUs.
"""

from collections.abc import Iterator
from typing import Final

from rlalloc.history.log_lines import LogLines, ReadTally
from rlalloc.history.swf_lines import PARTS_OF_A_JOB, SwfFields, fields_of, start_time_s
from rlalloc.past_job import PastJob, checked

_STATES: Final = {"0": "FAILED", "1": "COMPLETED", "5": "CANCELLED", "": "UNKNOWN"}


def read_swf(lines: LogLines, tally: ReadTally, resume_at: int = 0) -> Iterator[PastJob]:
    """Read the jobs that have started and ended, in the order of the log; ``tally`` counts what is left out.

    While a job is handled, ``lines.start`` may be noted as ``resume_at`` for later on.
    """
    start_s, resumed = 0.0, False
    for line in lines:
        if line.startswith(";"):
            start_s = start_time_s(line) or start_s
            continue
        if resume_at and not resumed:
            resumed = True
            lines.skip_to(resume_at)
            continue
        if not line.strip():
            continue
        try:
            fields = fields_of(line)
            job = _job(fields, start_s)
        except (ValueError, OverflowError) as err:
            tally.fault(lines, str(err))
            continue
        if job is not None:
            yield job
        elif fields.status not in PARTS_OF_A_JOB:
            tally.never_started += 1


def _job(fields: SwfFields, start_s: float) -> PastJob | None:
    """The job, or None for a part of one and for one that never ran. Raises ValueError, OverflowError."""
    if fields.status in PARTS_OF_A_JOB:
        return None
    if fields.status not in _STATES:
        raise ValueError(f"found status {fields.status[:32]!r}, allowed: -1 to 5")
    run_s = _number(fields.run_time)
    allocated, requested = _number(fields.allocated_processors), _number(fields.requested_processors)
    processors = requested or allocated
    never_started = not run_s and not allocated and fields.status == "5"
    if run_s is None or not processors or never_started:
        return None
    submitted_s = start_s + (_number(fields.submit_time) or 0.0)
    started_s = submitted_s + (_number(fields.wait_time) or 0.0)
    memory_kib, used_kib = _number(fields.requested_memory), _number(fields.used_memory)
    cpu_s = _number(fields.average_cpu_time)
    return checked(
        PastJob(
            job_id=fields.job_number,
            user=_named("u", fields.user_id),
            submitted_s=submitted_s,
            started_s=started_s,
            ended_s=started_s + run_s,
            state=_STATES[fields.status],
            nodes=1,
            cpus=int(processors),
            mem_mib=memory_kib * processors / 1024 if memory_kib else 0.0,
            limit_s=_number(fields.requested_time),
            account=_named("g", fields.group_id),
            partition=_named("q", fields.queue_number),
            qos=_named("p", fields.partition_number),
            script=_named("e", fields.executable_number),
            max_rss_mib=used_kib / 1024 if used_kib else None,
            cpu_s_used=cpu_s * (allocated or processors) if cpu_s else None,
        )
    )


def _number(text: str) -> float | None:
    """A number of at least 0, or None for an unknown one. Raises ValueError."""
    if not text:
        return None
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError(f"found {text[:32]!r}, allowed: a number of at least 0, or -1")
    return value


def _named(kind: str, number: str) -> str:
    return f"{kind}{number}" if number else ""
