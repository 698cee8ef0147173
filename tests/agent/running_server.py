"""A policy server in a thread of this process, and a client for it."""

import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import numpy as np
import torch
import zmq

from rlalloc.heuristics import BASELINE_NAME, SERVED_HEURISTICS
from rlalloc.job import SHARES, Shares
from rlalloc.messages import Ask, Decide, Reply, decode_reply, encode_message
from rlalloc.observation import FEATURES, EncodedBatch, FloatArray
from rlalloc.policy.policies import ACTOR_FILE, Manifest, PolicyStore
from rlalloc.policy.policy_inputs import PolicyInputs
from rlalloc_agent.actor import Actor, actor_bytes
from rlalloc_agent.policy_server import PolicyServer
from rlalloc_agent.served_policy import ServedPolicy

FAR_AWAY_S = 4e9
"""A deadline in the year 2096."""


HEURISTIC = Shares(1.0, 0.5, 0.0, 0.7)


class Server:
    """A running server: its endpoint, counters and policy directory."""

    def __init__(self, directory: Path, seed: int = 0) -> None:
        self.endpoint = f"ipc://{directory}/agent.sock"
        self.policies = PolicyStore(directory / "policies")
        self.counters: Counter[str] = Counter()
        self.policy = ServedPolicy(self.policies.directory, self.counters)
        self._server = PolicyServer(self.endpoint, self.policy, self.counters, seed=seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._server.serve, args=(self._stop.is_set,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._server.close()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()


@contextmanager
def client(endpoint: str) -> Iterator[zmq.Socket[bytes]]:
    """A DEALER connected to the server; a reply that takes longer than a minute is an error."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVTIMEO, 60_000)
        socket.connect(endpoint)
        yield socket


def exchange(socket: zmq.Socket[bytes], *frames: bytes) -> Reply:
    socket.send_multipart(frames)
    return decode_reply(socket.recv())


def ask(socket: zmq.Socket[bytes]) -> Reply:
    return exchange(socket, encode_message(Ask(request_id=str(uuid.uuid4()))))


def decide_request(batch: EncodedBatch, /, **changes: object) -> Decide:
    fields: dict[str, Any] = {
        "request_id": str(uuid.uuid4()),
        "jobs": len(batch.features),
        "feature_names": batch.feature_names,
        "features": batch.features.astype("<f4").tobytes(),
        "heuristics": batch.heuristics,
        "alternatives": batch.alternatives.astype("<f4").tobytes(),
        "deadline_s": FAR_AWAY_S,
        "sample": False,
    }
    return Decide(**(fields | changes))


def questions(jobs: int, heuristic: Shares = HEURISTIC, seed: int = 0) -> EncodedBatch:
    """Random questions; ``heuristic`` is what the baseline answers to all of them."""
    generator = np.random.default_rng(seed)
    heuristics = tuple(SERVED_HEURISTICS)
    batch = EncodedBatch(
        FEATURES,
        generator.uniform(-1, 1, size=(jobs, len(FEATURES))).astype(np.float32),
        heuristics,
        generator.uniform(0, 1, size=(jobs, len(heuristics), SHARES)).astype(np.float32),
    )
    batch.alternatives[:, heuristics.index(BASELINE_NAME)] = msgspec.structs.astuple(heuristic)
    return batch


def observations(jobs: int, heuristic: Shares = HEURISTIC, seed: int = 0) -> FloatArray:
    """What an actor reads of them, (jobs, inputs)."""
    return PolicyInputs().rows(questions(jobs, heuristic, seed))


def actor_that_shifts_by(shift: float) -> Actor:
    """An actor whose mean is the heuristic's, moved before the tanh; easy to tell from others."""
    torch.manual_seed(0)
    actor = Actor()
    with torch.no_grad():
        actor.residual.bias.fill_(shift)
    return actor


def add_version(policies: PolicyStore, actor: Actor) -> str:
    manifest = Manifest(
        version="",
        parent=None,
        created_s=0.0,
        inputs=actor.inputs.names,
        hidden=actor.hidden,
        files={},
        training={},
        evaluation={},
    )
    return policies.add({ACTOR_FILE: actor_bytes(actor)}, manifest)
