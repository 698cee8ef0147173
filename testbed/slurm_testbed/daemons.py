"""Start, find, stop and kill the daemons of one site."""

from __future__ import annotations

import signal
import subprocess
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from . import configless_nodes, own_run
from .log_ends import tail
from .mariadb_server import server_arguments
from .ports import listening, listening_ports
from .processes import command_line, is_alive, read_pid, send_signal, site_processes
from .slurm_configuration import ADDRESS, BACKUP_ADDRESS, BACKUP_HOST
from .testbed_errors import DaemonFailedError, InvalidSpecError
from .waiting import stretched

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from .layout import Layout, Ports
    from .releases import Release

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
# A daemon writes its pid file shortly after its parent has returned.
GRACE_S = 3.0


@dataclass(frozen=True)
class Daemon:
    """One daemon: its command, its files, and how to tell that it serves."""

    name: str
    program: str
    arguments: Sequence[str | Path]
    pid_file: Path
    log_file: Path
    is_ready: Callable[[], bool]
    environment: Mapping[str, str] = field(default_factory=dict)


def site_daemons(
    layout: Layout,
    ports: Ports,
    nodes: tuple[str, ...],
    slurmctld_environment: Mapping[str, str],
    backup_environment: Mapping[str, str] | None,
    release: Release | None,
    *,
    configless: bool,
    authentication: str,
) -> dict[str, Daemon]:
    """Every daemon of a site by name, in the order in which they start."""
    munged = [
        "munged",
        f"--socket={layout.munge_socket}",
        f"--key-file={layout.munge_key}",
        f"--pid-file={layout.run / 'munge' / 'munged.pid'}",
        f"--log-file={layout.log / 'munged.log'}",
        f"--seed-file={layout.secrets / 'munged.seed'}",
        "--num-threads=4",
        "--origin=127.0.0.1",  # else it looks the machine's name up, which may not resolve
    ]
    # mariadbd cannot put itself into the background.
    mariadbd = ["setsid", "--fork", *server_arguments(layout, ports)]
    daemons = [
        _daemon(layout, "munged", munged, layout.munge_socket.exists, layout.run / "munge" / "munged.pid"),
        _daemon(layout, "mariadbd", mariadbd, _listens(ports.mariadbd)),
        _daemon(layout, "slurmdbd", ["slurmdbd"], _listens(ports.slurmdbd)),
        *_controllers(layout, ports, slurmctld_environment, backup_environment),
    ]
    slurmd = ["slurmd", *(("-d", str(release.slurmstepd)) if release else ())]
    for offset, node in enumerate(nodes):
        name = f"slurmd-{node}"
        command = [*slurmd, "-N", node]
        if configless:
            command = configless_nodes.slurmd_command(layout, ports, node, slurmd, release)
        daemons.append(_daemon(layout, name, command, _listens(ports.slurmd_first + offset)))
    if authentication == "slurm":
        daemons = [_by_auth_slurm(layout, daemon) for daemon in daemons if daemon.name != "munged"]
    return {daemon.name: daemon for daemon in daemons}


def _by_auth_slurm(layout: Layout, daemon: Daemon) -> Daemon:
    """Return the daemon with the site's /run and the key of auth/slurm."""
    environment = {**daemon.environment, "SLURM_SACK_KEY": str(layout.auth_key)}
    return replace(daemon, arguments=own_run.inside(layout, daemon.arguments, layout.run), environment=environment)


def on_backup_host(command: Sequence[str | Path]) -> list[str | Path]:
    """Return what runs a command on a machine called BACKUP_HOST, which is this one but for its name."""
    rename = f'echo {BACKUP_HOST} >/proc/sys/kernel/hostname && exec "$@"'
    return ["unshare", "--uts", "sh", "-c", rename, "sh", *command]


def _controllers(
    layout: Layout, ports: Ports, environment: Mapping[str, str], backup_environment: Mapping[str, str] | None
) -> list[Daemon]:
    """Return slurmctld and its backup, which stand on addresses of their own where there are both."""
    if backup_environment is None:
        return [_daemon(layout, "slurmctld", ["slurmctld"], _listens(ports.slurmctld), environment=environment)]
    own_hosts = f'mount --bind {layout.backup_etc / "hosts"} /etc/hosts && exec "$0"'
    command: list[str | Path] = ["unshare", "--mount", "sh", "-c", own_hosts, "slurmctld"]
    backup_environment = {"SLURM_CONF": str(layout.backup_etc / "slurm.conf"), **backup_environment}
    return [
        _daemon(layout, "slurmctld", command, _listens(ports.slurmctld, ADDRESS), environment=environment),
        _daemon(
            layout,
            "slurmctld-backup",
            on_backup_host(command),
            _listens(ports.slurmctld, BACKUP_ADDRESS),
            environment=backup_environment,
        ),
    ]


