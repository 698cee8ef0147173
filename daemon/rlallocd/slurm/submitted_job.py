"""One job as its user submitted it, whoever asks: from sacct, and its script from slurmctld or slurmdbd."""

import secrets
from typing import Final

import msgspec

from rlalloc.history.sacct_rows import state_of
from rlalloc.tres import gpus_of, parse_tres
from rlallocd.slurm.slurm_commands import Commands
from rlallocd.slurm.slurm_errors import UpdateRefused

_FIELDS: Final = "User,Account,Partition,State,Submit,Start,ReqTRES,AllocTRES,SubmitLine,AdminComment,Comment"
_INTERACTIVE: Final = ("srun", "salloc")


class SubmittedJob(msgspec.Struct, frozen=True):
    """A job of the queue or the past. Times in seconds since the epoch, 0 where there is none.

    ``is_complete`` False: slurmdbd has heard of the job, and not yet what it asks for. ``held`` are the nodes, CPUs,
    GPUs and MiB that it was given; it says nothing of a hold.
    """

    job_id: int
    user: str
    account: str
    partition: str
    state: str
    submitted_s: int
    started_s: int
    gpus: int
    is_interactive: bool
    admin_comment: str
    comment: str
    is_complete: bool = True
    held: tuple[int, int, int, float] = (0, 0, 0, 0.0)


def submitted_job(commands: Commands, job_id: int) -> SubmittedJob | None:
    """The latest job of this id; None if Slurm knows none, or does not show it to whoever asks. Raises SlurmError.

    An array has the fields of one of its tasks. slurmdbd learns of a job some seconds after its submission.
    """
    delimiter = "\x1f" + secrets.token_hex(8)
    text = commands.run(
        *("sacct", "--allocations", "--allusers", "--noheader", "--parsable2", "--noconvert"),
        *(f"--delimiter={delimiter}", f"--format={_FIELDS}", f"--jobs={job_id}"),
    )
    rows = [row for line in text.split("\n") if len(row := line.split(delimiter)) == len(_FIELDS.split(","))]
    if not rows:
        return None
    user, account, partition, state, submit, start, tres, allocated, line, admin_comment, comment = rows[-1]
    held = parse_tres(allocated)
    return SubmittedJob(
        job_id=job_id,
        user=user,
        account=account,
        partition=partition,
        state=state_of(state) or "UNKNOWN",
        submitted_s=_time(submit),
        started_s=_time(start) if allocated else 0,  # sacct shows a start of a job that was cancelled before
        gpus=gpus_of(parse_tres(tres)),
        is_interactive=line.split(" ", 1)[0].rpartition("/")[2] in _INTERACTIVE,
        admin_comment=admin_comment,
        comment=comment,
        is_complete=bool(tres),
        held=(int(held.get("node", 0)), int(held.get("cpu", 0)), gpus_of(held), held.get("mem", 0.0)),
    )


def queued_script(commands: Commands, job_id: int) -> bytes | None:
    """The script of a job that slurmctld knows; None where it gives none. Raises SlurmUnavailable."""
    try:
        return commands.run("scontrol", "write", "batch_script", str(job_id), "-").encode("utf-8", "replace")
    except UpdateRefused:
        return None


def batch_script(commands: Commands, job_id: int) -> bytes | None:
    """The job's script, as far as whoever asks may read it; None where Slurm has it no more. Raises SlurmUnavailable.

    slurmctld keeps it while it knows the job, slurmdbd with AccountingStoreFlags=job_script.
    """
    script = queued_script(commands, job_id)
    if script is not None:
        return script
    try:
        text = commands.run("sacct", "--batch-script", f"--jobs={job_id}")
    except UpdateRefused:
        return None
    _, mark, rest = text.partition("#!")
    return f"#!{rest}".encode("utf-8", "replace") if mark else None


def _time(text: str) -> int:
    return int(text) if text.isdigit() else 0
