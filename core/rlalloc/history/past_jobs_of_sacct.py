"""Ended jobs from sacct's text, of a call or of a file that an administrator made.

The text begins with its header line; columns are found by their names, in any order::

    SLURM_TIME_FORMAT=%s sacct --allusers --duplicates --parsable2 --starttime=2026-01-01 --format=JobID,User,\
Account,Partition,QOS,JobName,State,Submit,Eligible,Start,End,TimelimitRaw,AllocTRES,TotalCPU,MaxRSS,TRESUsageInTot,\
NTasks,NNodes,AdminComment

Times may also be local (2026-01-31T12:00:00). Steps follow their job: memory, tasks and nodes are theirs.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from rlalloc.errors import HistoryError
from rlalloc.history.log_lines import LogLines, ReadTally
from rlalloc.history.node_peaks import StepPeak, node_peak_mib
from rlalloc.history.sacct_rows import SacctColumns, clock_s, state_of, time_s, with_steps
from rlalloc.job import JOB_CLASSES
from rlalloc.past_job import ENDED_STATES, NOT_ENDED_STATES, PastJob, checked
from rlalloc.tres import gpus_of, memory_mib, parse_tres, tres_value

COLUMNS: Final = (
    "JobID", "User", "Account", "Partition", "QOS", "JobName", "State", "Submit", "Eligible", "Start", "End",
    "TimelimitRaw", "AllocTRES", "TotalCPU", "MaxRSS", "TRESUsageInTot", "NTasks", "NNodes", "AdminComment",
)  # fmt: skip
"""What a call asks for."""
_NEEDED: Final = (("JobID", "JobIDRaw"), ("User",), ("State",), ("Submit",), ("Start",), ("End",))
_TAG: Final = re.compile(r"(?:^|\s)rlalloc:v=1;(\S*)")
"""What rlalloc.lua leaves in an AdminComment: the job's class and the script's fingerprint are in it."""
_FINGERPRINT: Final = re.compile(r"[\w-]{1,64}", re.ASCII)


def read_sacct(lines: LogLines, tally: ReadTally, resume_at: int = 0) -> Iterator[PastJob]:
    """Read the jobs that have started and ended, in the order of the text; ``tally`` counts what is left out.

    While a job is handled, ``lines.start`` is where the next one begins: that may be ``resume_at`` later on.
    Raises HistoryError if the first line does not name the columns that are needed.
    """
    columns = SacctColumns(next(lines, ""))
    for names in _NEEDED:
        if not any(name in columns for name in names):
            raise HistoryError(
                f"column {names[0]} is missing from the first line; make the file with: sacct --allusers "
                f"--duplicates --parsable2 --starttime=YYYY-MM-DD --format={','.join(COLUMNS)}"
            )
    lines.skip_to(resume_at)
    job_of = _JobOf(columns)
    for row, steps in with_steps(_rows(lines, columns, tally), job_of.job_id):
        state = state_of(job_of.state(row))
        if state in NOT_ENDED_STATES:
            tally.not_ended += 1
            continue
        try:
            job = job_of(row, state, steps)
        except (ValueError, OverflowError, OSError) as err:
            tally.fault(lines, f"job {job_of.job_id(row)[:32]!r} before it: {err}")
            continue
        if job is None:
            tally.never_started += 1
        else:
            yield job


def _rows(lines: LogLines, columns: SacctColumns, tally: ReadTally) -> Iterator[list[str]]:
    for line in lines:
        if not line.strip():
            continue
        row = columns.split(line)
        if row is None:
            found = line.count(columns.delimiter) + 1
            tally.fault(lines, f"found {found} fields, the first line names {len(columns.names)}")
        else:
            yield row


class _Size(NamedTuple):
    """What a TRES string says of a job's size."""

    nodes: int
    cpus: int
    gpus: int
    mem_mib: float


@lru_cache(maxsize=4096)
def _size(tres: str) -> _Size:
    counts = parse_tres(tres)
    for name, _, value in (part.partition("=") for part in tres.split(",")):
        if value[:1].isdigit() and name not in counts:
            raise ValueError(f"{name}={value[:40]} is no number")
    return _Size(
        nodes=int(counts.get("node", 0)),
        cpus=int(counts.get("cpu", 0)),
        gpus=gpus_of(counts),
        mem_mib=counts.get("mem", 0.0),
    )


def _of_tag(comment: str) -> tuple[str, str]:
    """The script's fingerprint and the job's class; empty where they are not known."""
    if (tag := _TAG.search(comment)) is None:
        return "", ""
    said = dict(part.partition("=")[::2] for part in tag[1].split(";"))
    script, job_class = said.get("script", ""), said.get("class", "")
    return script if _FINGERPRINT.fullmatch(script) else "", job_class if job_class in JOB_CLASSES else ""