def find_daemon(daemons: Mapping[str, Daemon], name: str) -> Daemon:
    """Look a daemon up by name; a node's name means its slurmd. Raises InvalidSpecError."""
    daemon = daemons.get(name) or daemons.get(f"slurmd-{name}")
    if daemon is None:
        raise InvalidSpecError(f"no daemon {name!r}; there are: {', '.join(daemons)}")
    return daemon


def daemon_pid(daemon: Daemon) -> int | None:
    """Process id of a running daemon, else None."""
    return read_pid(daemon.pid_file, daemon.program)


def launch(layout: Layout, daemon: Daemon, environment: Mapping[str, str]) -> None:
    """Start a daemon and return as soon as it runs on its own; see `await_ready`.

    Raises DaemonFailedError when the command itself fails.
    """
    if daemon_pid(daemon) is not None:
        raise DaemonFailedError(f"{daemon.name} runs already (pid {daemon_pid(daemon)})")
    daemon.pid_file.unlink(missing_ok=True)
    start_log = layout.log / f"{daemon.name}.start"
    with start_log.open("w", encoding="utf-8") as output:
        try:
            status = subprocess.run(
                daemon.arguments,
                env={**environment, **daemon.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=layout.run,
                timeout=stretched(START_TIMEOUT_S),
                check=False,
            ).returncode
        except subprocess.TimeoutExpired as error:
            raise _failed(layout, daemon, f"did not go to the background in {error.timeout:.0f} s") from error
    if status != 0:
        raise _failed(layout, daemon, f"exit status {status}")


def await_ready(layout: Layout, daemon: Daemon) -> None:
    """Wait until a launched daemon serves; raises DaemonFailedError when it dies or takes too long."""
    begin = time.monotonic()
    # Both, since mariadbd listens a moment before it writes its pid file.
    while not ((pid := daemon_pid(daemon)) and daemon.is_ready()):
        waited = time.monotonic() - begin
        if waited > GRACE_S and pid is None and not _runs(layout, daemon):
            raise _failed(layout, daemon, "died at its start")
        if waited > stretched(START_TIMEOUT_S):
            raise _failed(layout, daemon, f"not ready after {waited:.0f} s")
        time.sleep(0.03)


def stop(layout: Layout, daemon: Daemon, number: signal.Signals = signal.SIGTERM) -> None:
    """Send a running daemon a signal that ends it and wait for its end (STOP_TIMEOUT_S).

    A daemon that does not run is no error. Raises DaemonFailedError when it does not end.
    """
    pid = daemon_pid(daemon)
    if pid is None:
        return
    send_signal(pid, number)
    begin = time.monotonic()
    while is_alive(pid):
        if (waited := time.monotonic() - begin) > stretched(STOP_TIMEOUT_S):
            raise _failed(layout, daemon, f"still runs {waited:.0f} s after {number.name}")
        time.sleep(0.03)


def _daemon(
    layout: Layout,
    name: str,
    arguments: Sequence[str | Path],
    is_ready: Callable[[], bool],
    pid_file: Path | None = None,
    *,
    environment: Mapping[str, str] | None = None,
) -> Daemon:
    return Daemon(
        name=name,
        program=name.partition("-")[0],
        arguments=arguments,
        pid_file=pid_file or layout.run / f"{name}.pid",
        log_file=layout.log / f"{name}.log",
        is_ready=is_ready,
        environment=environment or {},
    )


def _listens(port: int, address: str | None = None) -> Callable[[], bool]:
    if address is not None:
        return lambda: (address, port) in listening()
    return lambda: port in listening_ports()


def _runs(layout: Layout, daemon: Daemon) -> bool:
    """Tell whether the daemon's process is there, whose pid file may not be yet."""
    return any(
        process.program == daemon.program and daemon.arguments[-1] in command_line(process.pid)
        for process in site_processes(layout.directory)
    )


def _failed(layout: Layout, daemon: Daemon, what: str) -> DaemonFailedError:
    said = tail(layout.log / f"{daemon.name}.start", 10)
    return DaemonFailedError(
        f"{daemon.name}: {what}. Its output:\n{said or '(none)'}\n"
        f"The end of {daemon.log_file}:\n{tail(daemon.log_file, 20) or '(empty)'}"
    )
