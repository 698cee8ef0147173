"""rlallocd as systemd sees it: ready at once, alive while it makes progress, reloaded and stopped when told to."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import yaml
from prometheus_client import CollectorRegistry

from rlalloc.config import AgentSection, Config, HistorySection, PolicySection, SlurmSection
from rlalloc.run_times.given_answers import GivenAnswers
from rlalloc.system import service
from rlalloc.system.service import Watchdog
from rlallocd import daemon_app
from rlallocd.decisions.agent_client import AgentClient
from rlallocd.knowledge.kept_answers import KeptAnswers
from rlallocd.metrics.metrics_server import serve_metrics
from rlallocd.process import site_connection
from rlallocd.process.only_daemon import LOCK_FILE, OnlyDaemon
from rlallocd.process.reload import reloaded
from rlallocd.process.runtime_files import RuntimeFiles
from rlallocd.slurm import Slurm, SlurmUnavailable
from rlallocd.slurm.slurm_commands import Commands
from rlallocd.submissions.intercept import RuntimeDirectoryError
from slurm_testbed import wait_until
from tests.agent.running_server import Server

from .hand_clock import HandClock
from .slurm_in_memory import SlurmInMemory

UNREACHABLE = "echo 'slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)' >&2; exit 1"
NO_MUNGE = "echo 'scontrol: error: Munge encode failed: Failed to access munge.socket.2' >&2; exit 1"
HANGS = "exec sleep 3600"
SLURM_CONF = "SLURM_VERSION = 22.05.8\nClusterName = test"


class Systemd:
    """The end of NOTIFY_SOCKET that systemd holds."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(path)
        self._socket.setblocking(False)
        self.heard: list[str] = []

    def has_heard(self, words: str) -> bool:
        while True:
            try:
                self.heard += self._socket.recv(4096).decode().splitlines()
            except BlockingIOError:
                return any(line.startswith(words) for line in self.heard)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def systemd(monkeypatch: pytest.MonkeyPatch) -> Iterator[Systemd]:
    with tempfile.TemporaryDirectory() as directory:  # a socket's path has to be short
        path = f"{directory}/notify"
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        listening = Systemd(path)
        yield listening
        listening.close()


