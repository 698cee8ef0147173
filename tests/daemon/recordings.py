"""What the commands of each generation of Slurm print: written by ``scripts/record-fixtures.sh``, read by tests.

``python -m tests.daemon.recordings FOLDER`` asks the site of this environment all that the readers ask, and keeps the
answers, without this machine's name, kernel and directories.
"""

import os
import platform
import re
import sys
import time
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, Final

from rlallocd.slurm.accounting import accounting
from rlallocd.slurm.control import Control
from rlallocd.slurm.generations import Capabilities, capabilities_of
from rlallocd.slurm.json_reader import JsonReader
from rlallocd.slurm.slurm_commands import Commands

FIXTURES: Final = Path(__file__).parent / "fixtures"
DIFFERENCES: Final = "differences.toml"
_DAY_S: Final = 24 * 3600
_TIMEOUT_S: Final = 60.0
_DELIMITER: Final = "\x1f"
"""In the recordings; each call of sacct has another one."""


def folder_of(release: str) -> Path:
    """Where the recordings of a release such as ``24.11`` lie."""
    return FIXTURES / f"slurm-{release}"


@cache
def differences_of(release: str) -> dict[str, Any]:
    """In what a release differs from contract.py's tables: ``missing`` jobs, ``jobs`` and ``requests`` by name."""
    path = folder_of(release) / DIFFERENCES
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def files_of(capabilities: Capabilities) -> tuple[str, ...]:
    """The recordings that a generation has to have."""
    column = () if capabilities.json_tells_cpus_per_task else ("cpus-per-task.txt", "node.txt")
    return ("config.txt", "nodes.json", "partitions.txt", "sacct.txt", "squeue.json", *column)


class Recorded(Commands):
    """Commands that print what those of one release have printed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(timeout_s=1)
        self.folder = folder

    def run(self, *words: str) -> str:
        text = (self.folder / _file_of(words)).read_text(encoding="utf-8")
        return text.replace(_DELIMITER, _delimiter_in(words))


class Recording(Commands):
    """Commands of a real site that keep the first answer of each kind."""

    def __init__(self, folder: Path) -> None:
        super().__init__(_TIMEOUT_S)
        self._folder = folder
        self._recorded: set[str] = set()

    def run(self, *words: str) -> str:
        text = super().run(*words)
        if (name := _file_of(words)) not in self._recorded:
            self._recorded.add(name)
            kept = _without_this_machine(text.replace(_delimiter_in(words), _DELIMITER))
            (self._folder / name).write_text(kept, encoding="utf-8")
        return text


def record(folder: Path) -> str:
    """Record the site of this environment; returns its version of Slurm."""
    commands = Recording(folder)
    control = Control(commands)
    version = control.config().slurm_version
    control.partitions()
    reader = JsonReader(commands, capabilities_of(version))
    reader.nodes()
    job_ids = [job.job_id for job in reader.jobs()]
    reader.read_back(job_ids)
    accounting(commands, job_ids, time.time() - _DAY_S)
    return version


def _file_of(words: tuple[str, ...]) -> str:
    if any(word.startswith("--Format=") for word in words):
        return "cpus-per-task.txt"
    if words[0] != "scontrol":
        return {"squeue": "squeue.json", "sinfo": "nodes.json", "sacct": "sacct.txt"}[words[0]]
    return {"config": "config.txt", "nodes": "nodes.json", "node": "node.txt", "partition": "partitions.txt"}[
        words[2]
    ]


def _delimiter_in(words: tuple[str, ...]) -> str:
    option = "--delimiter="
    return next((word.removeprefix(option) for word in words if word.startswith(option)), _DELIMITER)


def _without_this_machine(text: str) -> str:
    system = platform.uname()
    site = os.environ["SLURM_CONF"].removesuffix("/etc/slurm.conf")
    for pattern, replacement in (
        (rf"\b{re.escape(system.node.partition('.')[0])}\b", "host"),
        (re.escape(f"{system.system} {system.release} {system.version}"), "Linux"),
        (re.escape(system.release), "kernel"),
        (re.escape(site), "/site"),
        (re.escape(site.replace("/", "\\/")), "/site"),
        (r"(?m)^(PluginDir *= ).*", r"\1/usr/lib/slurm"),
    ):
        text = re.sub(pattern, replacement, text)
    return text


def main() -> None:
    """Record into the folder that the command line names, by default that of the site's release."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else _folder_of_this_site()
    folder.mkdir(parents=True, exist_ok=True)
    sys.stdout.write(f"recorded Slurm {record(folder)} in {folder}\n")


def _folder_of_this_site() -> Path:
    version = Control(Commands(_TIMEOUT_S)).config().slurm_version
    return folder_of(".".join(version.split(".")[:2]))


if __name__ == "__main__":
    main()
