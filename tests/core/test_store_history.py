"""Past jobs in the store: nothing twice, in the order of their ends, and as fast however many there are."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from rlalloc.past_job import Allotted, PastJob
from rlalloc.store import Store, UnreadableRow
from rlalloc.store.tables import PAST_JOBS
from tests.core.history.test_history_readers import PAST
from tests.core.test_store_growth import plans_of, steps_of
from tests.core.test_store_migrations import run_sql


def job(number: int, **different: object) -> PastJob:
    return msgspec.structs.replace(PAST, job_id=str(number), ended_s=2000.0 + number, **different)


def test_a_job_is_kept_as_it_was_read_and_only_once(url: str) -> None:
    store = Store(url)
    odd = job(8, name="naïve 😀 |'%s", limit_s=None, eligible_s=None, max_rss_mib=None, cpu_s_used=None)
    smaller = Allotted(nodes=1, cpus=4, gpus=2, mem_mib=1024.5, limit_s=7200, slowdown=1.7)
    ours = job(10, allotted=smaller, node_rss_mib=512.25)
    assert store.history.add([PAST, odd, PAST, ours]) == 3
    assert store.history.add([odd, job(9), msgspec.structs.replace(PAST, state="FAILED")]) == 1
    again = msgspec.structs.replace(PAST, submitted_s=1500.0, ended_s=3000.0)  # requeued: the same id
    assert store.history.add([again]) == 1
    assert list(store.history.past_jobs()) == [PAST, odd, job(9), ours, again]
    store.close()


def test_past_jobs_come_in_the_order_of_their_ends_page_by_page(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlalloc.store.past_jobs_access._ROWS_PER_QUERY", 3)
    store = Store(url)
    same_end = [msgspec.structs.replace(job(number), ended_s=5000.0) for number in range(20, 28)]
    jobs = [*(job(number) for number in range(10)), *same_end]
    store.history.add(jobs[::-1])
    found = list(store.history.past_jobs())
    assert [each.ended_s for each in found] == sorted(each.ended_s for each in jobs)
    assert {each.job_id for each in found} == {each.job_id for each in jobs}
    assert list(store.history.past_jobs(2003, 2006)) == jobs[3:6]
    store.close()


def test_every_index_serves_a_query(tmp_path: Path) -> None:
    """An index takes room in the store, and time with each job that is added."""
    store = Store(f"sqlite:///{tmp_path}/store.sqlite")
    store.history.add([PAST])

    def ask(_store: Store) -> None:
        store.history.add([PAST])
        list(store.history.past_jobs(0.0, 1e9))
        store.history.recent(9)
        store.history.has_ended(0.0, 1e9)
        store.history.drop_before(1e9, limit=9)

    steps = [f"{step} " for _, plan in plans_of(store, ask) for step in plan if "past_jobs" in step]
    assert {index.name for index in PAST_JOBS.indexes if any(f" INDEX {index.name} " in step for step in steps)} == {
        index.name for index in PAST_JOBS.indexes
    }
    assert not [step for step in steps if "INDEX" not in step and "PRIMARY KEY" not in step]
    store.close()


def test_the_latest_come_first(url: str) -> None:
    store = Store(url)
    store.history.add([job(1), job(3), job(2)])
    assert [each.job_id for each in store.history.recent(2)] == ["3", "2"]
    store.close()


def test_how_far_a_source_was_read_is_kept_with_the_jobs(url: str) -> None:
    store = Store(url)
    assert store.history.position("sacct") is None
    store.history.add([PAST], {"sacct": 1400.5, "other": 1.0})
    store.history.add([], {"sacct": 1500.0})
    assert (store.history.position("sacct"), store.history.position("other")) == (1500.0, 1.0)
    store.close()


def test_old_jobs_are_dropped_some_at_a_time(url: str) -> None:
    store = Store(url)
    store.history.add([job(number) for number in range(10)])
    assert [store.history.drop_before(2007, limit=5) for _ in range(3)] == [5, 2, 0]
    assert [each.job_id for each in store.history.past_jobs()] == ["7", "8", "9"]
    store.close()


def test_a_damaged_row_is_named(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.sqlite"
    store = Store(url)
    store.history.add([PAST])
    run_sql(url, "UPDATE past_jobs SET ended_s = 'soon'")
    with pytest.raises(UnreadableRow, match=r"past_jobs, id 1: .* delete the row"):
        store.history.recent(1)
    store.close()


@pytest.mark.parametrize(
    "fault", ["ended_s = 'soon'", "user = x'ff'", "allotted = '{'", "allotted = '{\"nodes\"\\:1}'"]
)
def test_a_damaged_row_is_left_out_counted_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    """The daemon reads on: one row is not to cost the site its estimates."""
    url = f"sqlite:///{tmp_path}/store.sqlite"
    store = Store(url, skip_unreadable=True)
    store.history.add([PAST, job(8), job(9)])
    run_sql(url, f"UPDATE past_jobs SET {fault} WHERE job_id IN ('7', '8')")
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            assert [each.job_id for each in store.history.past_jobs()] == ["9"]
            assert [each.job_id for each in store.history.recent(9)] == ["9"]
    assert store.unreadable == 2
    (record,) = caplog.records
    assert "skipped, and further rows with the same fault" in record.getMessage()
    store.close()


ASKED: dict[str, Callable[[Store], object]] = {
    "a page": lambda store: next(store.history.past_jobs(), None),
    "what ended lately": lambda store: list(store.history.past_jobs(2e6 - 60)),
    "adding": lambda store: store.history.add([job(-1), job(7)], {"sacct": 1.0}),
    "dropping": lambda store: store.history.drop_before(1e9, limit=50),
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, Store]]:
    """Histories of ten thousand jobs, and of 200 000; the last jobs ended at 2e6 s."""
    folder = tmp_path_factory.mktemp("histories")
    small, large = (Store(f"sqlite:///{folder}/{rows}.sqlite") for rows in (10_000, 200_000))
    for store, rows in ((small, 10_000), (large, 200_000)):
        store.history.add([PAST])
        run_sql(
            str(store._database._engine.url),
            "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < "
            f"{rows}) INSERT INTO past_jobs SELECT n + 1, 'j' || n, 'user' || n % 50, 1, 1, 2e6 + 10 * (n - {rows}), "
            "state, nodes, cpus, gpus, mem_mib, limit_s, eligible_s, account, partition, qos, 'name' || n % 100, "
            "'script' || n % 100, max_rss_mib, cpu_s_used, node_rss_mib, allotted, job_class "
            "FROM numbers, (SELECT * FROM past_jobs)",
        )
    yield small, large
    small.close()
    large.close()


@pytest.mark.parametrize("asked", ASKED)
def test_a_question_takes_as_many_steps_in_a_large_history(stores: tuple[Store, Store], asked: str) -> None:
    small, large = (steps_of(store, ASKED[asked]) for store in stores)
    assert large <= 1.5 * small + 5


@pytest.mark.parametrize("asked", ASKED)
def test_a_question_finds_its_rows_by_an_index(tmp_path: Path, asked: str) -> None:
    store = Store(f"sqlite:///{tmp_path}/store.sqlite")
    for statement, plan in plans_of(store, ASKED[asked]):
        if "past_jobs" in statement:
            assert not any(step.startswith("SCAN past_jobs") or "TEMP B-TREE" in step for step in plan), plan
    store.close()
