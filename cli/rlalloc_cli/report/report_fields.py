"""The fields of ``rlalloc report --format``: sacct's by sacct's names, and ours in the same style."""

import os
import re
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from rlalloc.errors import RlallocError
from rlalloc_cli.report.reported_runs import Amounts, ReportedRun, Size

DEFAULT_FORMAT: Final = "JobID%-9,User%9,State%10,Wait%10,Elapsed%10,AskedGPUS,AllocGPUS,Result%7"
_HOUR_S: Final = 3600.0


class FieldError(RlallocError):
    """``--format`` names no field of ours; the text lists them."""


class Field(NamedTuple):
    """A column: its name, its usual width (below 0: left-aligned, as in sacct), what it shows, and its meaning."""

    name: str
    width: int
    show: Callable[[ReportedRun], str]
    meaning: str


def clock(seconds: float | None) -> str:
    """A duration as sacct prints Elapsed: ``[DD-]HH:MM:SS``; nothing for none."""
    if seconds is None:
        return ""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"{f'{days}-' if days else ''}{hour:02}:{minute:02}:{second:02}"


def moment(epoch_s: int | None) -> str:
    """A time as sacct prints it: local, in the format of SLURM_TIME_FORMAT where that is one of strftime's."""
    if epoch_s is None:
        return "Unknown"
    style = os.environ.get("SLURM_TIME_FORMAT", "")
    return time.strftime(style if "%" in style else "%Y-%m-%dT%H:%M:%S", time.localtime(epoch_s))


def _size(size: Size | None) -> str:
    if size is None:
        return ""
    gpus = f",gres/gpu={size.gpus}" if size.gpus else ""
    return f"cpu={size.cpus}{gpus},mem={size.mem_mib}M,node={size.nodes}"


