"""The checks of ``rlalloc doctor``, done by rlallocd itself now and then, for its metrics.

They take some calls of Slurm's commands, so they run rarely, and in a thread of their own: no job waits for them.
What rlallocd has metrics of its own for (loop, intercept file, agent) is not among them.
"""

import logging
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from rlalloc.config import Config
from rlalloc.system.run_as_owner import name_of
from rlallocd.checks.finding import LEVELS, Finding
from rlallocd.checks.machine_checks import policy_findings, training_findings
from rlallocd.checks.site_checks import installation_findings
from rlallocd.checks.switch_check import switch_findings
from rlallocd.checks.units import unit_state
from rlallocd.process.daemon_state import read_daemon_state
from rlallocd.slurm import Commands

_log = logging.getLogger(__name__)


class RegularChecks:
    """What the latest checks found, in ``levels``: 0 for OK, 1 for WARN, 2 for FAIL, by what was checked.

    ``done_s`` is when they were done; 0 before the first time. Close it, or its thread goes on.
    """

    def __init__(self, path: Path, config: Config, commands: Commands) -> None:
        """``path`` is the configuration's file; nobody else changes these ``commands``."""
        self._path = path
        self._config = config
        self._commands = commands
        self._due = threading.Event()
        self._closed = False
        self.levels: Mapping[str, int] = MappingProxyType({})
        self.done_s = 0.0
        self._thread = threading.Thread(target=self._run, name="checks", daemon=True)
        self._thread.start()

    def reconfigure(self, config: Config) -> None:
        """Check by another configuration, at once."""
        self._config = config
        self._due.set()

    def close(self) -> None:
        """Check no more; a command of Slurm's that runs is not waited for."""
        self._closed = True
        self._due.set()

    def _run(self) -> None:
        while not self._closed:
            try:
                if self._config.metrics.listen:
                    self._check()
            except Exception:  # noqa: BLE001 (a fault of ours must not end the checks)
                _log.exception("the checks failed because of an error in rlalloc; run rlalloc doctor")
            self._due.wait(self._config.metrics.checks_every_s)
            self._due.clear()

    def _check(self) -> None:
        config = self._config
        self._commands.timeout_s = config.slurm.command_timeout_s
        found: dict[str, int] = {}
        for finding in _findings(self._path, config, self._commands):
            if finding.checked:
                found[finding.what] = max(found.get(finding.what, 0), LEVELS.index(finding.level))
        self.levels, self.done_s = MappingProxyType(found), time.time()


def _findings(path: Path, config: Config, commands: Commands) -> list[Finding]:
    return [
        *installation_findings(path, config, commands, name_of(os.geteuid())),
        *switch_findings(config, read_daemon_state(config.runtime_directory)),
        *policy_findings(config),
        *training_findings(config, unit_state("rlalloc-train.timer"), unit_state("rlalloc-train.service")),
    ]
