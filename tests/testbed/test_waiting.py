"""How long the testbed waits."""

import os
import time

import pytest

from slurm_testbed import WaitTimedOutError, wait_until
from slurm_testbed.waiting import MOST_STRETCHED, stretched


def load(monkeypatch: pytest.MonkeyPatch, processes: float, cores: int | None) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (processes, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: cores)


@pytest.mark.parametrize(
    ("processes", "cores", "limit_s"),
    [(0.0, 2, 60), (2.0, 2, 60), (5.0, 2, 150), (5.0, None, 300), (900.0, 2, 60 * MOST_STRETCHED)],
)
def test_a_limit_grows_with_the_processes_that_wait_for_a_core(
    monkeypatch: pytest.MonkeyPatch, processes: float, cores: int | None, limit_s: float
) -> None:
    load(monkeypatch, processes, cores)
    assert stretched(60) == pytest.approx(limit_s)


def test_a_busy_machine_is_waited_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.monotonic()
    load(monkeypatch, 0.0, 1)
    with pytest.raises(WaitTimedOutError, match="for what never comes; last answer: False"):
        wait_until(lambda: False, what="what never comes", timeout_s=0.1)
    load(monkeypatch, 5.0, 1)
    late = time.monotonic() + 0.3
    assert wait_until(lambda: time.monotonic() > late, what="what is late", timeout_s=0.1)
    assert time.monotonic() - began < 60
