"""Daemon and agent on different hosts: over TCP, with ZeroMQ's CURVE, on real sockets."""

import os
import socket as sockets
import stat
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest
import zmq
from typer.testing import CliRunner

from rlalloc.config import AgentSection
from rlalloc.curve_keys import CLIENTS, DaemonKeys, agent_keys, check_keys, daemon_keys, make_pair
from rlalloc.errors import ConfigError
from rlalloc.messages import Ask, encode_message
from rlalloc_agent.policy_server import PolicyServer
from rlalloc_agent.served_policy import ServedPolicy
from rlalloc_cli.main import app
from rlallocd.decisions.agent_client import AgentClient, AgentUnavailable

SILENCE_S = 1.0
"""So long is an answer waited for that must not come."""
PATIENCE_S = 60.0


def free_port() -> int:
    with closing(sockets.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Hosts:
    """Two hosts: each with its directory of keys, exchanged as the page says."""

    def __init__(self, folder: Path) -> None:
        endpoint = f"tcp://127.0.0.1:{free_port()}"
        self.daemon = AgentSection(endpoint=endpoint, keys=folder / "controller", deadline_s=PATIENCE_S)
        self.agent = AgentSection(endpoint=endpoint, keys=folder / "agent-host")
        (self.agent.keys / CLIENTS).mkdir(parents=True)
        self.daemon.keys.mkdir()
        make_pair(self.daemon.keys, "daemon")
        make_pair(self.agent.keys, "agent")
        self.exchange()

    def exchange(self) -> None:
        (self.agent.keys / CLIENTS / "daemon.key").write_bytes((self.daemon.keys / "daemon.key").read_bytes())
        (self.daemon.keys / "agent.key").write_bytes((self.agent.keys / "agent.key").read_bytes())


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    return Hosts(tmp_path)


@pytest.fixture
def endpoint(hosts: Hosts, tmp_path: Path) -> Iterator[str]:
    """A running agent."""
    counters: Counter[str] = Counter()
    policy = ServedPolicy(tmp_path / "policies", counters)
    server = PolicyServer(hosts.agent.endpoint, policy, counters, keys=agent_keys(hosts.agent))
    stop = threading.Event()
    thread = threading.Thread(target=server.serve, args=(stop.is_set,))
    thread.start()
    yield hosts.agent.endpoint
    stop.set()
    thread.join()
    server.close()


@contextmanager
def stranger(endpoint: str, secure: Callable[["zmq.Socket[bytes]"], object]) -> Iterator["zmq.Socket[bytes]"]:
    """A client of somebody's own making, which queues its question until it is connected."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        secure(socket)
        socket.connect(endpoint)
        yield socket


def answers(socket: "zmq.Socket[bytes]") -> bool:
    socket.send(encode_message(Ask(request_id="x")))
    return bool(socket.poll(int(SILENCE_S * 1000)))


def test_the_daemon_whose_key_is_known_is_answered(hosts: Hosts, endpoint: str) -> None:
    assert endpoint == hosts.daemon.endpoint
    with closing(AgentClient.of(hosts.daemon)) as client:
        assert client.state().policy_version


def test_nobody_else_is_answered(hosts: Hosts, endpoint: str, tmp_path: Path) -> None:
    """Neither without a key, nor with a key that the agent does not know, nor by plain ZeroMQ."""
    known = daemon_keys(hosts.daemon)
    assert known is not None
    public, secret = zmq.curve_keypair()
    with stranger(endpoint, DaemonKeys(public, secret, known.agent).secure) as socket:
        assert not answers(socket)
    with stranger(endpoint, lambda _socket: None) as socket:
        assert not answers(socket)

    def plain(socket: "zmq.Socket[bytes]") -> None:
        socket.plain_username, socket.plain_password = b"rlallocd", b"guess"

    with stranger(endpoint, plain) as socket:
        assert not answers(socket)
    with stranger(endpoint, known.secure) as socket:  # the same client is answered with the right keys
        assert answers(socket)


def test_another_agents_key_is_a_dead_agent(hosts: Hosts, endpoint: str) -> None:
    """Somebody who has taken the agent's address is told nothing: jobs run as submitted."""
    public, _ = zmq.curve_keypair()
    known = daemon_keys(hosts.daemon)
    assert known is not None
    client = AgentClient(endpoint, SILENCE_S, keys=msgspec.structs.replace(known, agent=public))
    with closing(client), pytest.raises(AgentUnavailable, match="cannot reach the agent"):
        client.state()


def test_a_reload_takes_up_keys_and_refuses_tcp_without(hosts: Hosts, endpoint: str, tmp_path: Path) -> None:
    with closing(AgentClient(f"ipc://{tmp_path}/nobody.sock", SILENCE_S)) as client:
        with pytest.raises(ConfigError, match="rlalloc keys make daemon"):
            client.reconfigure(msgspec.structs.replace(hosts.daemon, keys=tmp_path / "none"))
        client.reconfigure(hosts.daemon)
        assert client.state().policy_version
    assert endpoint


def test_two_keys_are_answered_while_one_replaces_the_other(hosts: Hosts, tmp_path: Path) -> None:
    """As the page says how to change keys."""
    new = tmp_path / "new"
    new.mkdir()
    make_pair(new, "daemon")
    (hosts.agent.keys / CLIENTS / "daemon-2027.key").write_bytes((new / "daemon.key").read_bytes())
    allowed = agent_keys(hosts.agent)
    assert allowed is not None
    assert len(allowed.clients) == 2


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda keys: (keys / "daemon.key_secret").unlink(), "rlalloc keys make daemon here"),
        (lambda keys: (keys / "agent.key").unlink(), "rlalloc keys make agent on the agent's host, copy agent.key"),
        (lambda keys: (keys / "daemon.key_secret").chmod(0o640), "others than its owner may read it: chmod 600"),
        (lambda keys: (keys / "agent.key").write_text("hello"), "not a key: copy it again"),
        (lambda keys: (keys / "agent.key").write_text('public-key = "short"'), "not a CURVE key"),
    ],
)
def test_a_daemon_without_its_keys_is_refused(hosts: Hosts, spoil: Callable[[Path], object], says: str) -> None:
    spoil(hosts.daemon.keys)
    with pytest.raises(ConfigError, match=says):
        daemon_keys(hosts.daemon)
    with pytest.raises(ConfigError, match=says):
        check_keys(hosts.daemon)


