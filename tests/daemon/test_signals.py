"""A signal ends each wait of the daemon at once, however long that was to last."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import zmq

from rlalloc.observation import FEATURES, EncodedQuestion
from rlallocd.decisions.agent_client import AgentClient, AgentUnavailable
from rlallocd.process.signals import Signals, Stopping, Waiter

pytestmark = pytest.mark.timeout(60)
FOR_EVER_S = 3600.0


@pytest.fixture
def signals() -> Iterator[Signals]:
    signals = Signals()
    yield signals
    signals.close()


@pytest.fixture
def send_soon() -> Iterator[Callable[[signal.Signals], None]]:
    """Send a signal to this process while it waits."""
    timers: list[threading.Timer] = []

    def send(number: signal.Signals) -> None:
        timers.append(threading.Timer(0.2, os.kill, (os.getpid(), number)))
        timers[-1].start()

    yield send
    for timer in timers:
        timer.join()


SendSoon = Callable[[signal.Signals], None]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_wait_ends(signals: Signals, send_soon: SendSoon, number: signal.Signals) -> None:
    send_soon(number)
    assert not signals.wait(FOR_EVER_S)
    assert (signals.stop, signals.reload) == (number != signal.SIGHUP, number == signal.SIGHUP)


def test_one_that_came_before_the_wait_ends_it_too(signals: Signals) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    assert not signals.wait(FOR_EVER_S)
    assert not signals.wait(FOR_EVER_S)


def test_after_a_reload_the_next_wait_lasts(signals: Signals) -> None:
    os.kill(os.getpid(), signal.SIGHUP)
    signals.wait(FOR_EVER_S)
    reading, writing = os.pipe()
    timer = threading.Timer(0.2, os.write, (writing, b"x"))
    timer.start()
    assert signals.wait(FOR_EVER_S, reading)
    timer.join()
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize("connected", [False, True])
def test_a_stop_does_not_wait_for_the_agent(
    signals: Signals, send_soon: SendSoon, tmp_path: Path, *, connected: bool
) -> None:
    """Neither for one that is not there nor for one that does not answer."""
    endpoint = f"ipc://{tmp_path}/agent.sock"
    with zmq.Context() as context, context.socket(zmq.ROUTER) as silent:
        if connected:
            silent.bind(endpoint)
        client = AgentClient(endpoint, FOR_EVER_S, signals)
        send_soon(signal.SIGTERM)
        with pytest.raises(Stopping):
            client.decide([EncodedQuestion(np.zeros(len(FEATURES), dtype=np.float32), {})], sample=False)
        client.close()


def test_a_reload_does_not_end_a_question(signals: Signals, tmp_path: Path) -> None:
    client = AgentClient(f"ipc://{tmp_path}/agent.sock", 0.5, signals)
    os.kill(os.getpid(), signal.SIGHUP)
    with pytest.raises(AgentUnavailable):
        client.state()
    client.close()


def test_without_signals_a_wait_lasts_as_long_as_it_was_to(tmp_path: Path) -> None:
    assert not Waiter().wait(0.01)
