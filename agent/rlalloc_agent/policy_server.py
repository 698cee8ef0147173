"""The policy server: a ZeroMQ ROUTER socket around an RequestHandler.

Frames in: [identity, request]. Frames out: [identity, reply]. Anything else gets a Refused with the code
``malformed``; a frame over MAX_MESSAGE_BYTES costs its sender the connection, which ZeroMQ sees to. With keys
(CURVE), who has none of those that may ask gets no connection and no answer at all.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

import zmq
from zmq.auth.thread import ThreadAuthenticator

from rlalloc.curve_keys import AgentKeys
from rlalloc.messages import MAX_MESSAGE_BYTES, encode_message
from rlalloc_agent.request_handler import RequestHandler
from rlalloc_agent.served_policy import ServedPolicy
from rlalloc_agent.socket_file import SocketFile

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 0.2
"""How often the policy store is looked at."""
_REQUEST_FRAMES: Final = 2
_DOMAIN: Final = "rlalloc"


class _Clients:
    """Says to ZeroMQ's authenticator who may ask."""

    def __init__(self, keys: AgentKeys) -> None:
        self._keys = keys

    def callback(self, _domain: str, key: bytes) -> bool:
        """Whether the owner of this public key (Z85 text) gets a connection."""
        return key in self._keys.clients


class PolicyServer:
    """Serves ``policy`` at ``endpoint`` from construction until closed. Raises zmq.ZMQError if it cannot bind."""

    def __init__(
        self,
        endpoint: str,
        policy: ServedPolicy,
        counters: Counter[str],
        seed: int | None = None,
        keys: AgentKeys | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._file = SocketFile(endpoint)
        self._policy = policy
        self._counters = counters
        self._handler = RequestHandler(policy, counters, seed)
        self._context = zmq.Context()
        self._socket: zmq.Socket[bytes] = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
        self._authenticator: ThreadAuthenticator | None = None
        try:
            if keys is not None:
                self._admit_only(keys)
            self._file.bind(self._socket, endpoint)
        except zmq.ZMQError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket; clients see a silence and reconnect by themselves when somebody binds again."""
        self._file.remove()
        self._socket.close()
        if self._authenticator is not None:
            self._authenticator.stop()
        self._context.term()

    def serve(
        self, should_stop: Callable[[], bool], each_look: Callable[[], None] = lambda: None, wake: int | None = None
    ) -> None:
        """Answer requests until ``should_stop``. ``each_look`` is called about every LOOK_EVERY_S.

        ``wake`` is a file descriptor that becomes readable when ``should_stop`` may have changed. Without one a stop
        is noticed at the next look: pyzmq goes on with a poll that a signal has interrupted.
        """
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        if wake is not None:
            poller.register(wake, zmq.POLLIN)
        next_look = 0.0
        while not should_stop():
            if time.monotonic() >= next_look:
                self._policy.refresh()
                self._bind_again_if_lost()
                each_look()
                next_look = time.monotonic() + LOOK_EVERY_S
            ready = dict(poller.poll(int(LOOK_EVERY_S * 1000)))
            if wake in ready:
                next_look = 0.0
            if self._socket in ready:
                self._answer_one()

    def _admit_only(self, keys: AgentKeys) -> None:
        """Let only the owners of these keys connect."""
        self._authenticator = ThreadAuthenticator(self._context)
        self._authenticator.start()
        self._authenticator.configure_curve_callback(_DOMAIN, _Clients(keys))
        self._socket.zap_domain = _DOMAIN.encode()
        self._socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)  # without the authenticator nobody is let in
        self._socket.curve_publickey, self._socket.curve_secretkey = keys.public, keys.secret
        self._socket.curve_server = True

    def _bind_again_if_lost(self) -> None:
        """Make the socket's file anew where somebody has deleted or replaced it; who is connected notices nothing."""
        if not self._file.is_lost:
            return
        try:
            self._file.bind(self._socket, self._endpoint)
        except zmq.ZMQError as err:  # its folder is gone, too, or another agent runs: the next look tries again
            if not self._counters["rebinds_failed"]:
                log.warning("%s was deleted or replaced, and cannot be made again: %s", self._file.path, err)
            self._counters["rebinds_failed"] += 1
        else:
            log.warning("%s was deleted or replaced: it is there again", self._file.path)
            self._counters["rebinds_failed"] = 0

    def _answer_one(self) -> None:
        frames = self._receive()
        if not frames:
            return
        if len(frames) == _REQUEST_FRAMES:
            reply = self._handler.answer(frames[1])
        else:
            reply = self._handler.refuse("", "malformed", "send one frame a request, on a DEALER socket")
        try:
            self._socket.send_multipart([frames[0], encode_message(reply)], flags=zmq.NOBLOCK)
        except zmq.ZMQError as err:
            self._counters["replies_lost"] += 1
            log.warning("a reply could not be sent: %s", err, extra={"counter": "replies_lost"})

    def _receive(self) -> list[bytes]:
        """Return the frames of the next message, without those after the third, or nothing if there is none."""
        frames: list[bytes] = []
        try:
            more = True
            while more:
                frame = self._socket.recv(flags=zmq.NOBLOCK)
                more = bool(self._socket.getsockopt(zmq.RCVMORE))
                if len(frames) <= _REQUEST_FRAMES:
                    frames.append(frame)
        except zmq.Again:
            return []
        return frames
