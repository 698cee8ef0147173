"""Errors at the Slurm boundary.

SlurmError
├── SlurmUnavailable   slurmctld or slurmdbd did not answer in time: try again later
│   └── CommandDied    scontrol ended in the middle of an update, which may have been carried out
├── AnswerTooLong      a command was ended because it printed more than was wanted: ask for less; no fault
├── UpdateRefused      slurmctld said no to an update; parts of it may have been applied all the same
│   ├── UnknownJob     slurmctld no longer knows the job, or any of the jobs
│   └── JobChanged     the job may have changed since it was read: rlalloc.lua refused the update
└── UnexpectedAnswer   Slurm printed what this version of rlalloc cannot read
"""

from rlalloc.errors import RlallocError


class SlurmError(RlallocError):
    """Base of all errors at the Slurm boundary."""


class SlurmUnavailable(SlurmError):
    """Slurm did not answer within the time limit, or cannot be reached."""


class AnswerTooLong(SlurmError):
    """A command printed more than its caller wanted, and was ended."""


class CommandDied(SlurmUnavailable):
    """The scontrol of an update crashed or was killed. slurmctld may carry the update out, even later."""


class UpdateRefused(SlurmError):
    """slurmctld refused an update. Updates are not atomic: read the job back.

    ``said`` is Slurm's own text, without the command that it was about.
    """

    def __init__(self, text: str, said: str = "") -> None:
        super().__init__(text)
        self.said = said or text


class UnknownJob(UpdateRefused):
    """slurmctld knows none of the jobs that the command names: they ended more than MinJobAge seconds ago."""


class JobChanged(UpdateRefused):
    """rlalloc.lua refused the update: nothing of it was carried out (for a split array: for one of its tasks)."""


class UnexpectedAnswer(SlurmError):
    """Slurm's answer cannot be read; report it with the version of Slurm."""
