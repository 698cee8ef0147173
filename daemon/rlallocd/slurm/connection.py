"""Which implementation speaks to Slurm: chosen once, at start, and said in the log."""

import importlib
import importlib.metadata
import logging
from collections.abc import Sequence

from rlalloc.config import SlurmSection
from rlallocd.slurm.accounting import accounting
from rlallocd.slurm.control import Control
from rlallocd.slurm.json_reader import JsonReader
from rlallocd.slurm.limit_reader import LimitReader
from rlallocd.slurm.limit_records import SiteLimits
from rlallocd.slurm.slurm_commands import Commands
from rlallocd.slurm.slurm_errors import SlurmError
from rlallocd.slurm.slurm_records import (
    AccountingRecord,
    ControllerConfig,
    JobRecord,
    NodeRecord,
    PartitionRecord,
    Reader,
)
from rlallocd.slurm.squeue_reader import SqueueReader

_log = logging.getLogger(__name__)


class Slurm:
    """One Slurm cluster: read through a Reader, changed through scontrol, outcomes through sacct."""

    def __init__(self, commands: Commands, reader: Reader, config: ControllerConfig) -> None:
        self._commands = commands
        self._reader = reader
        self._control = Control(commands)
        self._limits = LimitReader(commands)
        self.config = config
        self.calls = commands.calls
        self.errors = commands.errors
        self.update = self._control.update
        self.begin = self._control.begin
        self.set_nice = self._control.set_nice
        self.forget_limits = self._limits.forget

    def jobs(self) -> tuple[JobRecord, ...]:
        """Every job that slurmctld knows."""
        return self._reader.jobs()

    def read_back(self, job_ids: Sequence[int]) -> dict[int, JobRecord]:
        """Those of these jobs that slurmctld still knows, with every field of their requests."""
        return self._reader.read_back(job_ids)

    def nodes(self) -> tuple[NodeRecord, ...]:
        """Every node."""
        return self._reader.nodes()

    def partitions(self) -> dict[str, PartitionRecord]:
        """All partitions by name."""
        return self._control.partitions()

    def limits(self, users: Sequence[str]) -> SiteLimits:
        """The limits of these users' associations, of all accounts and QOS, and all reservations."""
        return self._limits.read(users, enforced=self.config.limits_enforced)

    def accounting(self, job_ids: Sequence[int], since_s: float) -> tuple[AccountingRecord, ...]:
        """What slurmdbd knows of these jobs, submitted since ``since_s``."""
        return accounting(self._commands, job_ids, since_s)


def connect(section: SlurmSection) -> Slurm:
    """Reach slurmctld and choose the reader. Raises SlurmError if it does not answer, or pyslurm does not fit."""
    commands = Commands(section.command_timeout_s)
    config = Control(commands).config()
    reader, why = _choose(section.backend, commands, config)
    if not config.gpus_accounted:
        _log.error("slurm.conf: AccountingStorageTRES lacks gres/gpu, so Slurm tells no job's GPUs: add it")
    _log.info("reading cluster %s (Slurm %s) through %s: %s", config.cluster, config.version, reader.name, why)
    return Slurm(commands, reader, config)


def _choose(backend: str, commands: Commands, config: ControllerConfig) -> tuple[Reader, str]:
    json_reader = JsonReader(commands, config.version)
    if backend == "cli":
        return SqueueReader(commands, json_reader), "slurm.backend is cli"
    obstacle = _pyslurm_obstacle(config.version)
    if obstacle is None:
        from rlallocd.slurm.pyslurm_reader import PyslurmReader

        return PyslurmReader(json_reader), "it matches slurmctld"
    if backend == "pyslurm":
        raise SlurmError(f"slurm.backend is pyslurm, but {obstacle}; set it to auto or cli")
    return SqueueReader(commands, json_reader), obstacle


def _pyslurm_obstacle(slurm_version: str) -> str | None:
    """Why pyslurm cannot be used with this slurmctld, or None. pyslurm X.Y works with Slurm X.Y only."""
    try:
        version = importlib.metadata.version("pyslurm")
    except importlib.metadata.PackageNotFoundError:
        return "pyslurm is not installed"
    if version.split(".")[:2] != [part.lstrip("0") or "0" for part in slurm_version.split(".")[:2]]:
        return f"pyslurm {version} does not match slurmctld {slurm_version}"
    try:
        importlib.import_module("pyslurm")
    except (ImportError, OSError) as err:
        return f"pyslurm cannot be imported ({err})"
    return None
