"""A promoted policy is taken up between two requests; a damaged one is not."""

import logging
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import zmq

from rlalloc.heuristics import SERVED_HEURISTICS, largest
from rlalloc.messages import AgentState, Decided, encode_message
from rlalloc.policy.policies import ACTOR_FILE, CURRENT, PolicyStore
from rlalloc.policy.policy_inputs import DEFAULT_INPUTS
from rlalloc_agent.actor import Actor
from rlalloc_agent.served_policy import load_shipped
from tests.agent.running_server import (
    Server,
    actor_that_shifts_by,
    add_version,
    ask,
    client,
    decide_request,
    exchange,
    observations,
    questions,
)


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait for what has to come; only failures take long."""
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.01)
    pytest.fail("it did not happen within a minute")


def version_in_service(socket: zmq.Socket[bytes]) -> str:
    state = ask(socket)
    assert isinstance(state, AgentState)
    return state.policy_version


def test_serves_the_shipped_policy_until_one_is_promoted(tmp_path: Path) -> None:
    with Server(tmp_path) as server, client(server.endpoint) as socket:
        assert version_in_service(socket) == load_shipped()[1].version
        version = add_version(server.policies, actor_that_shifts_by(1.0))
        assert version_in_service(socket) != version  # stored is not promoted
        server.policies.promote(version)
        wait_for(lambda: version_in_service(socket) == version)


def test_takes_up_promotions_while_serving_without_losing_a_request(tmp_path: Path) -> None:
    with Server(tmp_path) as server, client(server.endpoint) as socket:
        answered_by = set()
        batch = questions(1)
        for shift in (1.0, -1.0):
            version = add_version(server.policies, actor_that_shifts_by(shift))
            server.policies.promote(version)
            while version not in answered_by:
                reply = exchange(socket, encode_message(decide_request(batch)))
                assert isinstance(reply, Decided)
                answered_by.add(reply.policy_version)
                if reply.policy_version == version:
                    expected, _ = actor_that_shifts_by(shift).decide(observations(1), sample=False)
                    assert reply.answers[0].shares.gpu == pytest.approx(expected[0, 0], abs=1e-6)
        assert server.counters["policy_load_failed"] == 0


def test_a_damaged_version_leaves_the_old_one_in_service(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Server(tmp_path) as server, client(server.endpoint) as socket:
        good, bad = (add_version(server.policies, Actor()) for _ in range(2))
        server.policies.promote(good)
        wait_for(lambda: version_in_service(socket) == good)
        server.policies.promote(bad)
        (server.policies.path(bad) / ACTOR_FILE).write_bytes(b"no tensors")
        server.policies.promote(good)
        wait_for(lambda: version_in_service(socket) == good)
        with caplog.at_level(logging.ERROR):
            point_current_at(server, bad)
            wait_for(lambda: server.counters["policy_load_failed"] > 0)
        assert version_in_service(socket) == good
        assert f"policy {bad} cannot be served" in caplog.text
        assert f"promote another version; policy {good} answers instead" in caplog.text
        server.policies.promote(add_version(server.policies, Actor()))
        wait_for(lambda: version_in_service(socket) == "v000003")


@pytest.mark.parametrize("target", ["nowhere", "../../etc", "v999999"])
def test_a_link_to_no_version_is_survived(tmp_path: Path, target: str) -> None:
    with Server(tmp_path) as server, client(server.endpoint) as socket:
        server.policies.directory.mkdir(exist_ok=True)
        point_current_at(server, target)
        wait_for(lambda: server.counters["policy_load_failed"] > 0)
        assert version_in_service(socket) == load_shipped()[1].version


def test_starts_with_the_current_version(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        version = add_version(server.policies, Actor())
        server.policies.promote(version)
    again = Server(tmp_path)
    with again:
        assert again.policy.version == version


def test_a_version_that_reads_what_is_gone_is_replaced_by_the_shipped_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An upgrade removed a feature. The agent says so once in its log, and to whoever asks for its state."""
    policies = PolicyStore(tmp_path / "policies")
    version = add_version(policies, Actor(("moon_phase", *DEFAULT_INPUTS)))
    (policies.directory / CURRENT).symlink_to(version)
    with caplog.at_level(logging.ERROR), Server(tmp_path) as server, client(server.endpoint) as socket:
        server.policy.refresh()
        state = ask(socket)
        assert isinstance(exchange(socket, encode_message(decide_request(questions(1)))), Decided)
        assert isinstance(state, AgentState)
        shipped = load_shipped()[1].version
        assert (state.policy_version, state.counters["policy_load_failed"]) == (shipped, 1)
        assert f"policy {version} cannot be served" in state.problem
        assert "reads moon_phase" in state.problem
        assert [record.getMessage() for record in caplog.records] == [
            f"{state.problem}; policy {shipped} answers instead"
        ]
        server.policies.promote(add_version(server.policies, Actor()))
        wait_for(lambda: version_in_service(socket) == "v000002")
        again = ask(socket)
        assert isinstance(again, AgentState)
        assert again.problem == ""


def test_a_new_heuristic_leaves_a_promoted_version_in_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policies = PolicyStore(tmp_path / "policies")
    actor = actor_that_shifts_by(1.0)
    version = add_version(policies, actor)
    policies.promote(version)
    monkeypatch.setitem(SERVED_HEURISTICS, "largest", largest)
    with Server(tmp_path) as server, client(server.endpoint) as socket:
        batch = questions(1)
        assert "largest" in batch.heuristics
        reply = exchange(socket, encode_message(decide_request(batch)))
        assert isinstance(reply, Decided)
        assert reply.policy_version == version
        expected, _ = actor.decide(actor.inputs.rows(batch), sample=False)
        assert reply.answers[0].shares.gpu == pytest.approx(expected[0, 0], abs=1e-6)
        policies.promote(version)
        assert server.policy.problem == ""


def point_current_at(server: Server, target: str) -> None:
    """What promote() would refuse to do."""
    aside = server.policies.directory / ".aside"
    aside.symlink_to(target)
    aside.replace(server.policies.directory / CURRENT)
