"""The policy server on a real socket: right answers, refusals that say why, and nothing that ends it."""

import contextlib
import socket as python_socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
import zmq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlalloc.heuristics import SERVED_HEURISTICS
from rlalloc.job import SHARES, Shares
from rlalloc.messages import (
    MAX_BATCH,
    MAX_MESSAGE_BYTES,
    AgentState,
    Ask,
    Decided,
    Refused,
    decode_reply,
    encode_message,
)
from rlalloc.observation import FEATURES
from rlalloc_agent.policy_server import PolicyServer
from rlalloc_agent.socket_file import SocketFile
from slurm_testbed.waiting import wait_until
from tests.agent.running_server import Server, ask, client, decide_request, exchange, questions

ANSWERS = len(SERVED_HEURISTICS) * SHARES
FUZZ = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("agent")) as running:
        yield running


@pytest.fixture
def socket(server: Server) -> Iterator[zmq.Socket[bytes]]:
    with client(server.endpoint) as connected:
        yield connected


def test_answers_a_batch_in_its_order(server: Server, socket: zmq.Socket[bytes]) -> None:
    batch = questions(3)
    batch.alternatives[1, -1] = (0.0, 0.5, 1.0, 0.2)
    request = decide_request(batch)
    reply = exchange(socket, encode_message(request))
    assert isinstance(reply, Decided)
    assert reply.request_id == request.request_id
    assert reply.policy_version == server.policy.version
    expected, _ = server.policy.actor.decide(batch, sample=False)
    answered = [msgspec.structs.astuple(answer.shares) for answer in reply.answers]
    assert np.array(answered) == pytest.approx(expected, abs=1e-6)


def test_the_mean_is_the_same_each_time_and_samples_differ(socket: zmq.Socket[bytes]) -> None:
    def answers(*, sample: bool) -> Any:
        reply = exchange(socket, encode_message(decide_request(questions(1), sample=sample)))
        assert isinstance(reply, Decided)
        return reply.answers

    assert answers(sample=False) == answers(sample=False)
    assert answers(sample=True) != answers(sample=True)


def test_a_full_batch_is_answered(socket: zmq.Socket[bytes]) -> None:
    reply = exchange(socket, encode_message(decide_request(questions(MAX_BATCH))))
    assert isinstance(reply, Decided)
    assert len(reply.answers) == MAX_BATCH


def test_tells_how_it_is(server: Server, socket: zmq.Socket[bytes]) -> None:
    exchange(socket, encode_message(decide_request(questions(2))))
    state = ask(socket)
    assert isinstance(state, AgentState)
    assert state.policy_version == server.policy.version
    assert state.counters["jobs_decided"] >= 2


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"feature_names": ("moon_phase", *FEATURES[1:])}, "inputs"),
        ({"heuristics": ("astrology", *tuple(SERVED_HEURISTICS)[1:])}, "inputs"),
        ({"deadline_s": 1.0}, "deadline"),
        ({"deadline_s": float("nan")}, "deadline"),
        ({"jobs": 0}, "batch"),
        ({"jobs": -1}, "batch"),
        ({"jobs": MAX_BATCH + 1}, "batch"),
        ({"jobs": 2}, "observation"),
        ({"features": b"\x00"}, "observation"),
        ({"features": np.full(len(FEATURES), np.nan, "<f4").tobytes()}, "observation"),
        ({"features": np.full(len(FEATURES), np.inf, "<f4").tobytes()}, "observation"),
        ({"features": np.full(len(FEATURES), 1e38, "<f4").tobytes()}, "observation"),
        ({"alternatives": b""}, "observation"),
        ({"alternatives": np.full(ANSWERS, np.nan, "<f4").tobytes()}, "observation"),
        ({"alternatives": np.full(ANSWERS, 1.1, "<f4").tobytes()}, "observation"),
        ({"alternatives": np.full(ANSWERS, -0.1, "<f4").tobytes()}, "observation"),
        ({"protocol": 3}, "malformed"),
    ],
)
def test_refuses_with_a_code_and_counts(
    server: Server, socket: zmq.Socket[bytes], changes: dict[str, object], code: str
) -> None:
    before = server.counters[f"refused_{code}"]
    request = decide_request(questions(1), **changes)
    reply = exchange(socket, encode_message(request))
    assert isinstance(reply, Refused)
    assert reply.code == code
    assert reply.message
    assert reply.request_id == ("" if code == "malformed" else request.request_id)
    assert server.counters[f"refused_{code}"] == before + 1


