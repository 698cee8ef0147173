"""At its first start rlallocd reads the site's past from sacct, the latest days first, beside its cycles."""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from rlalloc.config import Config, HistorySection, StoreSection
from rlalloc.errors import StoreError
from rlalloc.history.earlier_reading import EARLIER, IMPORTED, earlier_reading, unread_s_at_start
from rlalloc.past_job import PastJob
from rlalloc.store import Store
from rlallocd.outcomes.earlier_jobs import BATCH, EarlierJobs
from rlallocd.outcomes.ended_job_collection import SETTLED_AFTER_S, EndedJobCollection, wait_s_after
from rlallocd.process.interval import Interval
from rlallocd.slurm import AnswerTooLong, EndedJobs, SlurmUnavailable
from slurm_testbed import wait_until
from tests.daemon.test_ended_job_collection import CONFIG, DAY_S, HOUR_S, NOW_S, job

PACE_S = CONFIG.daemon.outcomes_every_s


class Past:
    """A site with ended jobs. ``late`` and ``early`` are the spans that the two collections have asked for."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ended: list[PastJob] = []
        self.late: list[tuple[float, float]] = []
        self.early: list[tuple[float, float]] = []
        self.fails: Exception | None = None
        self.longest_s = 36500 * DAY_S
        self.store = store
        self.clock_s = 0.0
        self.worth = 0
        for module in ("ended_job_collection", "earlier_jobs"):
            monkeypatch.setattr(f"rlallocd.outcomes.{module}.Interval", lambda: Interval(clock=lambda: self.clock_s))
        self.start()

    def start(self) -> None:
        """As rlallocd does."""
        self.counters: Counter[str] = Counter()
        self.ended_jobs = EndedJobCollection(self.store, self.counters)
        self.earlier_jobs = EarlierJobs(self.store, self.counters, 0.0, apart=lambda run: run())

    def answer(self, asked: list[tuple[float, float]]) -> Callable[[float, float], EndedJobs]:
        def ask(since_s: float, until_s: float) -> EndedJobs:
            asked.append((since_s, until_s))
            if asked is self.early and self.fails is not None:
                raise self.fails
            if asked is self.early and until_s - since_s > self.longest_s:
                raise AnswerTooLong("sacct printed more than 8 MiB")
            return EndedJobs(tuple(job for job in self.ended if since_s <= job.ended_s <= until_s), until_s, 0)

        return ask

    def cycle(self, number: int = 1, config: Config = CONFIG, every_s: float = PACE_S) -> None:
        for _ in range(number):
            self.clock_s += every_s
            self.ended_jobs.collect(self.answer(self.late), config, self.now_s + SETTLED_AFTER_S)
            if self.ended_jobs.caught_up:
                self.worth += self.earlier_jobs.collect(self.answer(self.early), config, self.now_s + SETTLED_AFTER_S)

    @property
    def now_s(self) -> float:
        return NOW_S + self.clock_s

    @property
    def stored(self) -> set[str]:
        return {job.job_id for job in self.store.history.past_jobs()}


@pytest.fixture
def past(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Past]:
    store = Store(f"sqlite:///{tmp_path}/store.sqlite")
    yield Past(store, monkeypatch)
    store.close()


def days(number: int) -> Config:
    return Config(history=HistorySection(first_days=number))


def test_after_the_last_day_the_days_before_are_read_the_latest_first(
    past: Past, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rlallocd")
    past.ended = [job(number, NOW_S - number * DAY_S + 5 * HOUR_S) for number in range(1, 100)]
    past.cycle(300)
    assert past.stored == {str(number) for number in range(1, 91)}
    assert len(past.late) < 40  # some at the start, and then one in five minutes
    begins, ends = zip(*past.early, strict=True)
    assert list(begins[:-1]) == list(ends[1:])  # nothing is left out, nor asked for twice
    assert all(until_s - since_s <= DAY_S for since_s, until_s in past.early)
    assert len(past.early) < 100
    assert past.earlier_jobs.unread_s == 0
    assert 5 <= past.worth <= 8  # after 2, 4, 8, … days or so, and at the end
    first, last = (record.getMessage() for record in caplog.records)
    assert first.startswith("the site's past jobs are read from sacct in the background, read back to ")
    assert first.endswith(": 1 of 90 days")
    assert last.endswith(": 90 of 90 days")
    past.cycle(3000)
    assert len(past.early) < 100


def test_what_ends_meanwhile_is_not_missed(past: Past) -> None:
    for number in range(100):
        past.ended.append(job(number, past.now_s))
        past.cycle()
    assert len(past.early) > 40
    assert len(past.stored) > 85  # all but those of the last five minutes


def test_after_a_restart_it_goes_on_where_it_was(past: Past) -> None:
    past.ended = [job(number, NOW_S - number * DAY_S + 5 * HOUR_S) for number in range(1, 90)]
    past.cycle(40)
    asked = len(past.early)
    reached_s = past.store.history.position(EARLIER)
    past.start()
    past.cycle(60, days(20))
    assert past.early[asked][1] == reached_s
    assert past.stored == {str(number) for number in range(1, 21)}
    assert past.counters["past_jobs"] < 19


def test_where_sacct_fails_it_waits_longer_and_asks_for_less(past: Past, caplog: pytest.LogCaptureFixture) -> None:
    past.fails = SlurmUnavailable("sacct gave no answer in 120 s")
    past.cycle(12)
    assert past.counters["history_errors"] == 1
    assert "cannot read earlier past jobs, trying again in 600 s: sacct gave no answer" in caplog.text
    past.cycle(100)
    assert past.counters["history_errors"] == 3
    assert [until_s - since_s for since_s, until_s in past.early] == [HOUR_S, HOUR_S / 4, 600]
    past.fails = None
    past.cycle(200, days(20))
    assert past.earlier_jobs.unread_s == 0


def test_a_fault_of_ours_ends_the_cycle_but_not_each_one(past: Past) -> None:
    past.fails = ValueError("something odd")
    with pytest.raises(ValueError, match="something odd"):
        past.cycle(12)
    past.cycle(10)
    assert past.counters["history_errors"] == 1


def test_a_span_with_too_many_jobs_is_asked_for_in_parts(past: Past) -> None:
    past.longest_s = 5000
    past.ended = [job(number, NOW_S - 2 * DAY_S + number) for number in range(100)]
    past.cycle(150, days(3))
    assert len(past.stored) == 100
    assert past.counters["history_errors"] == 0


def test_a_long_answer_is_added_over_several_cycles(past: Past) -> None:
    past.ended = [job(number, NOW_S - DAY_S - 60) for number in range(2 * BATCH + 1)]
    while not past.early:
        past.cycle()
    found = []
    for _ in range(4):
        past.cycle()
        found.append(len(past.stored))
    assert found == [BATCH, 2 * BATCH, 2 * BATCH + 1, 2 * BATCH + 1]


def test_what_a_failing_store_did_not_take_is_added_later(past: Past, monkeypatch: pytest.MonkeyPatch) -> None:
    past.ended = [job(1, NOW_S - DAY_S - 60)]
    while not past.early:
        past.cycle()
    with monkeypatch.context() as broken:
        broken.setattr(past.store.history, "add", lambda *_: (_ for _ in ()).throw(StoreError("disk full")))
        with pytest.raises(StoreError):
            past.cycle(every_s=1)
    past.cycle(every_s=1)
    assert past.stored == {"1"}


def test_names_are_stored_as_the_site_wants_them(past: Past, tmp_path: Path) -> None:
    config = Config(history=HistorySection(pseudonymize=True, key_file=tmp_path / "key"))
    past.ended = [job(1, NOW_S - 20 * DAY_S)]
    past.cycle(60, config)
    (stored,) = past.store.history.past_jobs()
    assert stored.user.startswith("user-")


@pytest.mark.parametrize(
    ("config", "oldest_days"),
    [
        (days(0), 1),
        (days(1), 1),
        (days(30), 30),
        (Config(history=HistorySection(first_days=900), store=StoreSection(keep_history_days=90)), 90),
    ],
)
def test_as_many_days_are_read_as_the_site_wants(past: Past, config: Config, oldest_days: int) -> None:
    past.ended = [job(number, NOW_S - number * DAY_S + 5 * HOUR_S) for number in range(1, 120)]
    past.cycle(60 + 3 * oldest_days, config)
    assert past.stored == {str(number) for number in range(1, oldest_days + 1)}


def test_more_days_may_be_read_later(past: Past) -> None:
    past.ended = [job(number, NOW_S - number * DAY_S + 5 * HOUR_S) for number in range(1, 30)]
    past.cycle(20, days(0))
    past.cycle(60, days(10))
    assert len(past.stored) == 10


@pytest.mark.parametrize("imported_days", [0.5, 20.0])
def test_after_an_import_it_reads_back_to_where_that_ended(past: Past, imported_days: float) -> None:
    """The cycles read the last day only."""
    past.store.history.add([job(0, NOW_S - 50 * DAY_S)], {IMPORTED: NOW_S - imported_days * DAY_S})
    past.ended = [job(number, NOW_S - number * DAY_S + 5 * HOUR_S) for number in range(1, 60)]
    past.cycle(100)
    assert past.late[0][0] == pytest.approx(NOW_S - DAY_S, abs=60)
    assert past.early[-1][0] == NOW_S - (imported_days + 1) * DAY_S
    assert past.stored == {str(number) for number in range(int(imported_days) + 2)}


def test_an_import_of_long_ago_leaves_it_to_rlallocd(past: Past) -> None:
    past.store.history.add([], {IMPORTED: NOW_S - 200 * DAY_S})
    past.ended = [job(number, NOW_S - number * DAY_S + 5 * HOUR_S) for number in range(1, 20)]
    past.cycle(100)
    assert len(past.stored) == 19


def test_an_import_beside_it_counts_nothing_twice(past: Past) -> None:
    past.ended = [job(number, NOW_S - number * DAY_S + 5 * HOUR_S) for number in range(1, 20)]
    past.cycle(40)
    past.store.history.add(past.ended, {IMPORTED: past.now_s})
    past.cycle(60, days(20))
    assert len(list(past.store.history.past_jobs())) == 19
    assert past.earlier_jobs.unread_s == 0


def test_a_site_that_had_rlallocd_before_reads_nothing_older(past: Past) -> None:
    past.store.history.add([], {"rlallocd": NOW_S - 300})
    past.cycle(50)
    assert past.early == []
    assert earlier_reading(past.store.history, CONFIG, NOW_S) is None


def test_no_cycle_waits_for_sacct(past: Past) -> None:
    """The call is in a thread that also no stop waits for."""
    answers = threading.Event()
    threads: list[threading.Thread] = []
    past.earlier_jobs = EarlierJobs(past.store, past.counters, 0.0)
    answer = past.answer(past.early)

    def slow(since_s: float, until_s: float) -> EndedJobs:
        threads.append(threading.current_thread())
        answers.wait(60)
        return answer(since_s, until_s)

    past.ended = [job(1, NOW_S - DAY_S - 60)]
    past.store.history.add([], {"rlallocd": NOW_S, EARLIER: NOW_S - DAY_S})
    for _ in range(5):
        assert not past.earlier_jobs.collect(slow, CONFIG, NOW_S)
    wait_until(lambda: threads, what="the thread asks", timeout_s=60)
    assert (past.stored, len(threads), threads[0].daemon) == (set(), 1, True)
    answers.set()
    wait_until(lambda: past.earlier_jobs.collect(slow, CONFIG, NOW_S) or past.stored, what="added", timeout_s=60)
    assert past.stored == {"1"}


def test_how_far_it_is_in_words(past: Past) -> None:
    past.store.history.add([], {EARLIER: NOW_S - 41 * DAY_S})
    reading = earlier_reading(past.store.history, CONFIG, NOW_S)
    assert reading is not None
    assert reading.describe() == "read back to 5 Dec 2026: 41 of 90 days"
    assert reading.unread_s == pytest.approx(49 * DAY_S)
    assert msgspec.structs.asdict(CONFIG.history)["first_days"] == 90


def test_where_no_thread_can_be_started_it_tries_again_later(past: Past) -> None:
    past.ended = [job(1, NOW_S - DAY_S - 60)]
    started: list[bool] = []

    def start(run: Callable[[], None]) -> None:
        started.append(True)
        if len(started) == 1:
            raise RuntimeError("can't start new thread")
        run()

    past.earlier_jobs = EarlierJobs(past.store, past.counters, 0.0, apart=start)
    past.cycle(60)
    assert past.counters["history_errors"] == 1
    assert past.stored == {"1"}


def test_a_thread_that_ends_in_the_middle_is_no_answer(past: Past) -> None:
    def start(run: Callable[[], None]) -> None:
        with pytest.raises(SystemExit):
            run()

    past.fails = SystemExit()  # type: ignore[assignment]
    past.earlier_jobs = EarlierJobs(past.store, past.counters, 0.0, apart=start)
    past.store.history.add([], {"rlallocd": NOW_S, EARLIER: NOW_S - DAY_S})
    with pytest.raises(RuntimeError, match="was ended"):
        past.cycle(10)
    assert past.store.history.position(EARLIER) == NOW_S - DAY_S


def test_a_store_that_fails_at_the_end_takes_no_estimates_away(past: Past, monkeypatch: pytest.MonkeyPatch) -> None:
    past.ended = [job(1, NOW_S - DAY_S - 60)]
    while not past.early:
        past.cycle(config=days(2))
    position = past.store.history.position
    for _ in range(60):
        worth = past.worth
        with monkeypatch.context() as broken:
            broken.setattr(
                past.store.history, "position", lambda name: _fail() if name == EARLIER else position(name)
            )
            with suppress(StoreError):
                past.cycle(config=days(2))
        past.cycle(config=days(2))
    assert worth == past.worth == 1
    assert past.earlier_jobs.unread_s == 0


def _fail() -> float:
    raise StoreError("the database is locked")


def test_no_estimates_are_made_anew_for_what_only_a_model_takes(past: Past) -> None:
    past.cycle(40, days(180))
    while past.earlier_jobs.unread_s > 89 * DAY_S:
        past.cycle(1, days(180))
    worth = past.worth
    assert worth >= 5
    past.cycle(300, days(180))
    assert (past.earlier_jobs.unread_s, past.worth) == (0, worth)


def test_an_import_beside_it_that_ends_the_reading_is_taken_up(past: Past) -> None:
    past.cycle(40)
    worth = past.worth
    past.store.history.add([], {IMPORTED: past.now_s})
    past.cycle(40)
    assert past.worth == worth + 1


def test_an_answer_waits_for_the_key_of_the_pseudonyms(past: Past, tmp_path: Path) -> None:
    config = Config(history=HistorySection(pseudonymize=True, key_file=tmp_path / "missing" / "key", first_days=2))
    past.store.history.add([], {"rlallocd": NOW_S, EARLIER: NOW_S - DAY_S})
    past.ended = [job(1, NOW_S - DAY_S - 60)]
    ask = past.answer(past.early)
    for _ in range(3):
        past.earlier_jobs.collect(ask, config, NOW_S)
        past.clock_s += 60
    assert (past.stored, past.counters["history_errors"]) == (set(), 1)
    (tmp_path / "missing").mkdir()
    past.clock_s += 600
    past.earlier_jobs.collect(ask, config, NOW_S)
    assert (len(past.stored), len(past.early)) == (1, 1)


def test_failures_without_end_are_waited_for_no_longer_than_an_hour() -> None:
    assert [wait_s_after(failures, 300.0) for failures in (1, 2, 5000)] == [600.0, 1200.0, 3600.0]


def test_what_is_unread_is_known_before_the_first_answer(past: Past) -> None:
    history = past.store.history
    assert unread_s_at_start(history, days(30), NOW_S) == 30 * DAY_S
    past.store.history.add([], {"rlallocd": NOW_S})
    assert unread_s_at_start(history, days(30), NOW_S) == 0  # it ran an earlier version
    past.store.history.add([], {EARLIER: NOW_S - 20 * DAY_S})
    assert unread_s_at_start(history, days(30), NOW_S) == 10 * DAY_S
