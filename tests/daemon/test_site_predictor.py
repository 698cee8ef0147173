"""The site's predictor learns from past jobs as the store gets them."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from rlalloc.past_job import PastJob
from rlalloc.run_time import RunTimeEstimate
from rlalloc.run_times import given_answers
from rlalloc.run_times.job_facts import JobFacts
from rlalloc.run_times.recent_runs import FEATURES
from rlalloc.run_times.run_time_model import Offsets, RunTimeModel
from rlalloc.store import Store
from rlalloc.usage.trimming_rules import TrimmingSection
from rlallocd.knowledge import kept_answers, site_predictor
from rlallocd.knowledge.kept_answers import KeptAnswers
from rlallocd.knowledge.site_predictor import SitePredictor

NOW_S = 1_000_000.0


def past(number: int, run_s: float, ended_s: float = NOW_S - 100.0, user: str = "alice") -> PastJob:
    return PastJob(
        job_id=str(number),
        user=user,
        submitted_s=ended_s - run_s - 10.0,
        started_s=ended_s - run_s,
        ended_s=ended_s,
        state="COMPLETED",
        nodes=1,
        cpus=8,
        gpus=4,
        limit_s=36_000.0,
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(f"sqlite:///{tmp_path}/store.sqlite")
    yield store
    store.close()


def estimates(predictor: SitePredictor, jobs: Sequence[JobFacts]) -> Sequence[RunTimeEstimate | None]:
    """What the predictor says after it has looked for what is new."""
    return predictor.estimate(jobs, NOW_S) if predictor.learn(NOW_S) else [None] * len(jobs)


def test_like_jobs_answer_and_before_any_ended_nothing_is_known(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_predictor, "_READ_EVERY_S", 0.0)
    predictor = SitePredictor(store, tmp_path / "run_times")
    facts = past(99, 1.0)
    assert estimates(predictor, [facts]) == [None]
    store.history.add([past(number, 500.0) for number in range(3)])
    (known,) = estimates(predictor, [facts])
    assert known is not None
    assert known.median_s == pytest.approx(500.0)
    assert "of this user" in known.source
    # Some that ended in the same second, and some that ended later.
    store.history.add([past(3, 900.0), *(past(number, 900.0, NOW_S - 50.0) for number in range(4, 9))])
    (known,) = estimates(predictor, [facts])
    assert known is not None
    assert known.median_s == pytest.approx(900.0)
    assert known.source.startswith("9 ")


def test_what_ended_long_ago_is_not_read(store: Store, tmp_path: Path) -> None:
    store.history.add([past(number, 500.0, NOW_S - site_predictor.PAST_S - 1.0) for number in range(3)])
    assert estimates(SitePredictor(store, tmp_path / "run_times"), [past(99, 1.0)]) == [None]


def test_a_long_history_is_read_over_several_looks(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading all of it at once would hold up a cycle."""
    monkeypatch.setattr(site_predictor, "MOST_A_LOOK", 4)
    store.history.add([past(number, 500.0, NOW_S - 100.0 + number // 3) for number in range(10)])
    predictor = SitePredictor(store, tmp_path / "run_times")
    facts = past(99, 1.0)
    looks = [
        (known.source.split()[0], predictor.all_read)
        for _ in range(4)
        for known in estimates(predictor, [facts])
        if known
    ]
    assert looks == [("4", False), ("8", False), ("10", True), ("10", True)]


def test_a_job_that_ends_in_the_future_hides_none(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_predictor, "_READ_EVERY_S", 0.0)
    predictor = SitePredictor(store, tmp_path / "run_times")
    facts = past(99, 1.0)
    store.history.add([past(0, 900.0, NOW_S + 86_400.0)])
    assert estimates(predictor, [facts]) == [None]
    store.history.add([past(number, 500.0) for number in range(1, 4)])
    (known,) = estimates(predictor, [facts])
    assert known is not None
    assert known.source.startswith("3 ")


def test_reading_again_takes_nothing_away(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each day all is read again: until that is done, the estimates are not those of the oldest jobs."""
    monkeypatch.setattr(site_predictor, "MOST_A_LOOK", 4)
    monkeypatch.setattr(site_predictor, "_READ_EVERY_S", 0.0)
    store.history.add([past(number, 500.0, NOW_S - 100.0 + number) for number in range(10)])
    predictor = SitePredictor(store, tmp_path / "run_times")
    facts = past(99, 1.0)
    for _ in range(4):
        estimates(predictor, [facts])
    store.history.add([past(10, 500.0, NOW_S - 1000.0)])  # imported: it ended before those
    predictor._begun.expire()
    usage = predictor.usage
    sources = []
    for _ in range(3):
        assert predictor.usage is usage
        sources += [known.source.split()[0] for known in estimates(predictor, [facts]) if known]
        predictor.runs("8", facts, NOW_S)
    assert sources == ["10", "10", "11"]
    predictor.runs("8", facts, NOW_S)
    features = predictor._known.predictor.recent.features([facts], NOW_S)
    assert features[0][FEATURES.index("running")] == 1


def test_older_jobs_that_come_later_are_taken_up_without_a_day_s_wait(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As rlallocd reads them from sacct after its first start; until they are known, nothing is forgotten."""
    monkeypatch.setattr(site_predictor, "MOST_A_LOOK", 4)
    store.history.add([past(number, 500.0) for number in range(3)])
    predictor = SitePredictor(store, tmp_path / "run_times")
    facts = past(99, 1.0)
    known = [source for _ in range(2) for source in estimates(predictor, [facts])]
    assert not predictor.knows_older(NOW_S)
    store.history.add([past(number, 500.0, NOW_S - 1000.0) for number in range(3, 9)])
    predictor.begin_again()
    looks = []
    for _ in range(5):
        looks.append(predictor.knows_older(NOW_S))
        known += predictor.estimate([facts], NOW_S)
    assert looks == [False, False, True, False, False]
    assert [each.source.split()[0] for each in known if each] == ["3", "3", "3", "3", "9", "9", "9"]


def test_older_jobs_are_not_forgotten_where_no_model_can_be_looked_for(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And new jobs have their estimates meanwhile."""
    store.history.add([past(number, 500.0) for number in range(3)])
    predictor = SitePredictor(store, tmp_path / "run_times")
    estimates(predictor, [])
    store.history.add([past(number, 500.0, NOW_S - 1000.0) for number in range(3, 9)])
    predictor.begin_again()
    with monkeypatch.context() as broken:
        broken.setattr(site_predictor, "newest_model", lambda _directory: (_ for _ in ()).throw(OSError("I/O error")))
        for _ in range(2):
            with pytest.raises(OSError, match="I/O error"):
                predictor.knows_older(NOW_S)
            assert predictor.learn(NOW_S)
    assert [predictor.knows_older(NOW_S) for _ in range(3)] == [False, True, False]
    (known,) = predictor.estimate([past(99, 1.0)], NOW_S)
    assert known.source.startswith("9 ")


class AlwaysFourMinutes(RunTimeModel):
    """A model that says 256 s of each job, between 128 and 512 s."""

    def __init__(self) -> None:
        super().__init__({}, Offsets())

    def raw(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        return np.tile([7.0, 8.0, 9.0], (len(features), 1))


def test_what_a_model_is_off_by_is_learned_and_kept_when_all_is_read_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_predictor, "_READ_EVERY_S", 0.0)
    monkeypatch.setattr(site_predictor, "newest_model", lambda _directory: AlwaysFourMinutes())
    predictor = SitePredictor(store, tmp_path / "run_times")
    jobs = [past(number, 8192.0, NOW_S - 100.0 + number) for number in range(20)]
    new = msgspec.structs.replace(jobs[0], submitted_s=NOW_S)

    def median_s() -> float:
        known = estimates(predictor, [new])[0]
        assert known is not None
        return known.median_s

    assert median_s() == 256.0
    store.history.add(jobs)
    assert median_s() == 256.0  # those were asked about by nobody
    later = [past(number, 8192.0, NOW_S - 70.0 + number) for number in range(20, 40)]
    estimates(predictor, later)
    store.history.add(later)
    learned_s = median_s()
    assert learned_s > 1024.0
    predictor._begun.expire()
    assert median_s() == pytest.approx(learned_s)


class Restarts:
    """A predictor that has learned that jobs run much longer than its model says, and its successors."""

    def __init__(self, store: Store, directory: Path) -> None:
        self.store, self.directory = store, directory
        self.file = directory / kept_answers.FILE
        self.before = self.started()
        estimates(self.before, [])
        self.answered = [past(number, 8192.0, NOW_S - 70.0 + number) for number in range(40)]
        estimates(self.before, self.answered)
        store.history.add(self.answered[:30])
        estimates(self.before, [])
        self.before.keep()

    def started(self, *, pseudonyms: bool = False) -> SitePredictor:
        kept = KeptAnswers(self.file, pseudonyms=pseudonyms)
        return SitePredictor(self.store, self.directory / "run_times", kept=kept)

    @property
    def new(self) -> JobFacts:
        return msgspec.structs.replace(self.answered[0], submitted_s=NOW_S)

    def answer(self, predictor: SitePredictor) -> RunTimeEstimate:
        (known,) = estimates(predictor, [self.new])
        assert known is not None
        return known


@pytest.fixture
def restarts(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Restarts:
    monkeypatch.setattr(site_predictor, "_READ_EVERY_S", 0.0)
    monkeypatch.setattr(site_predictor, "newest_model", lambda _directory: AlwaysFourMinutes())
    return Restarts(store, tmp_path)


def test_after_a_restart_the_quantiles_are_those_without_one(restarts: Restarts, store: Store) -> None:
    """Also those learned from jobs that were answered before it, and ended afterwards."""
    after = restarts.started()
    assert restarts.answer(after) == restarts.answer(restarts.before)
    assert restarts.answer(after).median_s > 1024.0
    assert restarts.file.stat().st_mode & 0o777 == 0o600
    estimates(after, restarts.answered)  # the queue is seen anew
    store.history.add(restarts.answered[30:])
    learned = restarts.answer(restarts.before)
    assert restarts.answer(after) == learned
    after._begun.expire()
    assert restarts.answer(after) == learned


def test_an_end_in_the_future_does_not_stop_the_learning(restarts: Restarts, store: Store) -> None:
    """Such an end is left by a clock that was ahead for a while."""
    ahead = past(100, 256.0, time.time() + 1e8)
    estimates(restarts.before, [ahead])
    restarts.before._known.predictor.ended(ahead)
    before = restarts.before._known.predictor.given.mix.table()[1].copy()
    store.history.add(restarts.answered[30:])
    estimates(restarts.before, [])
    assert not np.array_equal(restarts.before._known.predictor.given.mix.table()[1], before)


def test_what_is_kept_is_written_rarely(restarts: Restarts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    restarts.file.unlink()
    restarts.answer(restarts.before)
    assert not restarts.file.exists()
    monkeypatch.setattr(kept_answers, "WRITE_EVERY_S", 0.0)
    restarts.answer(restarts.before)
    assert restarts.file.exists()
    restarts.file.unlink()
    estimates(restarts.before, [])
    restarts.answer(restarts.before)
    restarts.before.keep()
    assert restarts.file.exists()
    restarts.file.unlink()
    restarts.before.keep()
    assert not restarts.file.exists(), "nothing has changed since"


@pytest.mark.parametrize(
    "harm", ["empty", "cut", "a bit", "older", "other fields", "not finite", "link", "pseudonyms"]
)
def test_what_was_kept_and_cannot_be_used_is_named_once_and_left_out(
    restarts: Restarts, harm: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    content = restarts.file.read_bytes()
    changed = {"empty": b"", "cut": content[:-1], "a bit": content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]}
    other_fields = msgspec.msgpack.encode({"version": 0})
    changed["other fields"] = given_answers._digest(other_fields) + other_fields
    given = restarts.before._known.predictor.given
    next(iter(given._answers.values()))[0] = np.nan
    changed["not finite"] = given.packed(pseudonyms=False)
    restarts.file.write_bytes(changed.get(harm, content))
    if harm == "older":
        monkeypatch.setattr(given_answers, "COLUMNS", ("median",))
    if harm == "link":
        restarts.file.rename(restarts.directory / "elsewhere")
        restarts.file.symlink_to(restarts.directory / "elsewhere")
    after = restarts.started(pseudonyms=harm == "pseudonyms")
    assert restarts.answer(after).median_s == 256.0
    (line,) = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
    assert str(restarts.file) in line


def test_a_file_that_cannot_be_written_harms_nothing(restarts: Restarts, caplog: pytest.LogCaptureFixture) -> None:
    restarts.answer(restarts.before)
    restarts.file.unlink()
    (restarts.directory / f"{kept_answers.FILE}.new").mkdir()
    restarts.before.keep()
    assert "cannot keep what was learned" in caplog.text
    assert restarts.answer(restarts.started()).median_s == 256.0


def test_a_task_of_an_array_runs_until_it_leaves_the_queue(store: Store, tmp_path: Path) -> None:
    """Its past job has another id (7_1): nothing else would say that it ended."""
    predictor = SitePredictor(store, tmp_path / "run_times")
    facts = past(99, 1.0)
    estimates(predictor, [])
    for _ in range(2):
        predictor.runs("8", facts, NOW_S)
    recent = predictor._known.predictor.recent
    place = FEATURES.index("running")
    assert recent.features([facts], NOW_S)[0][place] == 1
    predictor.still_running({"9"})
    assert recent.features([facts], NOW_S)[0][place] == 0


def test_what_past_jobs_used_is_learned_with_them(store: Store, tmp_path: Path) -> None:
    store.history.add(
        [
            msgspec.structs.replace(
                past(number, 500.0, NOW_S - 90_000 + 600 * number), mem_mib=9000.0, node_rss_mib=1000.0
            )
            for number in range(120)
        ]
    )
    predictor = SitePredictor(store, tmp_path / "run_times", rules=TrimmingSection(exceeded=0.02))
    facts = msgspec.structs.replace(past(999, 1.0), mem_mib=9000.0)
    estimates(predictor, [facts])
    floor = predictor.usage.floors(facts).node_mib
    assert floor is not None
    assert floor.amount == pytest.approx(1100.0)
