"""Which implementation speaks to Slurm: chosen by slurmctld's version and named in the log."""

import importlib
import importlib.metadata
import logging
from collections.abc import Callable, Sequence, Set
from typing import Final, ParamSpec

from rlalloc.config import SlurmSection
from rlalloc.history import ReadTally
from rlallocd.slurm.accounting import accounting
from rlallocd.slurm.control import Control
from rlallocd.slurm.ended_jobs import MOST_BYTES, EndedJobs, ended_jobs
from rlallocd.slurm.generations import Capabilities, capabilities_of, generations, same_release
from rlallocd.slurm.json_reader import JsonReader
from rlallocd.slurm.limit_reader import Holder, LimitReader
from rlallocd.slurm.limit_records import SiteLimits
from rlallocd.slurm.pyslurm_reader import PyslurmReader
from rlallocd.slurm.slurm_commands import Commands
from rlallocd.slurm.slurm_errors import SlurmError
from rlallocd.slurm.slurm_records import (
    AccountingRecord,
    ControllerConfig,
    JobRecord,
    NodeRecord,
    PartitionRecord,
    Reader,
    UpdatePlan,
)
from rlallocd.slurm.squeue_reader import SqueueReader
from rlallocd.slurm.submitted_job import queued_script
from rlallocd.slurm.will_run import WillRun

_log = logging.getLogger(__name__)

_Words = ParamSpec("_Words")
_PATIENCE_S: Final = 120.0
"""Time limit of a command for which no cycle waits."""


class Slurm:
    """One Slurm cluster: read through a Reader, changed through scontrol, outcomes through sacct."""

    config: ControllerConfig
    capabilities: Capabilities

    def __init__(self, commands: Commands, backend: str, will_run: str = "off") -> None:
        """Ask slurmctld for its version and choose the reader. Raises SlurmError."""
        self._commands = commands
        self._backend = backend
        self._will_run = WillRun(commands, self._awaits_nodes) if will_run == "auto" else None
        self._control = Control(commands)
        self._limits = LimitReader(commands)
        self._reader: Reader = JsonReader(commands, generations()[0])
        self._take_up(self._control.config())
        self.calls = commands.calls
        self.errors = commands.errors
        self.update: Callable[[UpdatePlan], None] = self._control.update
        self.begin: Callable[[Sequence[int], float], None] = self._control.begin
        self.set_nice: Callable[[Sequence[int], int], None] = self._control.set_nice
        self.release: Callable[[str], None] = self._control.release
        self.together = self._control.together
        self.ping = self._control.ping
        self._before_batch: Callable[[], None] = lambda: None
        self.forget_limits = self._limits.forget
        self.forget_reservations = self._limits.forget_reservations

    def never_runs(self, jobs: Sequence[JobRecord]) -> dict[int, str]:
        """Those of some pending jobs that no nodes would ever hold, in slurmctld's words, as far as it was asked."""
        return self._will_run.never(jobs) if self._will_run is not None else {}

    def _awaits_nodes(self) -> bool:
        return any(node.awaited for node in self.nodes())

    def time_calls(self, took: Callable[[str, float], None]) -> None:
        """Have ``took`` called after each of Slurm's commands, with the command and its seconds."""
        self._commands.took = took

    def commands_apart(self) -> Commands:
        """Commands for another thread; they count with this one's."""
        return self._commands.apart()

    def only_while(self, may_change: Callable[[], None], may_begin_batch: Callable[[], None]) -> None:
        """Ask before jobs are changed: both raise where this program may not.

        ``may_change`` is called before each command that changes jobs, ``may_begin_batch`` before each read-back.
        """

        def checked(change: Callable[_Words, None]) -> Callable[_Words, None]:
            def change_if_it_may(*words: _Words.args, **named: _Words.kwargs) -> None:
                may_change()
                change(*words, **named)

            return change_if_it_may

        self.update = checked(self._control.update)
        self.begin = checked(self._control.begin)
        self.set_nice = checked(self._control.set_nice)
        self.release = checked(self._control.release)
        self._before_batch = may_begin_batch

    @property
    def command_timeout_s(self) -> float:
        """How long one of Slurm's commands may take."""
        return self._commands.timeout_s

    @property
    def most_jobs(self) -> int:
        """How many jobs to name in the next call of ``begin`` or ``set_nice``."""
        return self._control.most_jobs

    def set_command_timeout(self, timeout_s: float) -> None:
        """Give Slurm's commands another time limit from the next one on."""
        self._commands.timeout_s = timeout_s

    def jobs(self) -> tuple[JobRecord, ...]:
        """Every job that slurmctld knows."""
        return self._reader.jobs()

    def read_back(self, job_ids: Sequence[int]) -> dict[int, JobRecord]:
        """The jobs of these ids that slurmctld still knows, with every field of their requests."""
        self._before_batch()
        return self._reader.read_back(job_ids)

    def batch_script(self, job_id: int) -> bytes | None:
        """The script of a job that slurmctld knows; None where it gives none."""
        return queued_script(self._commands, job_id)

    def nodes(self) -> tuple[NodeRecord, ...]:
        """Every node."""
        return self._reader.nodes()

    def partitions(self) -> dict[str, PartitionRecord]:
        """All partitions by name. Reads ``config`` again, too: slurm.conf or slurmctld's version may have changed."""
        config = self._control.config()
        if config != self.config:
            self._take_up(config)
        return self._control.partitions()

    def limits(self, holders: Set[Holder], *, licenses: bool = False) -> SiteLimits:
        """The limits of the holders' associations, of all accounts and QOS, reservations and, if asked, licences."""
        by_qos = self.config.scheduling.preempts_by == "qos"
        enforced = self.config.limits_enforced
        return self._limits.read(holders, enforced=enforced, qos_preempt=by_qos, licenses=licenses)

    def accounting(self, job_ids: Sequence[int], since_s: float) -> tuple[AccountingRecord, ...]:
        """What slurmdbd knows of these jobs, submitted since ``since_s``; JOBS_PER_CALL of them at most."""
        return accounting(self._commands, job_ids, since_s)

    def ended_jobs(self, since_s: float, until_s: float) -> EndedJobs:
        """All jobs of the site that ended from ``since_s`` to ``until_s``, in one call."""
        return ended_jobs(self._commands, since_s, until_s, ReadTally())

    def earlier_ended_jobs(self, since_s: float, until_s: float) -> EndedJobs:
        """The same, for a thread that can wait. Raises AnswerTooLong rather than fill the memory."""
        patient = self._commands.within(max(_PATIENCE_S, self._commands.timeout_s))
        return ended_jobs(patient, since_s, until_s, ReadTally(), MOST_BYTES)

    def _take_up(self, config: ControllerConfig) -> None:
        self.capabilities = capabilities_of(config.slurm_version)
        if isinstance(self._reader, PyslurmReader):
            self._reader.close()
        self._reader, why = choose_reader(self._backend, self._commands, config.slurm_version, self.capabilities)
        self.config = config
        self._limits.forget()
        if config.has_slurmdbd and not config.gpus_accounted:
            _log.error("slurm.conf: AccountingStorageTRES lacks gres/gpu, so Slurm reports no GPU counts: add it")
        if self._will_run is not None and not self._will_run.is_there():
            self._will_run = None
            _log.info("slurmctld is not asked whether resized jobs could start: Slurm's Perl API is not installed")
        _log.info(
            "reading cluster %s (Slurm %s, generation %s) through %s: %s",
            *(config.cluster, config.slurm_version, self.capabilities.release, self._reader.name, why),
        )


