"""The program rlalloc-agent as systemd starts it."""

import contextlib
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rlalloc.config import load_config
from rlalloc.messages import AgentState
from rlalloc.system.process_signals import ProcessSignals
from rlalloc_agent import policy_server
from rlalloc_agent.agent_app import run
from tests.agent.running_server import ask, client

PROGRAM = [sys.executable, "-c", "from rlalloc_agent.agent_app import main; main()"]


@contextmanager
def running_agent(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], socket.socket]]:
    """An agent and the socket on which it talks to systemd."""
    config = tmp_path / "rlalloc.yaml"
    config.write_text(
        f"agent: {{endpoint: 'ipc://{tmp_path}/agent.sock'}}\npolicy: {{directory: {tmp_path}/policies}}\n"
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(f"{tmp_path}/notify")
        notified.settimeout(300)
        environment = os.environ | {"NOTIFY_SOCKET": f"{tmp_path}/notify"}
        environment.pop("JOURNAL_STREAM", None)
        with subprocess.Popen(
            [*PROGRAM, "--config", str(config)], env=environment, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                yield process, notified
            finally:
                process.kill()


def wait_until_told(notified: socket.socket, word: str) -> None:
    while word not in notified.recv(4096).decode():
        pass


def test_says_ready_serves_and_stops_cleanly(tmp_path: Path) -> None:
    pytest.importorskip("systemd.daemon")
    with running_agent(tmp_path) as (process, notified):
        wait_until_told(notified, "READY=1")
        assert stat.S_IMODE((tmp_path / "agent.sock").stat().st_mode) == 0o660
        with client(f"ipc://{tmp_path}/agent.sock") as dealer:
            assert isinstance(ask(dealer), AgentState)
        wait_until_told(notified, "WATCHDOG=1")
        process.send_signal(signal.SIGHUP)
        wait_until_told(notified, "RELOADING=1")
        wait_until_told(notified, "READY=1")
        process.send_signal(signal.SIGTERM)
        wait_until_told(notified, "STOPPING=1")
        assert process.wait(300) == 0


def test_a_wrong_configuration_is_wrong_use(tmp_path: Path) -> None:
    config = tmp_path / "rlalloc.yaml"
    config.write_text("agnet: {}\n")
    done = subprocess.run([*PROGRAM, "--config", str(config)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "agnet" in done.stderr


def test_an_endpoint_that_cannot_be_bound_is_a_failure(tmp_path: Path) -> None:
    config = tmp_path / "rlalloc.yaml"
    config.write_text(f"agent: {{endpoint: 'ipc://{tmp_path}/missing/agent.sock'}}\n")
    done = subprocess.run([*PROGRAM, "--config", str(config)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "agent.endpoint" in done.stderr


def test_a_signal_ends_a_poll(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A poll that a signal has interrupted goes on in pyzmq: a stop would wait for the next look at the policies."""
    monkeypatch.setattr(policy_server, "LOOK_EVERY_S", 30.0)
    path = tmp_path / "rlalloc.yaml"
    path.write_text(
        f"agent: {{endpoint: 'ipc://{tmp_path}/agent.sock'}}\npolicy: {{directory: {tmp_path}/policies}}\n"
    )
    kill = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGTERM))
    with contextlib.closing(ProcessSignals()) as signals:
        started_s = time.monotonic()
        kill.start()
        run(load_config(path), signals)
        kill.join()
        assert 0.5 < time.monotonic() - started_s < 10
