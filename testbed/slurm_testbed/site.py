"""A running Slurm site: start it, use it, break it, end it."""

from __future__ import annotations

import dataclasses
import os
import secrets
import shutil
import signal
from typing import TYPE_CHECKING, Self

from . import (
    configless_nodes,
    daemons,
    mariadb_server,
    own_run,
    registry,
    releases,
    requirements,
    shares,
    site_jobs,
    site_users,
    slurm_configuration,
)
from .external_commands import run_command
from .layout import DEFAULT_ROOT, Layout, Ports, Record
from .log_ends import tail
from .processes import PROGRAMS_VARIABLE, SITE_VARIABLE
from .testbed_errors import DaemonFailedError, InvalidSpecError, TestbedError, WaitTimedOutError
from .waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from .specification import SiteSpec

COMMAND_TIMEOUT_S = 60.0


class Site:
    """One site; made by `start` or `attach`. As a context manager it ends at the block's end."""

    def __init__(self, layout: Layout, record: Record) -> None:
        self.name = record.name
        self.directory = layout.directory
        self.etc = layout.etc
        self.run_directory = layout.run
        self.log_directory = layout.log
        self.users: tuple[str, ...] = record.users
        self.nodes: tuple[str, ...] = record.nodes
        self.ports: Ports = record.ports
        self.record = record
        self._layout = layout
        release = record.spec.get("release")
        self._release = None if release is None else releases.locate(release)
        self._daemons = daemons.site_daemons(
            layout,
            record.ports,
            record.nodes,
            record.spec["slurmctld_environment"],
            record.spec["backup_environment"],
            self._release,
            configless=bool(record.spec.get("configless")),
            authentication=str(record.spec.get("authentication", "munge")),
        )

    @classmethod
    def start(
        cls, spec: SiteSpec, root: Path = DEFAULT_ROOT, *, replace: bool = False, keep_failed: bool = False
    ) -> Site:
        """Start a site and return when all its nodes are idle.

        `replace` ends a site of the same name first. A site that fails to start is removed, unless
        `keep_failed`: then `down` removes it. Raises TestbedError (see errors.py).
        """
        release = None if spec.release is None else releases.provide(spec.release)
        requirements.check_requirements(_path_with(release))
        root = root.resolve()
        if replace:
            registry.remove(spec.name, root)
        layout, record = registry.claim(spec, root)
        try:
            site = cls(layout, record)
            site._configure(spec)
            site._bring_up(spec)
        except BaseException:
            if not keep_failed:
                registry.remove(spec.name, root)
            raise
        return site

    @classmethod
    def attach(cls, name: str, root: Path = DEFAULT_ROOT) -> Site:
        """Return an existing site, running or crashed; raises SiteNotFoundError."""
        layout = Layout(root.resolve() / name)
        return cls(layout, Record.read(layout.record))

    def stop(self) -> None:
        """End everything of the site and remove its directory; safe to repeat."""
        registry.remove(self.name, self.directory.parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # Commands

    def environment(self, user: str | None = None) -> dict[str, str]:
        """Return a whole environment for a process that uses the site, as root or as `user`.

        Nothing of the caller's own comes along but PATH, TZ and, where PATH has the site's Slurm, PERL5LIB: its
        SBATCH_… and SQUEUE_… would change what commands do. A process started with it ends with the site.
        """
        values = {
            "PATH": _path_with(self._release),
            "LANG": "C.UTF-8",
            "SHELL": "/bin/bash",
            "USER": user or "root",
            "LOGNAME": user or "root",
            "HOME": str(self.home(user)),
            "SLURM_CONF": str(self._layout.slurm_conf),
            SITE_VARIABLE: str(self.directory),
        }
        own = ["TZ"]
        if self._release is not None:
            values[PROGRAMS_VARIABLE] = str(self._release.programs)
        else:
            own.append("PERL5LIB")  # of a build's Perl API
        values |= {name: os.environ[name] for name in own if name in os.environ}
        return values

    def home(self, user: str | None = None) -> Path:
        """Directory where a user's jobs are submitted and write; the site's own for root."""
        if user is None:
            return self.directory
        home = self._layout.homes / user
        if not home.is_dir():
            raise InvalidSpecError(f"{user!r} is not a user of site {self.name}: {', '.join(self.users)}")
        return home

    def run(
        self,
        arguments: Sequence[str | Path],
        *,
        user: str | None = None,
        input: str = "",  # noqa: A002 - subprocess.run's word
        timeout_s: float = COMMAND_TIMEOUT_S,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> str:
        """Run a command in the site's environment and return its standard output.

        `environment` is added to the site's; `directory` is `home(user)` if None.
        Raises CommandFailedError on a non-zero exit or past the time limit; see `try_run`.
        """
        completed = self.try_run(
            arguments, user=user, input=input, timeout_s=timeout_s, environment=environment, directory=directory
        )
        return site_jobs.require_success(completed).output

    def try_run(
        self,
        arguments: Sequence[str | Path],
        *,
        user: str | None = None,
        input: str = "",  # noqa: A002 - as above
        timeout_s: float = COMMAND_TIMEOUT_S,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> site_jobs.Completed:
        """Like `run`, but hand back how it ended: a non-zero exit is no error."""
        directory = directory or self.home(user)
        environment = {**self.environment(user), **(environment or {})}
        if self._layout.own_run.exists():
            identity = None if user is None else site_users.unix_identity(user)
            arguments, user = own_run.inside(self._layout, arguments, directory, identity), None
        return site_jobs.run_as(
            arguments,
            environment=environment,
            directory=directory,
            user=user,
            standard_input=input,
            timeout_s=timeout_s,
        )

    def sbatch(
        self,
        script_text: str,
        *,
        user: str | None = None,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> int:
        """Submit a script from the user's home and return the job id; raises CommandFailedError.

        As root only where the site does not enforce associations, or root has one.
        """
        output = self.run(["sbatch", "--parsable", *options], user=user, input=script_text, environment=environment)
        return site_jobs.parse_job_id(output)

    def job_states(self, job_ids: Collection[int]) -> dict[str, str]:
        """State of each job by name ("7", array tasks "7_1", "7_[2-9]"), from squeue, else from sacct."""
        queued = self.run(["squeue", "--noheader", "--states=all", "--format=%i|%T"])
        states = site_jobs.parse_states(queued, job_ids)
        missing = set(job_ids) - {site_jobs.base_id(name) for name in states}
        if missing:
            listed = ",".join(str(job_id) for job_id in sorted(missing))
            past = self.run(
                ["sacct", "--noheader", "--parsable2", "--allocations", "--format=JobID,State", f"--jobs={listed}"]
            )
            states.update(site_jobs.parse_states(past, missing))
        return states

    def wait_for_states(
        self, job_ids: Collection[int], states: Iterable[str], *, timeout_s: float = 60.0
    ) -> dict[str, str]:
        """Wait until each job, with all its tasks, is in one of `states`; return the state of each.

        Raises WaitTimedOutError, with what slurmctld knows of these jobs and of the nodes.
        """
        try:
            return site_jobs.wait_for_states(self.job_states, job_ids, states, timeout_s)
        except WaitTimedOutError as error:
            raise WaitTimedOutError(f"{error}\n{self._records(job_ids)}") from error

    def _records(self, job_ids: Collection[int]) -> str:
        """What slurmctld knows of some jobs and of all nodes, a line each; else why it does not answer."""
        calls = [("show", "job", str(job_id)) for job_id in sorted(job_ids)] + [("show", "node")]
        try:
            shown = [self.try_run(["scontrol", "--oneliner", *words]) for words in calls]
        except TestbedError as error:
            return str(error)
        return "\n".join((each.output or each.error_output).strip() for each in shown)

    # Faults

    @property
    def daemon_names(self) -> tuple[str, ...]:
        """Names of all daemons: munged, mariadbd, slurmdbd, slurmctld (slurmctld-backup), slurmd-n1, …."""
        return tuple(self._daemons)

    def is_running(self, name: str) -> bool:
        """Tell whether a daemon's process lives; a node's name means its slurmd."""
        return self.pid(name) is not None

    def pid(self, name: str) -> int | None:
        """Process id of a daemon, None while it does not run."""
        return daemons.daemon_pid(self._daemon(name))

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a daemon a signal and, if that is SIGKILL or SIGTERM, wait for its end."""
        daemon = self._daemon(name)
        if number in {signal.SIGKILL, signal.SIGTERM}:
            daemons.stop(self._layout, daemon, number)
        elif (pid := daemons.daemon_pid(daemon)) is not None:
            os.kill(pid, number)

    def stop_daemon(self, name: str) -> None:
        """End a daemon properly (SIGTERM) and wait for its end."""
        self.kill(name, signal.SIGTERM)

    def start_daemon(self, name: str, *options: str) -> None:
        """Start a daemon that does not run, with these options too, and wait until it serves.

        Raises DaemonFailedError.
        """
        daemon = self._daemon(name)
        daemon = dataclasses.replace(daemon, arguments=[*daemon.arguments, *options])
        daemons.launch(self._layout, daemon, self.environment())
        daemons.await_ready(self._layout, daemon)

    def restart_daemon(self, name: str) -> None:
        """Stop and start a daemon."""
        self.stop_daemon(name)
        self.start_daemon(name)

    def reconfigure(self) -> None:
        """Let all daemons read slurm.conf and job_submit.lua again."""
        self.run(["scontrol", "reconfigure"])

    def wait_for_nodes(self, timeout_s: float = 60.0) -> None:
        """Wait until every node is up (idle, mixed or allocated); raises WaitTimedOutError."""

        def all_up() -> bool:
            found = self.try_run(["sinfo", "--noheader", "--Node", "--format=%N %T"], timeout_s=timeout_s)
            states = dict(line.split() for line in found.output.splitlines())
            return len(states) == len(self.nodes) and {"idle", "mixed", "allocated"}.issuperset(states.values())

        wait_until(all_up, what=f"all nodes of site {self.name} to be up (see sinfo -R)", timeout_s=timeout_s)

    def inside(self, command: Sequence[str | Path]) -> list[str | Path]:
        """Return what runs a command, as root, where Slurm's commands reach the site's sockets.

        `run` and `try_run` do so by themselves; for what is started otherwise.
        """
        return own_run.inside(self._layout, command) if self._layout.own_run.exists() else list(command)

    def on_backup_host(self, command: Sequence[str | Path]) -> list[str | Path]:
        """Return what runs a command on the host of the backup slurmctld, which is this machine by another name."""
        return daemons.on_backup_host(command)

    def on_node(self, node: str, command: Sequence[str | Path]) -> list[str | Path]:
        """Return what runs a command, as root, on the host of a configless node; raises DaemonFailedError."""
        if (pid := self.pid(node)) is None:
            raise DaemonFailedError(f"{node} is where its slurmd runs, and that does not run")
        return configless_nodes.on_node(pid, command)

    # Files

    def etc_of(self, node: str) -> Path:
        """What a configless node sees in the place of ``etc``: files of its own, such as the TaskProlog."""
        return self._layout.node_etc(node)

    def log_tail(self, name: str = "slurmctld", lines: int = 50) -> str:
        """Return the last lines of a daemon's log."""
        return tail(self._daemon(name).log_file, lines)

    def share(self, source: Path, name: str) -> Path:
        """Show a directory tree to all users at <site>/software/<name>, undone when the site ends.

        A symbolic link where others can reach the source, else a bind mount; see shares.share.
        """
        if not name or "/" in name or name.startswith("."):
            raise InvalidSpecError(f"share name {name!r}: a plain file name")
        return shares.share(source, self._layout.software / name)

    def database_url(self, database_name: str) -> str:
        """SQLAlchemy URL of a database on the site's MariaDB (mysql+pymysql); created if absent.

        Raises InvalidSpecError, CommandFailedError.
        """
        if not database_name.isidentifier():
            raise InvalidSpecError(f"database name {database_name!r}: letters, digits and underscores")
        password = self._layout.database_password.read_text(encoding="ascii")
        run_command(
            ["mariadb", "--no-defaults", f"--socket={self._layout.database_socket}", "--user=root"],
            timeout_s=COMMAND_TIMEOUT_S,
            environment=self.environment(),
            standard_input=f"CREATE DATABASE IF NOT EXISTS {database_name};\n",
        )
        return f"mysql+pymysql://{mariadb_server.DATABASE_USER}:{password}@127.0.0.1:{self.ports.mariadbd}/{database_name}"

    # Steps of the start

    def _daemon(self, name: str) -> daemons.Daemon:
        return daemons.find_daemon(self._daemons, name)

    def _configure(self, spec: SiteSpec) -> None:
        """Write all files of etc/, the GPU devices, the keys and MariaDB's data directory."""
        version = requirements.slurm_version(_path_with(self._release))
        if spec.authentication == "slurm" and version < (23, 11):
            raise InvalidSpecError(f"Slurm {version[0]}.{version[1]:02} has no auth/slurm; 23.11 and later have it")
        plugins = self._release.plugins if self._release else None
        mariadb_server.initialise(self._layout)
        password = self._layout.database_password.read_text(encoding="ascii")
        files = {
            "slurm.conf": slurm_configuration.slurm_conf(self._layout, spec, self.ports, version, plugins),
            "gres.conf": slurm_configuration.gres_conf(self._layout, spec),
            "cgroup.conf": slurm_configuration.cgroup_conf(version),
            "slurmdbd.conf": slurm_configuration.slurmdbd_conf(self._layout, spec, self.ports, password, plugins),
        }
        for name, content in files.items():
            path = self.etc / name
            path.touch(mode=0o600 if name == "slurmdbd.conf" else 0o644)
            path.write_text(content, encoding="utf-8")
        copies = dict(spec.etc_files)
        if spec.job_submit_lua is not None:
            copies["job_submit.lua"] = spec.job_submit_lua
        if spec.task_prolog is not None:
            copies[self._layout.task_prolog.name] = spec.task_prolog
        for name, source in copies.items():
            shutil.copyfile(source, self.etc / name)
            (self.etc / name).chmod(0o755)
        if spec.task_prolog is not None and self._release is not None:
            self._put_release_before_login(self._layout.task_prolog, self._release)
        if spec.configless:
            configless_nodes.configure(self._layout, self.nodes)
        if spec.backup_environment is not None:
            self._configure_backup(files["slurm.conf"])
        for key in (self._layout.munge_key, self._layout.auth_key):
            key.touch(mode=0o400)
            key.write_bytes(secrets.token_bytes(128))
        self._make_devices(spec)

    def _put_release_before_login(self, task_prolog: Path, release: releases.Release) -> None:
        """Put the release's Slurm into the TaskProlog's PATH: that of a login (--export=NONE) has the machine's."""
        own = task_prolog.with_name("task_prolog_of_site")
        task_prolog.rename(own)
        task_prolog.write_text(f'#!/bin/sh\nexport PATH="{release.programs}:$PATH"\nexec {own}\n', encoding="ascii")
        task_prolog.chmod(0o755)

    def _make_devices(self, spec: SiteSpec) -> None:
        """Make the GPUs of each node."""
        for node, kind in ((node, kind) for nodes, kind in spec.kinds.items() for node in nodes):
            (self._layout.devices / node).mkdir()
            for number in range(slurm_configuration.device_files(kind)):
                # slurmd follows the link to a character device, and a link needs no right to mknod.
                (self._layout.devices / node / f"nvidia{number}").symlink_to("/dev/null")

    def _configure_backup(self, slurm_conf: str) -> None:
        """Write the files of the backup slurmctld; those that do not differ are the primary's."""
        etc = self._layout.backup_etc
        etc.mkdir(mode=0o755)
        for path in self.etc.iterdir():
            (etc / path.name).symlink_to(path)
        (etc / "slurm.conf").unlink()
        (etc / "slurm.conf").write_text(slurm_configuration.backup_slurm_conf(slurm_conf), encoding="utf-8")
        (etc / "hosts").write_text(slurm_configuration.hosts_file(), encoding="utf-8")

    def _bring_up(self, spec: SiteSpec) -> None:
        """Start the daemons in the order of their needs."""
        if spec.authentication == "slurm":
            own_run.make(self._layout)
        others = [self._daemons[name] for name in ("munged", "mariadbd") if name in self._daemons]
        for daemon in others:
            daemons.launch(self._layout, daemon, self.environment())
        for daemon in others:
            daemons.await_ready(self._layout, daemon)
        self.start_daemon("slurmdbd")
        site_users.register_in_slurmdbd(spec.name, spec.account, spec.users, self.run)
        for name in self._daemons:
            if name.startswith("slurmctld"):
                self.start_daemon(name)
        for node in self.nodes:
            daemons.launch(self._layout, self._daemon(node), self.environment())
        try:
            self.wait_for_nodes()
        except TestbedError as error:
            raise TestbedError(f"{error}\nThe end of slurmctld's log:\n{self.log_tail(lines=30)}") from error


def _path_with(release: releases.Release | None) -> str:
    """PATH with the release's programs before this machine's own."""
    path = requirements.search_path()
    return path if release is None else os.pathsep.join((str(release.programs), path))
