"""Batch jobs of our own: submitted, followed and cancelled by Slurm's commands (``rlalloc profile run --slurm``)."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from rlallocd.slurm.slurm_commands import Commands
from rlallocd.slurm.slurm_errors import UnexpectedAnswer, UnknownJob

ENDED: Final = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "TIMEOUT",
    }
)
"""States in which a job stays."""


class BatchState(NamedTuple):
    """State of a job and, while it waits, Slurm's reason."""

    state: str
    reason: str


class BatchJobs:
    """Submits scripts and follows their jobs."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    def submit(self, script: Path, options: Sequence[str]) -> int:
        """Return the job id. Raises SlurmUnavailable, or UpdateRefused with sbatch's words."""
        printed = self._commands.run("sbatch", "--parsable", *options, str(script))
        text = printed.strip().splitlines()[-1].partition(";")[0] if printed.strip() else ""
        if not text.isdecimal():
            raise UnexpectedAnswer(f"sbatch printed no job id: {printed!r}")
        return int(text)

    def states(self, job_ids: Collection[int]) -> dict[int, BatchState]:
        """State of each job that slurmctld still knows. Raises SlurmUnavailable, UpdateRefused."""
        if not job_ids:
            return {}
        listed = ",".join(map(str, sorted(job_ids)))
        try:
            printed = self._commands.run(
                "squeue", "--noheader", "--states=all", "--format=%i|%T|%r", f"--jobs={listed}"
            )
        except UnknownJob:
            return {}
        rows = (line.strip().split("|", 2) for line in printed.splitlines() if line.count("|") >= 2)
        return {int(name): BatchState(state, reason) for name, state, reason in rows if name.isdecimal()}

    def cancel(self, job_ids: Collection[int]) -> None:
        """Cancel jobs; those that have ended are no error. Raises SlurmUnavailable, UpdateRefused."""
        if job_ids:
            self._commands.run("scancel", "--quiet", *map(str, sorted(job_ids)))
