"""Where everything of one site lies, and what is recorded about it in site.json."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .testbed_errors import InvalidSpecError, SiteNotFoundError

# Not /tmp and not below a home: unprivileged users must reach slurm.conf and munge's socket.
DEFAULT_ROOT = Path("/var/tmp/slurm-testbed")  # noqa: S108 - a fixed place is the point: `list` and `down` look there
# A Unix socket's path has at most 107 bytes; the longest one below a site is a step's,
# spool/n9999/n9999_4294967295.4294967295.
LONGEST_DIRECTORY = 107 - 42


@dataclass(frozen=True)
class Ports:
    """TCP ports on 127.0.0.1; node i (from 0) listens on `slurmd_first` + i."""

    mariadbd: int
    slurmdbd: int
    slurmctld: int
    slurmd_first: int


@dataclass(frozen=True)
class Layout:
    """The paths below one site's directory."""

    directory: Path

    def __post_init__(self) -> None:
        """Refuse a directory too long for the sockets in it (InvalidSpecError)."""
        if len(str(self.directory)) > LONGEST_DIRECTORY:
            raise InvalidSpecError(
                f"{self.directory}: longer than {LONGEST_DIRECTORY} characters, sockets in it would not work; "
                "choose a shorter root directory or name"
            )

    @property
    def etc(self) -> Path:
        """slurm.conf and the files beside it."""
        return self.directory / "etc"

    @property
    def slurm_conf(self) -> Path:
        """What SLURM_CONF points to."""
        return self.etc / "slurm.conf"

    @property
    def backup_etc(self) -> Path:
        """The same for the backup slurmctld, where there is one."""
        return self.directory / "etc-backup"

    def node_etc(self, node: str) -> Path:
        """What a configless node sees in the place of ``etc``."""
        return self.directory / "etc-nodes" / node

    @property
    def task_prolog(self) -> Path:
        """What slurm.conf's TaskProlog names, where there is one."""
        return self.etc / "task_prolog"

    @property
    def run(self) -> Path:
        """Pid files and sockets."""
        return self.directory / "run"

    @property
    def log(self) -> Path:
        """The logs of all daemons."""
        return self.directory / "log"

    @property
    def state(self) -> Path:
        """Slurmctld's StateSaveLocation."""
        return self.directory / "state"

    @property
    def spool(self) -> Path:
        """One SlurmdSpoolDir for each node."""
        return self.directory / "spool"

    @property
    def devices(self) -> Path:
        """GPU device files, one directory for each node."""
        return self.directory / "dev"

    @property
    def database(self) -> Path:
        """MariaDB's data directory."""
        return self.directory / "mysql"

    @property
    def database_temporary(self) -> Path:
        """Mariadbd's temporary files: at its start a server removes those of others in the same directory."""
        return self.directory / "mysql-tmp"

    @property
    def secrets(self) -> Path:
        """Munge's key and seed, the database password; root only."""
        return self.directory / "secret"

    @property
    def homes(self) -> Path:
        """One directory for each user, owned by that user: where jobs are submitted and write."""
        return self.directory / "home"

    @property
    def software(self) -> Path:
        """Shared directory trees."""
        return self.directory / "software"

    @property
    def munge_socket(self) -> Path:
        """Munged's socket."""
        return self.run / "munge" / "munge.socket"

    @property
    def munge_key(self) -> Path:
        """Munge's key."""
        return self.secrets / "munge.key"

    @property
    def auth_key(self) -> Path:
        """The key of auth/slurm."""
        return self.secrets / "slurm.key"

    @property
    def own_run(self) -> Path:
        """What keeps the site's own /run, where it has one."""
        return self.run / "namespaces" / "mount"

    @property
    def record(self) -> Path:
        """site.json: what the site is."""
        return self.directory / "site.json"

    @property
    def database_socket(self) -> Path:
        """Mariadbd's socket."""
        return self.run / "mariadbd.socket"

    @property
    def database_password(self) -> Path:
        """File with the password of the database user `slurm`."""
        return self.secrets / "database-password"

    def create(self, users: tuple[str, ...] = ()) -> None:
        """Make the directories; those of `users` (existing accounts) belong to them."""
        for path in (self.etc, self.run, self.log, self.spool, self.devices, self.homes, self.software):
            path.mkdir(mode=0o755)
        for path in (self.state, self.secrets, self.database_temporary, self.run / "munge"):
            path.mkdir(mode=0o700)
        self.munge_socket.parent.chmod(0o755)
        for user in users:
            home = self.homes / user
            home.mkdir(mode=0o755)
            shutil.chown(home, user, user)


@dataclass(frozen=True)
class Record:
    """The content of site.json; `started_by` is what SLURM_TESTBED_STARTED_BY said when it was started."""

    name: str
    nodes: tuple[str, ...]
    users: tuple[str, ...]
    ports: Ports
    created: int
    spec: dict[str, Any]
    started_by: str

    def write(self, path: Path) -> None:
        """Write site.json."""
        content = {**vars(self), "ports": vars(self.ports)}
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Record:
        """Read site.json; raises SiteNotFoundError where it is missing or broken."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            return cls(
                name=str(content["name"]),
                nodes=tuple(content["nodes"]),
                users=tuple(content["users"]),
                ports=Ports(**content["ports"]),
                created=int(content["created"]),
                spec=dict(content["spec"]),
                started_by=str(content["started_by"]),
            )
        except FileNotFoundError as error:
            raise SiteNotFoundError(
                f"no site at {path.parent}: start one with `slurm_testbed up --name {path.parent.name}`, "
                "or see `slurm_testbed list`"
            ) from error
        except (ValueError, KeyError, TypeError) as error:
            raise SiteNotFoundError(
                f"{path} is broken ({error}): remove the site with `slurm_testbed down {path.parent.name}`"
            ) from error