class _JobOf:
    """Makes a PastJob of a job's row and its steps' rows."""

    def __init__(self, columns: SacctColumns) -> None:
        self.job_id = columns.reader("JobID", "JobIDRaw")
        self.state = columns.reader("State")
        self._user = columns.reader("User")
        self._account = columns.reader("Account")
        self._partition = columns.reader("Partition")
        self._qos = columns.reader("QOS")
        self._name = columns.reader("JobName")
        self._times = tuple(columns.reader(name) for name in ("Submit", "Eligible", "Start", "End"))
        self._limit_min = columns.reader("TimelimitRaw")
        self._limit = columns.reader("Timelimit")
        self._tres = columns.reader("AllocTRES", "ReqTRES")
        self._allocated = columns.reader("AllocTRES")
        self._nodes = columns.reader("AllocNodes", "NNodes")
        self._cpus = columns.reader("AllocCPUS", "NCPUS", "ReqCPUS")
        self._cpu_time = columns.reader("TotalCPU")
        self._peak = columns.reader("MaxRSS")
        self._all_peaks = columns.reader("TRESUsageInTot")
        self._tasks = columns.reader("NTasks")
        self._step_nodes = columns.reader("NNodes", "AllocNodes")
        self._comment = columns.reader("AdminComment")

    def __call__(self, row: Sequence[str], state: str, steps: Sequence[Sequence[str]]) -> PastJob | None:
        """The job, or None if it never started. Raises ValueError, OverflowError, OSError."""
        if state not in ENDED_STATES:
            raise ValueError(
                f"found State {state[:32]!r}, known: {', '.join(sorted(ENDED_STATES | NOT_ENDED_STATES))}"
            )
        submitted_s, eligible_s, started_s, ended_s = (time_s(read(row)) for read in self._times)
        if submitted_s is None or ended_s is None:
            raise ValueError("Submit or End is missing")
        if started_s is None or (started_s >= ended_s and state == "CANCELLED" and not self._allocated(row)):
            return None  # cancelled while it waited: some releases give such a job a start, too
        size = _size(self._tres(row))
        script, job_class = _of_tag(self._comment(row))
        peaks = [peak for each in (row, *steps) if (peak := memory_mib(self._peak(each))) is not None]
        return checked(
            PastJob(
                job_id=self.job_id(row),
                user=self._user(row),
                submitted_s=submitted_s,
                started_s=started_s,
                ended_s=ended_s,
                state=state,
                nodes=size.nodes or int(self._nodes(row) or 1),
                cpus=size.cpus or int(self._cpus(row) or 1),
                gpus=size.gpus,
                mem_mib=size.mem_mib,
                limit_s=self._limit_s(row),
                eligible_s=eligible_s,
                account=self._account(row),
                partition=self._partition(row).partition(",")[0],
                qos=self._qos(row),
                name=self._name(row),
                script=script,
                job_class=job_class,
                max_rss_mib=max(peaks, default=None),
                cpu_s_used=self._cpu_s(row, steps),
                node_rss_mib=node_peak_mib(self._step_peak(step, started_s, ended_s) for step in steps),
            )
        )

    def _step_peak(self, step: Sequence[str], started_s: float, ended_s: float) -> StepPeak:
        """One step's memory; times that are missing are its job's."""
        begin_s, end_s = self._times[2](step), self._times[3](step)
        tasks, nodes = self._tasks(step), self._step_nodes(step)
        return StepPeak(
            started_s=time_s(begin_s) or started_s,
            ended_s=time_s(end_s) or ended_s,
            max_rss_mib=memory_mib(self._peak(step)),
            all_tasks_mib=memory_mib(tres_value(self._all_peaks(step), "mem")),
            tasks=int(tasks) if tasks.isdecimal() and int(tasks) > 0 else None,
            nodes=int(nodes) if nodes.isdecimal() and int(nodes) > 0 else None,
        )

    def _limit_s(self, row: Sequence[str]) -> float | None:
        minutes = self._limit_min(row)
        return float(minutes) * 60 if minutes.isdecimal() else clock_s(self._limit(row))

    def _cpu_s(self, row: Sequence[str], steps: Sequence[Sequence[str]]) -> float | None:
        """The job's own total, or its steps' where it has none; None where nothing was gathered."""
        own_s = clock_s(self._cpu_time(row))
        return own_s or sum(clock_s(self._cpu_time(step)) or 0.0 for step in steps) or None