@FUZZ
@given(st.binary(max_size=400))
def test_random_bytes_are_refused(socket: zmq.Socket[bytes], data: bytes) -> None:
    assert isinstance(exchange(socket, data), Refused)


@FUZZ
@given(st.lists(st.binary(max_size=40), min_size=2, max_size=6))
def test_random_frames_are_refused(socket: zmq.Socket[bytes], frames: list[bytes]) -> None:
    assert isinstance(exchange(socket, *frames), Refused)


@FUZZ
@given(st.data())
def test_a_request_cut_or_bent_anywhere_is_answered(socket: zmq.Socket[bytes], data: st.DataObject) -> None:
    """Cut short: refused. A byte changed: refused, or still a request."""
    content = bytearray(encode_message(decide_request(questions(1))))
    place = data.draw(st.integers(0, len(content) - 1))
    assert isinstance(exchange(socket, bytes(content[:place])), Refused)
    content[place] ^= data.draw(st.integers(1, 255))
    assert isinstance(exchange(socket, bytes(content)), Refused | Decided | AgentState)


@FUZZ
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=10,
    )
)
def test_any_other_msgpack_is_refused(socket: zmq.Socket[bytes], value: object) -> None:
    assert isinstance(exchange(socket, msgspec.msgpack.encode(value)), Refused)


@FUZZ
@given(st.binary(min_size=4 * len(FEATURES), max_size=4 * len(FEATURES)))
def test_any_observation_gets_finite_shares_or_a_refusal(socket: zmq.Socket[bytes], raw: bytes) -> None:
    reply = exchange(socket, encode_message(decide_request(questions(1), features=raw)))
    if isinstance(reply, Decided):
        shares: Shares = reply.answers[0].shares
        assert all(0 <= share <= 1 for share in (shares.gpu, shares.cpu, shares.mem))
    else:
        assert isinstance(reply, Refused)


def test_a_huge_frame_costs_its_sender_the_connection_only(server: Server, socket: zmq.Socket[bytes]) -> None:
    with client(server.endpoint) as hostile:
        hostile.setsockopt(zmq.RCVTIMEO, 300)
        hostile.send(bytes(MAX_MESSAGE_BYTES + 1))
        with pytest.raises(zmq.Again):
            hostile.recv()
    assert isinstance(ask(socket), AgentState)


def test_deeply_nested_msgpack_is_refused(socket: zmq.Socket[bytes]) -> None:
    assert isinstance(exchange(socket, b"\x91" * 100_000), Refused)


def test_a_client_that_is_gone_costs_nothing(server: Server, socket: zmq.Socket[bytes]) -> None:
    for _ in range(20):
        with client(server.endpoint) as fleeting:
            fleeting.send(encode_message(Ask(request_id="x")))
    assert isinstance(ask(socket), AgentState)
    assert server.alive


def test_req_sockets_are_told_to_use_dealer(server: Server) -> None:
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.RCVTIMEO, 10_000)
        socket.connect(server.endpoint)
        socket.send_multipart([b"", encode_message(Ask(request_id="x"))])
        reply = decode_reply(socket.recv())
    assert isinstance(reply, Refused)
    assert "DEALER" in reply.message


def test_an_endpoint_that_cannot_be_bound_is_an_error(server: Server, tmp_path: Path) -> None:
    with pytest.raises(zmq.ZMQError):
        PolicyServer(f"ipc://{tmp_path}/no/such/folder/agent.sock", server.policy, server.counters)