def test_an_agent_without_its_keys_is_refused(hosts: Hosts) -> None:
    (hosts.agent.keys / CLIENTS / "daemon.key").unlink()
    with pytest.raises(
        ConfigError, match=r"nobody may ask this agent.*rlalloc keys make daemon on the daemon's host"
    ):
        agent_keys(hosts.agent)
    (hosts.agent.keys / "agent.key_secret").unlink()
    with pytest.raises(ConfigError, match="rlalloc keys make agent here"):
        agent_keys(hosts.agent)


@pytest.mark.parametrize("program", ["rlallocd.daemon_app", "rlalloc_agent.agent_app"])
def test_neither_program_starts_on_tcp_without_keys(tmp_path: Path, program: str) -> None:
    """Exit status 2, which systemd does not try again."""
    config = tmp_path / "rlalloc.yaml"
    config.write_text(
        f"runtime_directory: {tmp_path}\n"
        f"agent: {{endpoint: 'tcp://127.0.0.1:{free_port()}', keys: {tmp_path}/none}}\n"
    )
    command = [sys.executable, "-c", f"from {program} import main; main()", "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2
    assert "TCP needs keys" in done.stderr


def test_a_daemon_needs_a_host_to_ask(hosts: Hosts) -> None:
    with pytest.raises(ConfigError, match="names no host to ask"):
        daemon_keys(msgspec.structs.replace(hosts.daemon, endpoint="tcp://*:9374"))


def test_sockets_with_a_mode_need_no_keys(tmp_path: Path) -> None:
    section = AgentSection(keys=tmp_path / "none")
    check_keys(section)
    assert (daemon_keys(section), agent_keys(section)) == (None, None)


def test_the_command_makes_shows_and_never_replaces_keys(tmp_path: Path) -> None:
    """The secret one is for its owner alone, whatever the umask; `config check` says which one is missing."""
    config = tmp_path / "rlalloc.yaml"
    config.write_text(f"agent: {{endpoint: 'tcp://127.0.0.1:9374', keys: {tmp_path}/keys}}\n")
    options = ("--config", str(config))
    run = CliRunner().invoke
    missing = run(app, ["config", "check", "--offline", *options])
    assert missing.exit_code == 2
    assert "rlalloc keys make daemon" in missing.output
    before = os.umask(0)
    try:
        made = run(app, ["keys", "make", "daemon", "--owner", "nobody" if os.geteuid() == 0 else "", *options])
    finally:
        os.umask(before)
    assert made.exit_code == 0, made.output
    secret = tmp_path / "keys" / "daemon.key_secret"
    kept = secret.read_bytes()
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert kept.split(b'secret-key = "')[1].split(b'"')[0] not in made.output.encode()
    again = run(app, ["keys", "make", "daemon", "--owner", "nobody", *options])
    assert again.exit_code == 1
    assert "exists, and is not replaced" in again.output
    assert secret.read_bytes() == kept
    shown = run(app, ["keys", "show", *options])
    assert shown.exit_code == 1
    assert "daemon.key_secret  nobody  0600" in shown.output or os.geteuid() != 0
    assert "rlalloc keys make agent on the agent's host" in shown.output
    make_pair(tmp_path / "keys", "agent")
    (tmp_path / "keys" / "agent.key_secret").unlink()
    assert run(app, ["keys", "show", *options]).exit_code == 0
    assert run(app, ["config", "check", "--offline", *options]).exit_code == 0