def _count(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _gpus(size: Size | None) -> str:
    return "" if size is None else str(size.gpus)


def _cpus(size: Size | None) -> str:
    return "" if size is None else str(size.cpus)


def _limit(size: Size | None) -> str:
    return clock(size.limit_s) if size is not None else ""


def _cpu_s(run: ReportedRun) -> int:
    return run.elapsed_s * (run.held.cpus if run.held else 0)


def _peak(run: ReportedRun) -> str:
    return f"{run.max_rss_mib:.0f}M" if run.max_rss_mib is not None else ""


def hours(given: Amounts | None, resource: str) -> str:
    """Hours of ``gpu``, ``cpu`` or ``mem`` (GiB-hours), to two places; nothing for none."""
    if given is None:
        return ""
    seconds = {"gpu": given.gpu_s, "cpu": given.cpu_s, "mem": given.mem_mib_s / 1024}[resource]
    return f"{seconds / _HOUR_S + 0.0:.2f}"


FIELDS: Final = (
    Field("JobID", -12, lambda run: run.job_id, "as squeue prints it; one line per run, as `sacct --duplicates`"),
    Field("JobIDRaw", -12, lambda run: str(run.job_id_raw), "as in sacct"),
    Field("JobName", 10, lambda run: run.job_name, "as in sacct"),
    Field("User", 9, lambda run: run.user, "as in sacct"),
    Field("Account", 10, lambda run: run.account, "as in sacct"),
    Field("Partition", 10, lambda run: run.partition, "as in sacct"),
    Field("QOS", 10, lambda run: run.qos, "as in sacct"),
    Field("State", 10, lambda run: run.state, "as in sacct, without who cancelled a job"),
    Field("ExitCode", 8, lambda run: run.exit_code, "as in sacct"),
    Field("Submit", 19, lambda run: moment(run.submit_s), "as in sacct; that of the requeue for a requeued run"),
    Field("Eligible", 19, lambda run: moment(run.eligible_s), "as in sacct"),
    Field("Start", 19, lambda run: moment(run.start_s), "as in sacct without `--truncate`"),
    Field("End", 19, lambda run: moment(run.end_s), "as in sacct without `--truncate`"),
    Field("Elapsed", 10, lambda run: clock(run.elapsed_s), "as in `sacct --truncate`: the time inside the span"),
    Field("ElapsedRaw", 10, lambda run: str(run.elapsed_s), "the same in seconds"),
    Field("NNodes", 8, lambda run: str(run.held.nodes if run.held else run.asked.nodes), "as in sacct"),
    Field("AllocTRES", 40, lambda run: run.tres, "as in `sacct --noconvert`"),
    Field("ReqTRES", 40, lambda run: run.requested_tres, "as in `sacct --noconvert`: after a change, the new size"),
    Field("AllocCPUS", 9, lambda run: _cpus(run.held) or "0", "CPUs held"),
    Field("AllocGPUS", 9, lambda run: _gpus(run.held), "GPUs held, of any type"),
    Field("CPUTimeRAW", 10, lambda run: str(_cpu_s(run)), "AllocCPUS times ElapsedRaw"),
    Field("TotalCPU", 10, lambda run: clock(run.cpu_s_used), "CPU time used by the whole run"),
    Field("MaxRSS", 10, _peak, "the largest of its steps"),
    Field("Timelimit", 10, lambda run: _limit(run.held), "as in sacct, once the job has run"),
    Field("Asked", 40, lambda run: _size(run.asked), "the size that the user submitted"),
    Field("AskedGPUS", 9, lambda run: _gpus(run.asked), "GPUs asked for"),
    Field("AskedCPUS", 9, lambda run: _cpus(run.asked), "CPUs asked for"),
    Field("AskedLimit", 10, lambda run: _limit(run.asked), "the time limit asked for"),
    Field("Decided", 40, lambda run: _size(run.decided), "the size that rlalloc decided, also in shadow mode"),
    Field("DecidedGPUS", 11, lambda run: _gpus(run.decided), "GPUs decided"),
    Field("Applied", 40, lambda run: _size(run.applied), "the size that rlalloc gave the job"),
    Field("Wait", 10, lambda run: clock(run.wait_s), "from Submit to Start"),
    Field("WaitRaw", 10, lambda run: _count(run.wait_s), "the same in seconds"),
    Field("JCT", 11, lambda run: clock(run.jct_s), "from the first submission to the end of the job"),
    Field("JCTRaw", 11, lambda run: _count(run.jct_s), "the same in seconds"),
    Field("Result", 8, lambda run: "-" if run.result == "none" else run.result, "what rlalloc did, see below"),
    Field("Why", -30, lambda run: run.why, "why a job was skipped, or its change undone"),
    Field("Mode", 8, lambda run: run.mode or "", "shadow or enforce"),
    Field("Rule", 10, lambda run: run.rule or "", "the rule that covers the job"),
    Field("Policy", 12, lambda run: run.policy or "", "the policy version that decided"),
    Field("KilledBy", 17, lambda run: run.killed_by or "", "timeout, out-of-memory or gpu-out-of-memory"),
    Field("OurDoing", 17, lambda run: run.our_doing or "", "what ended a job in a size that rlalloc made smaller"),
    Field("GivenGPUHours", 13, lambda run: hours(run.given, "gpu"), "GPU-hours asked for and not held while it ran"),
    Field("GivenCPUHours", 13, lambda run: hours(run.given, "cpu"), "CPU-hours, likewise"),
    Field("GivenMemHours", 13, lambda run: hours(run.given, "mem"), "GiB-hours, likewise"),
    Field("NetGPUHours", 11, lambda run: hours(run.net, "gpu"), "the same, less what a longer run holds (estimate)"),
)  # fmt: skip
_BY_NAME: Final = {field.name.lower(): field for field in FIELDS}


def fields_of(text: str) -> tuple[Field, ...]:
    """The fields of a list such as ``JobID,State%20,Elapsed%-12``. Raises FieldError."""
    found = []
    for word in text.split(","):
        match = re.fullmatch(r"\s*(\w+)(?:%(-?\d{1,4}))?\s*", word)
        field = _BY_NAME.get(match[1].lower()) if match is not None else None
        if match is None or field is None:
            names = ", ".join(field.name for field in FIELDS)
            raise FieldError(f"--format: {word!r} is not a field; write NAME or NAME%WIDTH with one of: {names}")
        found.append(field._replace(width=int(match[2])) if match[2] and int(match[2]) else field)
    return tuple(found)


def row_of(run: ReportedRun, fields: Sequence[Field]) -> list[str]:
    """What a run's line shows, printable: a user's name for a job could rewrite the terminal, or break the row."""
    return [printable(field.show(run)) for field in fields]


def printable(text: str) -> str:
    """A text with ``_`` for control characters, and for others that no one sees but that change what is read."""
    return "".join(each if each.isprintable() else "_" for each in text)


def cell(text: str, width: int) -> str:
    """A text as wide as a column; where it is too long, its last character is a ``+``, as in sacct."""
    most = abs(width)
    if len(text) > most:
        text = f"{text[: most - 1]}+"
    return text.ljust(most) if width < 0 else text.rjust(most)
