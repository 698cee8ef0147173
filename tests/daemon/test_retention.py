"""Which decisions are deleted for their age, and what goes with them."""

import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from rlalloc.config import StoreSection
from rlalloc.store import Decision, Store
from rlallocd.outcomes.retention import BATCH, Retention
from tests.core.history.test_history_readers import PAST
from tests.core.test_store import APPLICATION, DECISION, OUTCOME

DAY_S = 86400.0
NOW_S = DECISION.decided_s
SECTION = StoreSection(keep_days=100, keep_experience_days=200)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with a past job of ten days ago."""
    store = Store(f"sqlite:///{tmp_path}/store.sqlite")
    store.history.add([msgspec.structs.replace(PAST, job_id="10", ended_s=NOW_S - 10 * DAY_S)])
    yield store
    store.close()


def decided(store: Store, job_id: int, days_ago: float) -> Decision:
    """A decision of that age in the store, one job each."""
    decision = msgspec.structs.replace(DECISION, id=f"d{job_id}", job_id=job_id, decided_s=NOW_S - days_ago * DAY_S)
    store.add_decisions([decision])
    return decision


def kept(store: Store, queued: set[tuple[int, int]] = frozenset()) -> set[int]:  # type: ignore[assignment]
    """The jobs that still have a decision after one round."""
    Retention(store, Counter()).drop_old(SECTION, NOW_S, queued)
    return {decision.job_id for decision in store.recent_decisions(1000)}


def test_what_is_older_than_the_site_keeps_it_goes(store: Store) -> None:
    for job_id, days_ago in enumerate((1, 99, 101, 300)):
        decided(store, job_id, days_ago)
    assert kept(store) == {0, 1}


def test_the_journal_and_the_outcome_go_with_it(store: Store) -> None:
    decision = decided(store, 1, 300)
    (application,) = store.journal([msgspec.structs.replace(APPLICATION, decision_id=decision.id)])
    store.set_applications([application], "begun", NOW_S, "")
    store.add_outcomes([msgspec.structs.replace(OUTCOME, decision_id=decision.id)])
    assert kept(store) == set()
    assert store.applications(decision.id) == ()
    assert store.outcome(decision.id) is None


def test_experience_stays_longer(store: Store) -> None:
    for job_id, days_ago, reward in ((1, 150, -1.0), (2, 150, None), (3, 250, -1.0)):
        decision = decided(store, job_id, days_ago)
        store.add_outcomes([msgspec.structs.replace(OUTCOME, decision_id=decision.id, reward=reward)])
    assert kept(store) == {1}


def test_what_is_open_stays(store: Store) -> None:
    """A job still in the queue, and one with an update that is not finished."""
    for job_id in (1, 2, 3):
        decided(store, job_id, 300)
    store.journal([msgspec.structs.replace(APPLICATION, decision_id="d2", job_id=2)])
    assert kept(store, queued={(1, 1000)}) == {1, 2}


def test_a_batch_at_a_time_and_then_from_the_first_again(store: Store) -> None:
    for job_id in range(2 * BATCH):
        decided(store, job_id, 300 - job_id / 1000)
    queued = {(job_id, 1000) for job_id in range(BATCH)}
    counters: Counter[str] = Counter()
    retention = Retention(store, counters)
    dropped = []
    for still_queued in (queued, queued, queued, set[tuple[int, int]]()):
        retention.drop_old(SECTION, NOW_S, still_queued)
        dropped.append(counters["dropped_decisions"])
    assert dropped == [0, BATCH, BATCH, 2 * BATCH]


def test_past_jobs_go_when_the_site_no_longer_keeps_them(store: Store) -> None:
    section = msgspec.structs.replace(SECTION, keep_history_days=300)
    ends_s = [NOW_S - days_ago * DAY_S for days_ago in range(303, 298, -1)]
    store.history.add([msgspec.structs.replace(PAST, job_id=str(end_s), ended_s=end_s) for end_s in ends_s])
    counters: Counter[str] = Counter()
    Retention(store, counters).drop_old(section, NOW_S, set())
    assert [job.ended_s for job in store.history.past_jobs()] == [*ends_s[3:], NOW_S - 10 * DAY_S]
    assert counters["dropped_past_jobs"] == 3


def test_a_clock_that_is_years_ahead_deletes_nothing(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """Also if the store already has decisions of that time. The log says so once."""
    for job_id, days_ago in enumerate((300, 200, 1)):
        decided(store, job_id, days_ago)
    ahead_s = 5 * 365 * DAY_S
    decided(store, 3, -ahead_s / DAY_S)
    counters: Counter[str] = Counter()
    retention = Retention(store, counters)
    for seconds in (0.0, 60.0, 6 * DAY_S):
        retention.drop_old(SECTION, NOW_S + ahead_s + seconds, set())
    assert counters.total() == 0
    assert {decision.job_id for decision in store.recent_decisions(1000)} == {0, 1, 2, 3}
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "is this machine's clock right?" in record.message
    retention.drop_old(SECTION, NOW_S, set())
    assert counters["dropped_decisions"] == 2


def test_a_site_at_rest_with_nothing_old_is_not_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Store(f"sqlite:///{tmp_path}/store.sqlite")
    decided(store, 1, 50)
    Retention(store, Counter()).drop_old(SECTION, NOW_S, set())
    assert not caplog.records
    assert [decision.job_id for decision in store.recent_decisions(10)] == [1]
    store.close()