def test_a_deleted_socket_is_made_again(tmp_path: Path) -> None:
    with Server(tmp_path) as server, client(server.endpoint) as connected:
        assert isinstance(ask(connected), AgentState)
        path = Path(server.endpoint.removeprefix("ipc://"))
        path.unlink()
        wait_until(path.exists, what="the socket of the agent")
        assert isinstance(ask(connected), AgentState)
        with client(server.endpoint) as newcomer:
            assert isinstance(ask(newcomer), AgentState)


def test_a_socket_whose_queue_is_full_is_not_taken(tmp_path: Path) -> None:
    """Of an agent that is stopped or has no time."""
    path = tmp_path / "agent.sock"
    with contextlib.ExitStack() as stack:
        family = python_socket.AF_UNIX
        listener, *waiting = (stack.enter_context(python_socket.socket(family)) for _ in range(9))
        listener.bind(str(path))
        listener.listen(0)
        for each in waiting:
            each.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                each.connect(str(path))
        with (
            zmq.Context() as context,
            context.socket(zmq.ROUTER) as bound,
            pytest.raises(zmq.ZMQError, match="another program listens"),
        ):
            SocketFile(f"ipc://{path}").bind(bound, f"ipc://{path}")


def test_a_second_agent_leaves_the_socket_of_the_first_alone(tmp_path: Path) -> None:
    """As somebody starts it by hand beside the unit; ZeroMQ would take the socket away without a word."""
    with Server(tmp_path) as server:
        with pytest.raises(zmq.ZMQError, match=r"another program listens at .*: stop it first"):
            PolicyServer(server.endpoint, server.policy, server.counters)
        with client(server.endpoint) as newcomer:
            assert isinstance(ask(newcomer), AgentState)
    assert not Path(server.endpoint.removeprefix("ipc://")).exists()


def test_what_lies_in_the_place_of_the_socket_is_named_or_replaced(server: Server, tmp_path: Path) -> None:
    """A directory cannot be replaced; the socket of an agent that was killed can, also while this one runs."""
    (tmp_path / "there").mkdir()
    with pytest.raises(zmq.ZMQError, match=r"there is a directory of \w+: remove it"):
        PolicyServer(f"ipc://{tmp_path}/there", server.policy, server.counters)
    path = Path(server.endpoint.removeprefix("ipc://"))
    path.unlink()
    with python_socket.socket(python_socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "dead"))
    (tmp_path / "dead").rename(path)

    def is_listened_at() -> bool:
        with python_socket.socket(python_socket.AF_UNIX) as probe:
            return probe.connect_ex(str(path)) == 0

    wait_until(is_listened_at, what="a socket of the agent")
    with client(server.endpoint) as newcomer:
        assert isinstance(ask(newcomer), AgentState)


def test_a_question_that_says_more_than_the_policy_reads_is_answered_the_same(socket: zmq.Socket[bytes]) -> None:
    """As a daemon sends it that is of a later rlalloc: with further features and heuristics, in another order."""
    batch = questions(2)
    later = batch._replace(
        feature_names=("moon_phase", *batch.feature_names[::-1]),
        features=np.column_stack((np.array([0.1, 0.9], np.float32), batch.features[:, ::-1])),
        heuristics=("astrology", *batch.heuristics),
        alternatives=np.concatenate((np.zeros((2, 1, SHARES), np.float32), batch.alternatives), axis=1),
    )
    one, other = (exchange(socket, encode_message(decide_request(each))) for each in (batch, later))
    assert isinstance(one, Decided)
    assert isinstance(other, Decided)
    assert one.answers == other.answers


def test_a_policy_whose_answers_are_not_finite_refuses(tmp_path: Path) -> None:
    with Server(tmp_path) as server, client(server.endpoint) as socket:
        with torch.no_grad():
            server.policy.actor.actor.residual.bias.fill_(float("nan"))
        reply = exchange(socket, encode_message(decide_request(questions(1))))
    assert isinstance(reply, Refused)
    assert (reply.code, "not finite" in reply.message) == ("observation", True)