class Daemon:
    """A configuration file that a test changes, and commands of Slurm's that it makes up."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.config_path = directory / "rlalloc.yaml"
        self.settings: dict[str, Any] = {
            "runtime_directory": str(directory),
            "agent": {"endpoint": f"ipc://{directory}/agent.sock"},
            "slurm": {"backend": "cli", "command_timeout_s": 1.0},
            "metrics": {"listen": ""},
            "store": {"url": f"sqlite:///{directory}/store.sqlite", "key_file": f"{directory}/journal.key"},
        }
        self.configure()

    def configure(self, **changes: object) -> None:
        self.settings |= changes
        self.config_path.write_text(yaml.safe_dump(self.settings))

    def start(self, scontrol: str) -> "subprocess.Popen[str]":
        """Start the program, with this shell text as scontrol."""
        programs = self.directory / "bin"
        programs.mkdir(exist_ok=True)
        (programs / "scontrol").write_text(f"#!/bin/sh\n{scontrol}\n")
        (programs / "scontrol").chmod(0o755)
        return subprocess.Popen(
            [Path(sys.executable).parent / "rlallocd", "--config", self.config_path],
            env=os.environ | {"PATH": f"{programs}:/usr/bin:/bin"},
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def daemon(tmp_path: Path) -> Daemon:
    return Daemon(tmp_path)


@pytest.mark.parametrize("scontrol", [UNREACHABLE, NO_MUNGE, HANGS])
def test_it_is_ready_whatever_slurm_does(systemd: Systemd, daemon: Daemon, scontrol: str) -> None:
    """Else systemd would kill it after TimeoutStartSec, again and again, while slurmctld is down."""
    with daemon.start(scontrol) as process:
        wait_until(lambda: systemd.has_heard("STATUS=waiting: scontrol"), what="it waits for slurmctld", timeout_s=60)
        assert systemd.has_heard("READY=1")
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0


def test_it_is_ready_without_its_store_and_takes_that_when_it_comes(systemd: Systemd, daemon: Daemon) -> None:
    disk = daemon.directory / "disk"
    daemon.configure(store=daemon.settings["store"] | {"url": f"sqlite:///{disk}/store.sqlite"})
    with daemon.start(UNREACHABLE) as process:
        wait_until(
            lambda: systemd.has_heard("STATUS=waiting: the store"), what="it waits for the store", timeout_s=60
        )
        assert systemd.has_heard("READY=1")
        disk.mkdir()
        wait_until(lambda: systemd.has_heard("STATUS=waiting: scontrol"), what="it waits for slurmctld", timeout_s=60)
        assert (disk / "store.sqlite").exists()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0


def test_a_configuration_that_was_mended_is_taken_up_while_it_waits(systemd: Systemd, daemon: Daemon) -> None:
    with daemon.start(UNREACHABLE) as process:
        wait_until(lambda: systemd.has_heard("STATUS=waiting: scontrol"), what="it waits for slurmctld", timeout_s=60)
        daemon.configure(log_level="debug")
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: systemd.has_heard("RELOADING=1"), what="it reads the file again", timeout_s=60)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
        assert process.stderr is not None
        assert "configuration reloaded" in process.stderr.read()


def test_a_runtime_directory_that_is_not_there_is_one_line(daemon: Daemon) -> None:
    daemon.configure(runtime_directory=f"{daemon.directory}/nowhere")
    with daemon.start(UNREACHABLE) as process:
        _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert said == f"rlallocd: cannot lock {daemon.directory}/nowhere/rlallocd.lock: No such file or directory\n"


def test_a_second_daemon_is_refused(systemd: Systemd, daemon: Daemon) -> None:
    """Until the first has ended, even by SIGKILL; a lock file that somebody removes meanwhile is made again."""
    with daemon.start(UNREACHABLE) as first:
        wait_until(lambda: systemd.has_heard("STATUS=waiting: scontrol"), what="it waits for slurmctld", timeout_s=60)
        with daemon.start(UNREACHABLE) as second:
            _, said = second.communicate(timeout=60)
        assert second.returncode == 1
        assert said == (
            f"rlallocd: another rlallocd (process {first.pid}) works in {daemon.directory}: stop it first "
            "(systemctl stop rlallocd)\n"
        )
        first.kill()
    with closing(OnlyDaemon(daemon.directory)) as only:
        (daemon.directory / LOCK_FILE).unlink()
        only.renew()
        with pytest.raises(RuntimeDirectoryError, match=f"process {os.getpid()}"):
            OnlyDaemon(daemon.directory)
    assert not (daemon.directory / LOCK_FILE).exists()


class TestWatchdog:
    @pytest.fixture
    def clock(self, monkeypatch: pytest.MonkeyPatch) -> HandClock:
        clock = HandClock()
        monkeypatch.setattr(time, "monotonic", clock)
        return clock

    @pytest.fixture
    def told(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        told: list[str] = []
        monkeypatch.setattr(service, "notify", told.append)
        return told

    def test_it_is_fed_at_most_once_a_second(self, clock: HandClock, told: list[str]) -> None:
        watchdog = Watchdog()
        for _ in range(1000):
            watchdog.feed()
            clock.now_s += 0.01
        assert told == ["WATCHDOG=1"] * 10

    def test_it_waits_for_steps_longer_than_its_limit(self, told: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        """A command of Slurm's may take slurm.command_timeout_s, whatever WatchdogSec is."""
        monkeypatch.setenv("WATCHDOG_USEC", "60000000")
        watchdog = Watchdog()
        watchdog.allow_steps_of(10)
        assert told == []
        watchdog.allow_steps_of(100)
        watchdog.allow_steps_of(10)
        assert told == ["WATCHDOG_USEC=200000000", "WATCHDOG_USEC=60000000"]

    def test_without_one_nothing_is_said(self, told: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("WATCHDOG_USEC", raising=False)
        Watchdog().allow_steps_of(100)
        assert told == []


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> SlurmInMemory:
    slurm = SlurmInMemory()
    monkeypatch.setattr(site_connection, "connect", lambda _section: cast("Slurm", slurm))
    return slurm


@pytest.fixture
def levels(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    levels: list[str] = []
    monkeypatch.setattr(daemon_app, "configure_logging", lambda level, _program: levels.append(level))
    return levels


def run_in_this_process(daemon: Daemon, systemd: Systemd, meanwhile: Callable[[], None]) -> None:
    """Run the daemon with the Slurm of a few lines; once it acts, do something, then stop it."""
    failed: list[BaseException] = []

    def beside() -> None:
        try:
            wait_until(lambda: systemd.has_heard("STATUS=mode"), what="it acts", timeout_s=60)
            meanwhile()
        except BaseException as err:  # noqa: BLE001 - shown by the test's own thread
            failed.append(err)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=beside)
    thread.start()
    daemon_app.run(daemon.config_path)
    thread.join()
    assert failed == []


@pytest.mark.usefixtures("levels")
def test_what_it_learned_is_kept_though_it_stands_by_at_its_end(
    daemon: Daemon, systemd: Systemd, slurm: SlurmInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It acted until its slurmctld failed, and nobody else has acted since."""
    kept: list[GivenAnswers] = []
    monkeypatch.setattr(KeptAnswers, "write", lambda _self, given: kept.append(given))
    host = socket.gethostname()
    slurm.config = msgspec.structs.replace(slurm.config, controllers=(host, "backup"))
    daemon.configure(daemon={"poll_s": 0.5, "heartbeat_s": 0.5})

    def meanwhile() -> None:
        slurm.down = {host}
        wait_until(lambda: systemd.has_heard("STATUS=standby"), what="it stands by", timeout_s=60)
        assert kept == []

    run_in_this_process(daemon, systemd, meanwhile)
    assert len(kept) == 1


class TestReload:
    """SIGHUP, in a daemon that runs in this process with a Slurm of a few lines."""

    def _run(self, daemon: Daemon, systemd: Systemd, reload: Callable[[], None]) -> None:
        """Run the daemon; once it cycles, change its configuration, have that read, and stop."""

        def meanwhile() -> None:
            systemd.heard.clear()
            reload()
            os.kill(os.getpid(), signal.SIGHUP)
            wait_until(lambda: systemd.has_heard("READY=1"), what="it has read the file again", timeout_s=60)

        run_in_this_process(daemon, systemd, meanwhile)

    def test_all_that_can_be_taken_up_is(
        self,
        daemon: Daemon,
        systemd: Systemd,
        slurm: SlurmInMemory,
        levels: list[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        deadlines: list[float] = []
        monkeypatch.setattr(AgentClient, "reconfigure", lambda _self, section: deadlines.append(section.deadline_s))
        changes = {
            "log_level": "debug",
            "slurm": {"backend": "cli", "command_timeout_s": 7.0},
            "agent": daemon.settings["agent"] | {"deadline_s": 3.0},
        }
        self._run(daemon, systemd, lambda: daemon.configure(**changes))
        assert levels == ["info", "debug"]
        assert slurm.command_timeout_s == 7.0
        assert deadlines == [3.0]

    @pytest.mark.usefixtures("slurm", "levels")
    def test_what_needs_a_restart_is_named_and_stays(
        self, daemon: Daemon, systemd: Systemd, caplog: pytest.LogCaptureFixture
    ) -> None:
        other = daemon.directory / "other"
        changes = {"runtime_directory": str(other), "store": {"url": "sqlite:////nowhere/x.sqlite"}, "grace_s": 90}
        self._run(daemon, systemd, lambda: daemon.configure(**changes))
        for key in ("runtime_directory", "store.url"):
            assert f"{key} has changed, which a reload does not take up" in caplog.text
        assert "slurm.backend has changed" not in caplog.text
        assert "grace 90" in (daemon.directory / "intercept").read_text()
        assert not other.exists()


def test_a_word_that_systemd_does_not_take_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens at its socket now."""
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    service.notify("READY=1")
    Watchdog().feed()


def test_without_a_thread_for_it_a_server_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """At the limit of the unit's tasks: no job depends on either server."""

    def no_thread(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    with closing(RuntimeFiles(Config(runtime_directory=tmp_path))) as files:
        files.serve_users(None, "")
    assert serve_metrics("127.0.0.1:0", CollectorRegistry()) is None
    assert [text.partition(":")[0] for text in caplog.messages] == [
        f"cannot answer users in {tmp_path}",
        "no metrics",
    ]


def test_another_time_limit_holds_for_the_next_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f"#!/bin/sh\ncase $2 in config) echo '{SLURM_CONF}';; *) {HANGS};; esac\n")
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    slurm = Slurm(Commands(3600), "cli")
    slurm.set_command_timeout(0.5)
    with pytest.raises(SlurmUnavailable, match=r"no answer in 0\.5 s"):
        slurm.begin([7], 0)


def test_a_command_that_the_system_refuses_to_run_is_named(tmp_path: Path) -> None:
    program = tmp_path / "squeue"
    program.write_text("#!/bin/sh\n")
    with pytest.raises(SlurmUnavailable, match="squeue cannot be run: Permission denied"):
        Commands(10).run(str(program))


def test_another_agent_deadline_or_endpoint_holds_for_the_next_question(tmp_path: Path) -> None:
    client = AgentClient(f"ipc://{tmp_path}/nobody.sock", 3600.0)
    with Server(tmp_path) as server:
        client.reconfigure(AgentSection(endpoint=server.endpoint, deadline_s=30.0))
        assert client.state().policy_version
    client.close()


def test_of_a_section_only_the_key_that_needs_a_restart_stays() -> None:
    new = Config(slurm=SlurmSection(backend="cli", command_timeout_s=3.0))
    taken, kept = reloaded(Config(), new)
    assert kept == ("slurm.backend",)
    assert taken.slurm == SlurmSection(backend="auto", command_timeout_s=3.0)


def test_what_the_predictor_reads_names_and_models_by_needs_a_restart() -> None:
    """Else past jobs would be stored under pseudonyms that the predictor does not know."""
    new = Config(
        history=HistorySection(pseudonymize=True, key_file=Path("/other.key"), every_s=7.0),
        policy=PolicySection(directory=Path("/other")),
    )
    taken, kept = reloaded(Config(), new)
    assert kept == ("history.pseudonymize", "history.key_file", "policy.directory")
    assert taken.history == HistorySection(every_s=7.0)
    assert taken.policy == PolicySection()
