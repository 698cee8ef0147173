"""Outcomes from sacct.

Text with a delimiter, instead of JSON: it is the same in all versions. A comment is its user's and may hold any
bytes, so each call has a delimiter that nobody can know, and a line without it continues a comment. Peak memory and
use are on the steps, so each job's rows are read together.
"""

import re
import secrets
import time
from collections.abc import Sequence
from typing import Final

from rlalloc.history.sacct_rows import clock_s, state_of, whole_number, with_steps
from rlalloc.tres import gpus_of, memory_mib, parse_tres
from rlallocd.slurm.sacct_windows import moment
from rlallocd.slurm.slurm_commands import Commands
from rlallocd.slurm.slurm_records import AccountingRecord

_DELIMITER = "\x1f"
_FIELDS = "JobID,State,ExitCode,Submit,Eligible,Start,End,AllocTRES,MaxRSS,ConsumedEnergyRaw,TRESUsageInTot,Comment"
_COLUMNS = len(_FIELDS.split(","))
JOBS_PER_CALL: Final = 500
_JOB = re.compile(r"[0-9]{1,10}([_+][^.]*)?(\..+)?")  # 7, 7_1, 7_[2-9%4], 7+0, and their steps: 7_1.batch


def accounting(commands: Commands, job_ids: Sequence[int], since_s: float) -> tuple[AccountingRecord, ...]:
    """What slurmdbd knows of these jobs, submitted since ``since_s``, in one call. Raises SlurmError.

    Sacct refuses a time in the future, as that of a job is which was submitted before a clock was set back.
    """
    wanted = ",".join(str(job_id) for job_id in job_ids)
    delimiter = _DELIMITER + secrets.token_hex(8)
    text = commands.run(
        "sacct",
        *("--allusers", "--duplicates", "--noheader", "--parsable2", "--noconvert"),
        *(f"--delimiter={delimiter}", f"--format={_FIELDS}"),
        *(f"--jobs={wanted}", f"--starttime={moment(min(since_s, time.time()))}"),
    )
    return read_accounting(text, delimiter)


def read_accounting(text: str, delimiter: str = _DELIMITER) -> tuple[AccountingRecord, ...]:
    """Read sacct's rows: a job's own, then its steps'."""
    rows = (_row(line, delimiter) for line in text.split("\n") if delimiter in line)
    return tuple(
        _record(row, steps)
        for row, steps in with_steps((row for row in rows if _JOB.fullmatch(row[0])), lambda row: row[0])
    )


def _row(line: str, delimiter: str) -> list[str]:
    row = line.split(delimiter, _COLUMNS - 1)
    return row + [""] * (_COLUMNS - len(row))  # recorded when fewer were asked for


def _record(row: Sequence[str], steps: Sequence[Sequence[str]]) -> AccountingRecord:
    name, state, exit_code, submit, eligible, start, end, alloc, _, energy, _, comment = row
    tres = parse_tres(alloc)
    uses = [dict(part.split("=", 1) for part in step[10].split(",") if "=" in part) for step in steps]
    cpu_times_s = [used_s for use in uses if (used_s := clock_s(use.get("cpu", ""))) is not None]
    memory = [used_mib for use in uses if (used_mib := memory_mib(use.get("mem", ""))) is not None]
    peaks = [peak for step in steps if (peak := memory_mib(step[8])) is not None]
    energies = [used_j for step in (row, *steps) if (used_j := whole_number(step[9]))]
    base, mark, part = re.split(r"([_+]|$)", name, maxsplit=1)
    return AccountingRecord(
        job_id=int(base),
        part=mark + part,
        state=state_of(state) or "UNKNOWN",
        exit_code=exit_code,
        submitted_s=whole_number(submit) or 0,
        eligible_s=whole_number(eligible),
        started_s=whole_number(start),
        ended_s=whole_number(end),
        nodes=int(tres.get("node", 0)),
        cpus=int(tres.get("cpu", 0)),
        gpus=gpus_of(tres),
        mem_mib=tres.get("mem", 0.0),
        max_rss_mib=max(peaks, default=None),
        cpu_s_used=sum(cpu_times_s) if cpu_times_s else None,
        mem_mib_used=max(memory, default=None),
        consumed_energy_j=float(max(energies)) if energies and whole_number(energy) is not None else None,
        comment=comment,
    )
