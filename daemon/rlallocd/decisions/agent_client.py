"""Asking the agent: a DEALER socket, one batch at a time, never longer than a deadline."""

import contextlib
import time
import uuid
from collections.abc import Callable, Sequence
from typing import TypeVar

import zmq

from rlalloc.config import AgentSection
from rlalloc.curve_keys import DaemonKeys, daemon_keys
from rlalloc.errors import MessageError, RlallocError
from rlalloc.messages import AgentState, Ask, Decide, Decided, Refused, Request, decode_reply, encode_message
from rlalloc.observation import EncodedBatch, EncodedQuestion
from rlallocd.process.signals import Stopping, Waiter

Answer = TypeVar("Answer", Decided, AgentState)


class AgentUnavailable(RlallocError):
    """The agent did not answer in time, or refused; jobs go on as submitted."""


class AgentClient:
    """A connection to the agent at ``endpoint``. It survives the agent's restarts.

    With ``keys`` it speaks with the one agent that they name; any other is as good as dead. A question that waits for
    its answer raises Stopping as soon as ``waiter`` is told to stop.
    """

    def __init__(
        self, endpoint: str, deadline_s: float, waiter: Waiter | None = None, keys: DaemonKeys | None = None
    ) -> None:
        self._endpoint = endpoint
        self._keys = keys
        self._deadline_s = deadline_s
        self._waiter = waiter or Waiter()
        self.took: Callable[[float, bool], None] = lambda _seconds, _answered: None
        """Called after each question for shares, with its seconds and whether it was answered."""
        self._socket = _connected(endpoint, keys)

    @classmethod
    def of(cls, section: AgentSection, waiter: Waiter | None = None) -> "AgentClient":
        """The connection that a configuration asks for.

        Raises ConfigError where TCP has no keys, AgentUnavailable where there can be no socket.
        """
        return cls(section.endpoint, section.deadline_s, waiter, daemon_keys(section))

    def decide(self, questions: Sequence[EncodedQuestion], *, sample: bool) -> Decided:
        """Ask for the shares of a batch. Raises AgentUnavailable."""
        batch = EncodedBatch.of(questions)
        request = Decide(
            request_id=str(uuid.uuid4()),
            jobs=len(questions),
            feature_names=batch.feature_names,
            features=batch.features.astype("<f4").tobytes(),
            heuristics=batch.heuristics,
            alternatives=batch.alternatives.astype("<f4").tobytes(),
            deadline_s=time.time() + self._deadline_s,
            sample=sample,
        )
        asked_s, answered = time.monotonic(), False
        try:
            decided = self._ask(request, Decided)
            if len(decided.answers) != len(questions):
                raise AgentUnavailable(f"the agent returned {len(decided.answers)} answers for {len(questions)} jobs")
            answered = True
        finally:
            self.took(time.monotonic() - asked_s, answered)
        return decided

    def state(self) -> AgentState:
        """Ask the agent how it is. Raises AgentUnavailable."""
        return self._ask(Ask(request_id=str(uuid.uuid4())), AgentState)

    def reconfigure(self, section: AgentSection) -> None:
        """Take up another deadline, endpoint or keys for the next question.

        Raises ConfigError or AgentUnavailable, and keeps the old ones.
        """
        keys = daemon_keys(section)
        if (section.endpoint, keys) != (self._endpoint, self._keys):
            connected = _connected(section.endpoint, keys)
            self._socket.close()
            self._endpoint, self._keys, self._socket = section.endpoint, keys, connected
        self._deadline_s = section.deadline_s

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _ask(self, request: Request, kind: type[Answer]) -> Answer:
        """Raises AgentUnavailable, also where the socket itself fails, and Stopping."""
        try:
            return self._exchange(request, kind)
        except zmq.ZMQError as err:
            raise AgentUnavailable(f"the connection to the agent at {self._endpoint} failed: {err}") from err

    def _exchange(self, request: Request, kind: type[Answer]) -> Answer:
        deadline = time.monotonic() + self._deadline_s
        self._send(encode_message(request), deadline)
        while self._ready(zmq.POLLIN, deadline):
            try:
                reply = decode_reply(_only_frame(self._socket.recv_multipart(zmq.NOBLOCK)))
            except MessageError as err:
                raise AgentUnavailable(f"cannot read the agent's answer: {err}") from err
            if reply.request_id != request.request_id:
                continue  # an answer that came after its deadline
            if isinstance(reply, Refused):
                raise AgentUnavailable(f"the agent refused ({reply.code}): {reply.message}")
            if not isinstance(reply, kind):
                raise AgentUnavailable(f"the agent answered with a {type(reply).__name__}")
            return reply
        raise AgentUnavailable(
            f"the agent did not answer within {self._deadline_s:g} s; see systemctl status rlalloc-agent"
        )

    def _send(self, data: bytes, deadline: float) -> None:
        """Send as soon as there is an agent. Raises AgentUnavailable after the deadline, and Stopping."""
        while self._ready(zmq.POLLOUT, deadline):
            with contextlib.suppress(zmq.Again):  # it went away just now: a send that waits would wait for ever
                self._socket.send(data, zmq.NOBLOCK)
                return
        raise AgentUnavailable(
            f"cannot reach the agent within {self._deadline_s:g} s; see systemctl status rlalloc-agent"
        )

    def _ready(self, events: int, deadline: float) -> bool:
        """Whether the socket gets ready before the deadline, which is monotonic seconds. Raises Stopping."""
        while (left_s := deadline - time.monotonic()) > 0:
            if self._waiter.wait(left_s, self._socket, events):
                return True
            if self._waiter.stop:
                raise Stopping("told to stop while the agent was asked")
        return False


def _connected(endpoint: str, keys: DaemonKeys | None) -> "zmq.Socket[bytes]":
    """Raises AgentUnavailable where the system has no socket left, say."""
    socket: zmq.Socket[bytes] | None = None
    try:
        socket = zmq.Context.instance().socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.IMMEDIATE, 1)  # nothing is queued for an agent that is not there, or has other keys
        socket.setsockopt(zmq.RECONNECT_IVL, 50)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
        if keys is not None:
            keys.secure(socket)
        socket.connect(endpoint)
    except zmq.ZMQError as err:
        if socket is not None:
            socket.close()
        raise AgentUnavailable(f"cannot connect to the agent at {endpoint}: {err}") from err
    return socket


def _only_frame(frames: Sequence[bytes]) -> bytes:
    """The one frame that a reply has. Raises MessageError; all frames are read, so that the next reply is whole."""
    if len(frames) != 1:
        raise MessageError(f"a reply of {len(frames)} frames instead of one")
    return frames[0]