def connect(section: SlurmSection) -> Slurm:
    """Reach slurmctld and choose the reader.

    Raises SlurmError if slurmctld does not answer, is too old, or pyslurm is required and does not fit.
    """
    return Slurm(Commands(section.command_timeout_s), section.backend, section.will_run)


def choose_reader(
    backend: str, commands: Commands, slurm_version: str, capabilities: Capabilities
) -> tuple[Reader, str]:
    """The reader for slurm.backend, and why it is this one: pyslurm only where it is asked for, since it is slower.

    Raises SlurmError if pyslurm is required and does not fit.
    """
    squeue_reader = SqueueReader(commands, JsonReader(commands, capabilities))
    if backend != "pyslurm":
        return squeue_reader, f"slurm.backend is {backend}"
    obstacle = _pyslurm_obstacle(slurm_version)
    if obstacle is not None:
        raise SlurmError(f"slurm.backend is pyslurm, but {obstacle}; set it to auto or cli")
    return PyslurmReader(commands, squeue_reader), "slurm.backend is pyslurm"


def _pyslurm_obstacle(slurm_version: str) -> str | None:
    """Why pyslurm cannot be used with this slurmctld, or None. pyslurm X.Y works with Slurm X.Y only."""
    try:
        version = importlib.metadata.version("pyslurm")
    except importlib.metadata.PackageNotFoundError:
        return "pyslurm is not installed"
    if not same_release(version, slurm_version):
        return f"pyslurm {version} does not match slurmctld {slurm_version}"
    try:
        importlib.import_module("pyslurm")
    except (ImportError, OSError) as err:
        return f"pyslurm cannot be imported ({err})"
    return None
