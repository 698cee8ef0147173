"""What rlallocd makes of an agent's answers."""

import errno
import math
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import zmq

from rlalloc.config import AgentSection
from rlalloc.heuristics import SERVED_HEURISTICS
from rlalloc.job import Shares
from rlalloc.messages import Decided, PolicyAnswer, decode_request, encode_message
from rlalloc.observation import FEATURES, EncodedQuestion
from rlallocd.decisions.agent_client import AgentClient, AgentUnavailable

GOOD = PolicyAnswer(Shares(0.1, 0.2, 0.3, 0.4), -1.0)
QUESTION = EncodedQuestion(
    np.zeros(len(FEATURES), dtype=np.float32), dict.fromkeys(SERVED_HEURISTICS, Shares(0.5, 0.5, 0.5))
)


def answered_with(tmp_path: Path, *answers: PolicyAnswer) -> Decided:
    """Ask about one job an agent that gives these answers."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.setsockopt(zmq.LINGER, 0)
        router.bind(f"ipc://{tmp_path}/agent.sock")

        def answer() -> None:
            identity, data = router.recv_multipart()
            request = decode_request(data)
            reply = Decided(request_id=request.request_id, policy_version="v000001", answers=answers)
            router.send_multipart([identity, encode_message(reply)])

        agent = threading.Thread(target=answer)
        agent.start()
        client = AgentClient(f"ipc://{tmp_path}/agent.sock", 10.0)
        try:
            return client.decide([QUESTION], sample=False)
        finally:
            agent.join()
            client.close()


@pytest.mark.parametrize(
    "answer",
    [
        PolicyAnswer(Shares(math.nan, 0.2, 0.3), -1.0),
        PolicyAnswer(Shares(0.1, 0.2, 7.0), -1.0),
        PolicyAnswer(Shares(0.1, 0.2, 0.3), math.nan),
    ],
)
def test_numbers_that_mean_nothing_are_no_answer(tmp_path: Path, answer: PolicyAnswer) -> None:
    with pytest.raises(AgentUnavailable, match="cannot read the agent's answer: an answer has shares outside"):
        answered_with(tmp_path, answer)


def test_a_reply_of_several_frames_spoils_no_later_one(tmp_path: Path) -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.setsockopt(zmq.LINGER, 0)
        router.bind(f"ipc://{tmp_path}/agent.sock")

        def answer() -> None:
            for spare in ([b"spare", b"frames"], []):
                identity, data = router.recv_multipart()
                request = decode_request(data)
                reply = Decided(request_id=request.request_id, policy_version="v000001", answers=(GOOD,))
                router.send_multipart([identity, encode_message(reply), *spare])

        agent = threading.Thread(target=answer)
        agent.start()
        client = AgentClient(f"ipc://{tmp_path}/agent.sock", 10.0)
        try:
            with pytest.raises(AgentUnavailable, match="a reply of 3 frames instead of one"):
                client.decide([QUESTION], sample=False)
            assert client.decide([QUESTION], sample=False).answers == (GOOD,)
        finally:
            agent.join()
            client.close()


def test_each_job_has_an_answer(tmp_path: Path) -> None:
    assert answered_with(tmp_path, GOOD).answers == (GOOD,)
    with pytest.raises(AgentUnavailable, match="2 answers for 1 jobs"):
        answered_with(tmp_path, GOOD, GOOD)


def test_a_connection_that_cannot_be_made_is_an_agent_that_is_not_there(tmp_path: Path) -> None:
    """ZeroMQ's errors do not get further than here; a reload that fails keeps the connection that there is."""
    impossible = AgentSection(endpoint=f"ipc://{tmp_path}/{'x' * 200}", deadline_s=0.01)
    with pytest.raises(AgentUnavailable, match="cannot connect to the agent at ipc://"):
        AgentClient.of(impossible)
    client = AgentClient(f"ipc://{tmp_path}/agent.sock", 10.0)
    with pytest.raises(AgentUnavailable, match="File name too long"):
        client.reconfigure(impossible)
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.setsockopt(zmq.LINGER, 0)
        router.bind(f"ipc://{tmp_path}/agent.sock")

        def answer() -> None:
            identity, data = router.recv_multipart()
            reply = Decided(request_id=decode_request(data).request_id, policy_version="v000001", answers=(GOOD,))
            router.send_multipart([identity, encode_message(reply)])

        agent = threading.Thread(target=answer)
        agent.start()
        assert client.decide([QUESTION], sample=False).answers == (GOOD,)
        agent.join()
    client.close()


def test_a_connection_that_fails_meanwhile_is_an_agent_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> bool:
        raise zmq.ZMQError(errno.EMFILE)

    client = AgentClient(f"ipc://{tmp_path}/agent.sock", 10.0)
    monkeypatch.setattr(client, "_ready", fails)
    with pytest.raises(AgentUnavailable, match="failed: Too many open files"):
        client.state()
    client.close()


def test_an_agent_that_goes_away_before_the_question_is_sent_hangs_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the poll that says it is there and the send, which would else wait for the next agent, for ever."""
    client = AgentClient(f"ipc://{tmp_path}/agent.sock", 0.1)
    monkeypatch.setattr(client, "_ready", lambda _events, until: time.monotonic() < until)
    with pytest.raises(AgentUnavailable, match="cannot reach the agent within"):
        client.state()
    client.close()
