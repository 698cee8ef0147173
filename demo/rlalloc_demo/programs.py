"""rlalloc-agent and rlallocd as processes of their own, as systemd would run them on a real site."""

import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from rlalloc_demo.demo_errors import DemoError

END_TIMEOUT_S = 60.0


class Program:
    """One program of rlalloc with ``--config``, its output in a log file."""

    def __init__(self, name: str, config: Path, log: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self.log = log
        self._command = (str(Path(sys.executable).parent / name), "--config", str(config))
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Its process id; raises DemoError if it does not run."""
        self.require_running()
        if self._process is None:
            raise DemoError(f"{self.name} was never started")
        return self._process.pid

    def start(self) -> None:
        """Start it, in a session of its own: Ctrl-C at the terminal is the demo's, not its."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                cwd="/",
                start_new_session=True,
            )

    def require_running(self) -> None:
        """Raise DemoError, with the end of its log, if it has ended."""
        if self._process is not None and self._process.poll() is not None:
            tail = "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
            raise DemoError(
                f"{self.name} ended with status {self._process.returncode}; the end of {self.log}:\n{tail}"
            )

    def reload(self) -> None:
        """Let it read its configuration again."""
        self._signal(signal.SIGHUP)

    def kill(self) -> None:
        """Kill -9, and wait until it is gone."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait(END_TIMEOUT_S)
            self._process = None

    def _signal(self, number: signal.Signals) -> None:
        self.require_running()
        if self._process is not None:
            self._process.send_signal(number)
