"""What a site should look like: the values a caller chooses."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .testbed_errors import InvalidSpecError

DEFAULT_USERS = ("llm-alice", "llm-bob", "llm-carol")
NAME_PATTERN = re.compile(r"[a-z][a-z0-9-]{0,30}")
RELEASE_PATTERN = re.compile(r"[a-z]+")
RESERVED_FILES = frozenset({"slurm.conf", "slurmdbd.conf", "gres.conf", "cgroup.conf"})


AUTHENTICATIONS = ("munge", "slurm")


def _usual_release() -> str | None:
    return os.environ.get("SLURM_TESTBED_RELEASE") or None


def _usual_authentication() -> str:
    return os.environ.get("SLURM_TESTBED_AUTHENTICATION") or "munge"


@dataclass(frozen=True)
class Partition:
    """One partition; `options` are further slurm.conf words for its line (``{"MaxTime": "60"}``)."""

    name: str = "gpu"
    nodes: str = "ALL"
    default: bool = True
    max_time: str = "1-00:00:00"
    default_time: str = "01:00:00"
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Gres:
    """Generic resources of a node beside its whole GPUs: MIG slices (``gpu``, ``1g.10gb``), or ``shard``."""

    name: str
    type: str
    count: int

    @property
    def word(self) -> str:
        """As slurm.conf's Gres has it."""
        return ":".join(part for part in (self.name, self.type, str(self.count)) if part)


@dataclass(frozen=True)
class NodeKind:
    """Nodes that are alike: how many, and what each has. Memory in MiB.

    ``gres`` is what a node has beside its ``gpus``. With ``threads`` above 1, each CPU is a core with that many.
    With ``cloud``, slurmctld takes them for machines of a cloud (State=CLOUD); they run from the site's start on.
    """

    nodes: int
    gpus: int = 8
    gpu_type: str = "a100"
    cpus: int = 64
    mem_mib: int = 512_000
    features: tuple[str, ...] = ()
    gres: tuple[Gres, ...] = ()
    threads: int = 1
    cloud: bool = False

    @property
    def all_gres(self) -> tuple[Gres, ...]:
        """All generic resources of a node, its GPUs first."""
        return (*((Gres("gpu", self.gpu_type, self.gpus),) if self.gpus else ()), *self.gres)


@dataclass(frozen=True)
class SiteSpec:
    """A site: its nodes, users and configuration. Memory in MiB.

    `other_nodes` are further nodes, after those that the numbers here describe.
    `extra_slurm_conf` sets or replaces slurm.conf keys, and with the value None removes one;
    `extra_slurm_lines` are appended as they are (for keys that may repeat, such as NodeName).
    `scheduler_parameters` changes single words of SchedulerParameters in the same manner; the value
    "" stands for a word without a value. `enforce` is AccountingStorageEnforce.
    `job_submit_lua` is copied beside slurm.conf and switches JobSubmitPlugins=lua on; `etc_files`
    (name → source) are copied there too, before slurmctld starts. `task_prolog` is copied likewise.
    `slurmctld_environment` is added to slurmctld's environment, which job_submit.lua can read. With
    `backup_environment` there is a backup slurmctld, as on a host of its own (BACKUP_HOST), with that
    added to its environment.
    With `configless`, no node has a slurm.conf of its own: slurmd asks slurmctld for it.
    `sample_s` is the period of memory and CPU sampling of running tasks in seconds; Slurm's own is 30. Each sample of
    a task reads all of /proc, so a short period keeps a machine with many tasks busy; a task that ends between two
    samples has no MaxRSS.
    `release` is the Debian release whose Slurm runs ("trixie": 24.11, "forky": 26.05); None: the Slurm in PATH.
    Left out, it is what the environment variable SLURM_TESTBED_RELEASE says.
    `authentication` is how daemons and users prove who they are: "munge", or "slurm" (auth/slurm, since Slurm 23.11).
    Left out, it is what SLURM_TESTBED_AUTHENTICATION says, or munge.
    """

    name: str = "default"
    nodes: int = 4
    gpus_per_node: int = 8
    gpu_type: str = "a100"
    cpus_per_node: int = 64
    mem_mib_per_node: int = 512_000
    features: tuple[str, ...] = ()
    other_nodes: tuple[NodeKind, ...] = ()
    users: tuple[str, ...] = DEFAULT_USERS
    account: str = "llm"
    partitions: tuple[Partition, ...] = (Partition(),)
    enforce: str = "associations"
    scheduler_parameters: Mapping[str, str | None] = field(default_factory=dict)
    extra_slurm_conf: Mapping[str, str | None] = field(default_factory=dict)
    extra_slurm_lines: tuple[str, ...] = ()
    job_submit_lua: Path | None = None
    etc_files: Mapping[str, Path] = field(default_factory=dict)
    task_prolog: Path | None = None
    slurmctld_environment: Mapping[str, str] = field(default_factory=dict)
    backup_environment: Mapping[str, str] | None = None
    configless: bool = False
    sample_s: int = 30
    release: str | None = field(default_factory=_usual_release)
    authentication: str = field(default_factory=_usual_authentication)

    def __post_init__(self) -> None:
        """Refuse what cannot work before anything is started (InvalidSpecError)."""
        if not NAME_PATTERN.fullmatch(self.name):
            raise InvalidSpecError(
                f"site name {self.name!r}: lower-case letters, digits and hyphens, a letter first, at most 31"
            )
        least = {"nodes": 1, "gpus_per_node": 0, "cpus_per_node": 1, "mem_mib_per_node": 1, "sample_s": 0}
        for name, minimum in least.items():
            if getattr(self, name) < minimum:
                raise InvalidSpecError(f"{name} = {getattr(self, name)}: at least {minimum}")
        _require_known_slurm(self.release, self.authentication)
        for user in self.users:
            if not NAME_PATTERN.fullmatch(user):
                raise InvalidSpecError(f"user name {user!r}: lower-case letters, digits and hyphens only")
        for name in self.etc_files:
            if "/" in name or name in RESERVED_FILES:
                raise InvalidSpecError(f"etc_files[{name!r}]: a plain file name that the testbed does not write")
        for path in (*self.etc_files.values(), self.job_submit_lua, self.task_prolog):
            _require_file(path)

    @property
    def node_names(self) -> tuple[str, ...]:
        """The names of all nodes: n1, n2, …."""
        return tuple(name for names in self.kinds for name in names)

    @property
    def kinds(self) -> Mapping[tuple[str, ...], NodeKind]:
        """What the nodes of these names are."""
        usual = NodeKind(
            self.nodes, self.gpus_per_node, self.gpu_type, self.cpus_per_node, self.mem_mib_per_node, self.features
        )
        found, first = {}, 1
        for kind in (usual, *self.other_nodes):
            found[tuple(f"n{number}" for number in range(first, first + kind.nodes))] = kind
            first += kind.nodes
        return found

    def summary(self) -> dict[str, object]:
        """Return the values as JSON can hold them (paths as text)."""
        return {key: _plain(value) for key, value in dataclasses.asdict(self).items()}


def _require_known_slurm(release: str | None, authentication: str) -> None:
    if release is not None and not RELEASE_PATTERN.fullmatch(release):
        raise InvalidSpecError(f"release {release!r}: a Debian release's name, such as trixie")
    if authentication not in AUTHENTICATIONS:
        raise InvalidSpecError(f"authentication {authentication!r}: {' or '.join(AUTHENTICATIONS)}")


def _require_file(path: Path | None) -> None:
    if path is not None and not path.is_file():
        raise InvalidSpecError(f"{path}: no such file")


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(entry) for entry in value]
    return value
