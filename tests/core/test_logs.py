"""What fails again and again fills no journal."""

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlalloc.system.logs import RepeatFilter


class _Hand:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> _Hand:
    return _Hand()


@pytest.fixture
def log(clock: _Hand, caplog: pytest.LogCaptureFixture) -> Iterator[logging.Logger]:
    caplog.handler.addFilter(repeats := RepeatFilter(600.0, clock))
    yield logging.getLogger("rlalloc.test_logs")
    caplog.handler.removeFilter(repeats)


def test_a_failure_of_each_cycle_is_one_line_in_ten_minutes(
    log: logging.Logger, clock: _Hand, caplog: pytest.LogCaptureFixture
) -> None:
    for clock.now_s in range(0, 1200, 5):
        log.error("the store failed: %s", "disk full")
    assert caplog.messages == [
        "the store failed: disk full",
        "the store failed: disk full (and 119 times since it was last logged)",
    ]


def test_another_job_is_another_message(log: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    for job_id in (1, 2, 1):
        log.warning("job %d keeps its nice", job_id)
    assert caplog.messages == ["job 1 keeps its nice", "job 2 keeps its nice"]


def test_what_is_no_fault_is_always_logged(log: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(3):
        log.info("let 1 deferred jobs go as they are")
    assert len(caplog.messages) == 3


def test_a_filter_remembers_only_so_many_messages(log: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    """A daemon runs for months."""
    for number in (*range(2000), 0, 1999):
        log.warning("message %d", number)
    assert len(caplog.messages) == 2001


def test_migrations_of_the_store_are_one_line(tmp_path: Path) -> None:
    """Alembic's own lines say nothing to an administrator."""
    code = (
        "import sys; from rlalloc.system.logs import configure_logging; from rlalloc.store import Store\n"
        "configure_logging('info', 'rlallocd'); Store(sys.argv[1]).close()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, f"sqlite:///{tmp_path}/store.sqlite"], capture_output=True, text=True, check=True
    )
    assert "bringing the store" in done.stderr
    assert "alembic" not in done.stderr
