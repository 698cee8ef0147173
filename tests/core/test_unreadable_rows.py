"""A row that cannot be read is named; one alone stops nobody who goes on without it."""

import logging
from pathlib import Path

import msgspec
import pytest

from rlalloc.errors import StoreError, StoreUnfit
from rlalloc.store import Decision, Store, UnreadableRow
from rlalloc.store.database import check_url
from tests.core.test_store import APPLICATION, DECISION, OUTCOME
from tests.core.test_store_migrations import run_sql

GOOD = msgspec.structs.replace(DECISION, id="d2", job_id=8)
UNKNOWN_FIELD = '{"nodes":1,"gpus_per_node":4,"tasks_per_node":1,"cpus_per_task":2,"mem_mib_per_node":3,"tpus":1}'
FAULTS = {
    "unknown field": ("request", UNKNOWN_FIELD),
    "a number of too many digits": ("request", UNKNOWN_FIELD.replace('3,"tpus":1', "9" * 25)),
    "missing field": ("request", '{"nodes":1}'),
    "not a number": ("shares", "[NaN,0.5,0.5]"),
    "no JSON": ("bounds", "{"),
    "an unknown word": ("job_class", "guess"),
}


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store of two jobs that were decided and applied, and have ended."""
    url = f"sqlite:///{tmp_path}/store.sqlite"
    store = Store(url)
    store.add_decisions([DECISION, GOOD])
    store.journal([APPLICATION, msgspec.structs.replace(APPLICATION, decision_id="d2", job_id=8)])
    store.close()
    return url


@pytest.mark.parametrize("fault", FAULTS)
def test_it_is_named_with_what_to_do(url: str, fault: str) -> None:
    column, text = FAULTS[fault]
    run_sql(url, f"UPDATE decisions SET {column} = '{text.replace(':', chr(92) + ':')}' WHERE id = 'd1'")
    store = Store(url)
    with pytest.raises(UnreadableRow, match=rf"decisions, id d1: .*{column}.*: install that version"):
        store.decisions_of(7)
    assert store.decisions_of(8) == (GOOD,)
    store.close()


@pytest.mark.parametrize("fault", FAULTS)
def test_it_can_be_left_out_counted_and_logged_once(url: str, fault: str, caplog: pytest.LogCaptureFixture) -> None:
    column, text = FAULTS[fault]
    run_sql(url, f"UPDATE decisions SET {column} = '{text.replace(':', chr(92) + ':')}' WHERE id = 'd1'")
    store = Store(url, skip_unreadable=True)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            assert store.recent_decisions(10) == (GOOD,)
            assert set(store.histories(store.jobs_without_outcome(0).jobs)) == {(8, 1000)}
    assert store.unreadable == 1
    (record,) = caplog.records
    assert "skipped, and further rows with the same fault" in record.getMessage()
    store.close()


def test_a_job_is_left_out_whole(url: str) -> None:
    """Without one of its decisions, or what was done about it, nobody knows what the job is now."""
    again = msgspec.structs.replace(DECISION, id="d3", decided_s=DECISION.decided_s + 60)
    store = Store(url, skip_unreadable=True)
    store.add_decisions([again])
    run_sql(url, "UPDATE decisions SET request = '{}' WHERE id = 'd1'", "UPDATE applications SET original = '[]'")
    assert store.histories([(7, 1000), (8, 1000)]) == {}
    assert store.open_applications() == ()
    assert store.unreadable == 3
    store.close()


def test_experience_goes_without_it(url: str) -> None:
    store = Store(url, skip_unreadable=True)
    store.add_outcomes([OUTCOME, msgspec.structs.replace(OUTCOME, decision_id="d2")])
    run_sql(url, "UPDATE outcomes SET costs = '[]' WHERE decision_id = 'd1'")
    assert [experience.decision for experience in store.experience()] == [GOOD]
    assert store.unreadable == 1
    store.close()


def test_an_error_has_no_users_data_in_it(url: str) -> None:
    secret = msgspec.structs.replace(DECISION, job_name="merger-with-acme")
    store = Store(url)
    with pytest.raises(StoreError, match=r"store.sqlite failed: UNIQUE constraint .*check store.url") as caught:
        store.add_decisions([secret])
    assert "acme" not in str(caught.value)
    assert "INSERT" not in str(caught.value)
    store.close()


def test_a_url_that_nobody_can_use_is_named() -> None:
    for url in ("nonsense", "oracle://host/database"):
        with pytest.raises(StoreError, match=r"store.url cannot be used"):
            Store(url)
        with pytest.raises(StoreUnfit, match=r"store.url cannot be used"):
            check_url(url)


def test_a_url_is_checked_without_making_its_file(tmp_path: Path) -> None:
    check_url(f"sqlite:///{tmp_path}/store.sqlite")
    assert list(tmp_path.iterdir()) == []


def test_a_decision_that_is_read_is_the_one_that_was_written(url: str) -> None:
    store = Store(url, skip_unreadable=True)
    found: tuple[Decision, ...] = store.recent_decisions(10)
    assert (sorted(found, key=lambda one: one.id), store.unreadable) == ([DECISION, GOOD], 0)
    store.close()
