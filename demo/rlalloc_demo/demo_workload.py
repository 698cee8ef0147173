"""The jobs that the demo submits, read from workload.yaml, and the users who submit them."""

import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec
import yaml

from rlalloc_demo.demo_errors import DemoError
from slurm_testbed import Site
from slurm_testbed.site_jobs import parse_job_id

FILE: Final = Path(__file__).resolve().parents[1] / "workload.yaml"
Kind = Literal["declared", "by-script", "rigid", "serve", "ordinary"]
KINDS: Final[tuple[Kind, ...]] = ("declared", "by-script", "rigid", "serve", "ordinary")


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One job of workload.yaml: when, whose, what it is to rlalloc, and what is typed after sbatch."""

    at: float
    user: str
    kind: Kind
    sbatch: str

    @property
    def script(self) -> str:
        """The name of its script."""
        return next(word for word in shlex.split(self.sbatch) if word.endswith(".sbatch"))


class Workloads(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of workload.yaml."""

    workload: tuple[Entry, ...]
    after_training: tuple[Entry, ...]
    without_agent: tuple[Entry, ...]
    without_daemon: tuple[Entry, ...]
    afterwards: tuple[Entry, ...]

    @property
    def users(self) -> tuple[str, ...]:
        """All users, sorted."""
        parts = (self.workload, self.after_training, self.without_agent, self.without_daemon, self.afterwards)
        return tuple(sorted({entry.user for part in parts for entry in part}))


class Submitted(msgspec.Struct, frozen=True):
    """A job that Slurm has taken. ``submitted_s`` is when sbatch was typed; Slurm notes whole seconds only."""

    job_id: int
    entry: Entry
    submitted_s: float


def read_workloads(path: Path = FILE) -> Workloads:
    """Read workload.yaml. Raises DemoError."""
    try:
        return msgspec.convert(yaml.safe_load(path.read_text(encoding="utf-8")), Workloads)
    except (OSError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise DemoError(f"{path}: {error}") from error


class Submission:
    """Submits entries when they are due, each as its user, by plain sbatch."""

    def __init__(self, site: Site, entries: Sequence[Entry]) -> None:
        self._site = site
        self._left = sorted(entries, key=lambda entry: entry.at)
        self._began = time.monotonic()
        self.total = len(entries)
        self.submitted: list[Submitted] = []

    @property
    def complete(self) -> bool:
        """Whether all are submitted."""
        return not self._left

    def submit_due(self) -> None:
        """Submit what is due by now. Raises TestbedError if sbatch refuses a job."""
        while self._left and self._left[0].at <= time.monotonic() - self._began:
            entry = self._left.pop(0)
            words = [f"llm/{word}" if word.endswith(".sbatch") else word for word in shlex.split(entry.sbatch)]
            submitted_s = time.time()
            output = self._site.run(["sbatch", "--parsable", *words], user=entry.user)
            self.submitted.append(Submitted(parse_job_id(output), entry, submitted_s))
