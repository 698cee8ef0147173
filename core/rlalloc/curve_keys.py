"""The keys by which daemon and agent on different hosts know each other: ZeroMQ's CURVE, in pyzmq's own files.

``agent.keys`` is a directory. On the host of slurmctld it has ``daemon.key_secret`` (the daemon's own pair) and
``agent.key`` (the agent's public key). On the agent's host it has ``agent.key_secret`` and, in ``clients/``, the
public keys of those who may ask. An agent behind a socket with an owner and a mode needs none of them.
"""

import os
import stat
from pathlib import Path
from typing import Final, Literal

import msgspec
import zmq
from zmq.auth.certs import create_certificates, load_certificate

from rlalloc.config import AgentSection
from rlalloc.errors import ConfigError

Side = Literal["daemon", "agent"]
CLIENTS: Final = "clients"
ENDING_OF_PAIRS: Final = ".key_secret"
PUBLIC: Final = ".key"
_TCP: Final = "tcp://"


class DaemonKeys(msgspec.Struct, frozen=True):
    """The daemon's own pair, and the only agent that it asks. Z85 text."""

    public: bytes
    secret: bytes
    agent: bytes

    def secure(self, socket: "zmq.Socket[bytes]") -> None:
        """Let a socket that is not connected yet reach only this agent."""
        socket.curve_publickey, socket.curve_secretkey, socket.curve_serverkey = self.public, self.secret, self.agent


class AgentKeys(msgspec.Struct, frozen=True):
    """The agent's own pair, and the public keys that it answers. Z85 text."""

    public: bytes
    secret: bytes
    clients: frozenset[bytes]


def daemon_keys(section: AgentSection) -> DaemonKeys | None:
    """Those of this host's daemon; None where the endpoint needs none. Raises ConfigError."""
    if not section.endpoint.startswith(_TCP):
        return None
    if section.endpoint.startswith((f"{_TCP}*:", f"{_TCP}0.0.0.0:", f"{_TCP}[::]:")):
        raise ConfigError(
            f"agent.endpoint: found {section.endpoint!r}, which names no host to ask: write the agent's host"
        )
    public, secret = _pair(section.keys, "daemon")
    return DaemonKeys(public, secret, _public(section.keys / f"agent{PUBLIC}", "agent"))


def agent_keys(section: AgentSection) -> AgentKeys | None:
    """Those of this host's agent; None where the endpoint needs none. Raises ConfigError."""
    if not section.endpoint.startswith(_TCP):
        return None
    public, secret = _pair(section.keys, "agent")
    directory = section.keys / CLIENTS
    clients = frozenset(_public(path, "daemon") for path in sorted(directory.glob(f"*{PUBLIC}")))
    if not clients:
        raise ConfigError(_missing(directory / f"daemon{PUBLIC}", "daemon", "nobody may ask this agent"))
    return AgentKeys(public, secret, clients)


def check_keys(section: AgentSection) -> None:
    """That this host has what its daemon or its agent needs. Raises ConfigError, of the side that has a pair here."""
    if section.endpoint.startswith(_TCP):
        check = agent_keys if (section.keys / f"agent{ENDING_OF_PAIRS}").exists() else daemon_keys
        check(section)


def make_pair(directory: Path, side: Side) -> tuple[Path, Path]:
    """Make the key pair of one side; return the files of its public and its secret key. Raises ConfigError, OSError.

    The secret one is for its owner alone from the first moment. Existing files are never replaced.
    """
    public, secret = directory / f"{side}{PUBLIC}", directory / f"{side}{ENDING_OF_PAIRS}"
    for path in (public, secret):
        if path.exists():
            raise ConfigError(
                f"{path} exists, and is not replaced, so that daemon and agent can still talk. To change keys, move "
                "it away first (docs/admin/two-hosts.md)"
            )
    aside = directory / f".{side}.{os.getpid()}"
    aside.mkdir(mode=0o700)
    before = os.umask(0o077)
    try:
        made = [Path(name) for name in create_certificates(aside, side)]
        made[0].chmod(0o644)
        for path in made:
            path.rename(directory / path.name)
    finally:
        os.umask(before)
        for path in aside.iterdir():
            path.unlink()
        aside.rmdir()
    return public, secret


def _pair(directory: Path, side: Side) -> tuple[bytes, bytes]:
    path = directory / f"{side}{ENDING_OF_PAIRS}"
    try:
        mode = path.stat().st_mode
        public, secret = load_certificate(path)
    except PermissionError as err:
        raise ConfigError(f"{path}: {err.strerror}; its owner has to be the user of the service") from err
    except OSError as err:
        raise ConfigError(_missing(path, side, "TCP needs keys: whoever reaches a port could ask the agent")) from err
    except ValueError as err:
        raise ConfigError(f"{path}: not a key: move it away, then run rlalloc keys make {side}") from err
    if stat.S_IMODE(mode) & 0o077:
        raise ConfigError(
            f"{path}: others than its owner may read it: chmod 600, and make a new key if somebody has read it"
        )
    return _usable(path, public), _usable(path, secret)


def _public(path: Path, side: Side) -> bytes:
    try:
        return _usable(path, load_certificate(path)[0])
    except PermissionError as err:
        raise ConfigError(f"{path}: {err.strerror}; run chmod 644 {path}") from err
    except OSError as err:
        raise ConfigError(_missing(path, side, "it is the other host's public key")) from err
    except ValueError as err:
        raise ConfigError(f"{path}: not a key: copy it again from the other host") from err


def _usable(path: Path, key: bytes | None) -> bytes:
    """A key of 40 characters of Z85: else ZeroMQ would say no more than "invalid argument"."""
    try:
        if key is not None:
            zmq.curve_public(key)
            return key
    except (zmq.ZMQError, ValueError):
        pass
    raise ConfigError(f"{path}: not a CURVE key: copy it again, or make a new pair by rlalloc keys make")


def _missing(path: Path, side: Side, why: str) -> str:
    where = "here" if path.suffix == ENDING_OF_PAIRS else f"on the {side}'s host, copy {side}{PUBLIC} here"
    return f"agent.keys: there is no {path} ({why}): run rlalloc keys make {side} {where} (docs/admin/two-hosts.md)"
