"""Running Slurm's commands: argument lists, never a shell; each with a time limit."""

import os
import subprocess
from collections import Counter
from collections.abc import Sequence

from rlallocd.slurm.errors import SlurmUnavailable, UpdateRefused

_UNREACHABLE = (
    "Unable to contact slurm controller",
    "Connection refused",
    "Socket timed out",
    "Unable to contact slurm",
    "Zero Bytes were transmitted",
    "Problem talking to the database",
    "connect failure",
)


class Commands:
    """Runs Slurm's commands with one time limit and counts them, calls and failures, by command."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._environment = os.environ | {"LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"}
        self.calls: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()

    def run(self, *words: str) -> str:
        """Return what the command printed. Raises SlurmUnavailable, or UpdateRefused with Slurm's own words."""
        command = _name(words)
        self.calls[command] += 1
        try:
            return self._answer(words)
        except (SlurmUnavailable, UpdateRefused):
            self.errors[command] += 1
            raise

    def _answer(self, words: Sequence[str]) -> str:
        done = self._run(words)
        if done.returncode == 0:
            return done.stdout
        said = " ".join((done.stderr or done.stdout).split())
        if any(sign in said for sign in _UNREACHABLE):
            raise SlurmUnavailable(f"{words[0]}: {said}; is Slurm up?")
        raise UpdateRefused(f"{' '.join(words)}: {said}")

    def _run(self, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                words,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self._timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as err:
            raise SlurmUnavailable(f"{words[0]} gave no answer in {self._timeout_s:g} s; is slurmctld busy?") from err
        except FileNotFoundError as err:
            raise SlurmUnavailable(f"{words[0]} is not installed or not in PATH (Debian: slurm-client)") from err


def _name(words: Sequence[str]) -> str:
    """What is counted as one command: of scontrol ``scontrol update`` or ``scontrol show``."""
    return " ".join(words[:2]) if words[0] == "scontrol" else words[0]
