"""How long the jobs of a snapshot are expected to run: asked once a job, of its request, and kept."""

import logging
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from rlalloc.config import HistorySection
from rlalloc.errors import PolicyError
from rlalloc.history.pseudonyms import Pseudonyms
from rlalloc.past_job import PastJob
from rlalloc.run_time import RunTimeEstimate
from rlalloc.run_times.job_facts import JobFacts
from rlalloc.store import Store
from rlalloc.view import slowdown
from rlallocd.knowledge.expected_run_times import ExpectedRunTimes, named_by
from rlallocd.knowledge.known_run_times import LIMITS_ONLY
from rlallocd.slurm import JobRecord

from .test_redecision_rules import EIGHT, decision_for, pending_job

NOW_S = 10_000.0
HALF = msgspec.structs.replace(EIGHT, gpus_per_node=4, cpus_per_task=16)


class HalfAnHour:
    """Says half an hour, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[JobFacts] = []
        self.running: dict[str, float] = {}
        self.fails = False
        self.knows = True
        self.all_read = True
        self.older = False

    def knows_older(self, _now_s: float) -> bool:
        return self.older

    def learn(self, _now_s: float) -> bool:
        return True

    def estimate(self, jobs: Sequence[JobFacts], _now_s: float) -> Sequence[RunTimeEstimate | None]:
        if self.fails:
            raise PolicyError("the model is damaged")
        self.asked += jobs
        return [RunTimeEstimate(600.0, 1800.0, 3600.0, "a test") if self.knows else None for _ in jobs]

    def runs(self, job_id: str, _facts: JobFacts, started_s: float) -> None:
        self.running[job_id] = started_s

    def still_running(self, job_ids: Collection[str]) -> None:
        self.running = {job_id: started_s for job_id, started_s in self.running.items() if job_id in job_ids}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(f"sqlite:///{tmp_path}/store.sqlite")
    yield store
    store.close()


@pytest.fixture
def predictor() -> HalfAnHour:
    return HalfAnHour()


@pytest.fixture
def expected(predictor: HalfAnHour, store: Store) -> ExpectedRunTimes:
    return ExpectedRunTimes(predictor, store, Counter())


def running(job: JobRecord, **changes: object) -> JobRecord:
    return msgspec.structs.replace(job, state="RUNNING", started_s=9_000, **changes)


def resized(job: JobRecord, limit_s: int = 1200) -> JobRecord:
    return msgspec.structs.replace(job, gpus=HALF.gpus, cpus=HALF.cpus, time_limit_s=limit_s)


def test_each_job_is_asked_about_once_ours_or_not(predictor: HalfAnHour, expected: ExpectedRunTimes) -> None:
    ours, foreign = pending_job(7), msgspec.structs.replace(running(pending_job(8)), admin_comment="", user="bob")
    for _ in range(3):
        known = expected.of([ours, foreign], NOW_S)
    assert [facts.user for facts in predictor.asked] == [ours.user, "bob"]
    assert predictor.asked[0].limit_s == ours.time_limit_s
    assert predictor.asked[0].gpus == ours.gpus
    assert [known.expected_s(ours), known.as_requested(ours)] == [
        min(1800.0, ours.time_limit_s),
        RunTimeEstimate(600.0, 1800.0, 3600.0, "a test"),
    ]
    assert predictor.running == {"8": 9000.0}


def test_estimates_from_the_oldest_past_jobs_are_made_again(
    predictor: HalfAnHour, expected: ExpectedRunTimes
) -> None:
    """After a start, the past is read over several cycles."""
    predictor.all_read = False
    for _ in range(2):
        expected.of([pending_job(7)], NOW_S)
    predictor.all_read = True
    for _ in range(3):
        expected.of([pending_job(7)], NOW_S)
    assert len(predictor.asked) == 2


def test_all_are_estimated_again_when_older_past_jobs_are_known(
    predictor: HalfAnHour, expected: ExpectedRunTimes
) -> None:
    """As rlallocd reads them from sacct after its first start."""
    for older in (False, True):
        predictor.older = older
        expected.of([pending_job(7)], NOW_S)
        expected.take_up_older(NOW_S)
    expected.of([pending_job(7)], NOW_S)
    assert len(predictor.asked) == 2


def test_the_fingerprint_of_a_script_is_told(predictor: HalfAnHour, expected: ExpectedRunTimes) -> None:
    job = pending_job(7)
    expected.of([msgspec.structs.replace(job, admin_comment=f"{job.admin_comment};script=f00d")], NOW_S)
    assert [facts.script for facts in predictor.asked] == ["f00d"]


def test_what_has_left_the_queue_is_forgotten(predictor: HalfAnHour, expected: ExpectedRunTimes) -> None:
    expected.of([pending_job(7)], NOW_S)
    expected.of([], NOW_S)
    expected.of([pending_job(7), msgspec.structs.replace(pending_job(8), state="COMPLETED")], NOW_S)
    assert len(predictor.asked) == 2


def test_tasks_of_an_array_are_one_question(predictor: HalfAnHour, expected: ExpectedRunTimes) -> None:
    tasks = [msgspec.structs.replace(pending_job(number), is_array=True, array_job_id=7) for number in (7, 8, 9)]
    known = expected.of(tasks, NOW_S)
    assert len(predictor.asked) == 1
    assert all(known.as_requested(task) is not None for task in tasks)


def test_in_another_size_a_job_takes_longer_and_its_longer_limit_says_nothing(expected: ExpectedRunTimes) -> None:
    asked = msgspec.structs.replace(pending_job(7), time_limit_s=36_000)
    expected.of([asked], NOW_S)
    smaller = resized(asked, 80_000)
    known = expected.of([smaller], NOW_S)
    assert known.expected_s(smaller) == pytest.approx(1800.0 * slowdown(EIGHT, HALF))
    assert known.expected_s(smaller) > 3000
    assert known.as_requested(smaller) == RunTimeEstimate(600.0, 1800.0, 3600.0, "a test")
    begun = running(smaller)
    left_s = expected.of([begun], NOW_S).remaining_s(begun, NOW_S)
    assert known.expected_s(smaller) - 1000 < left_s < known.expected_s(smaller)


def test_of_a_job_that_we_resized_the_original_is_asked_about(
    predictor: HalfAnHour, expected: ExpectedRunTimes, store: Store
) -> None:
    """After a restart rlallocd sees it in its new size and with its new limit first."""
    asked = pending_job(7)
    store.add_decisions([decision_for(asked)])
    noted = msgspec.structs.replace(resized(asked, 9999), admin_comment=f"{asked.admin_comment} rlalloc-decision:x")
    known = expected.of([noted], NOW_S)
    (facts,) = predictor.asked
    request = decision_for(asked).request
    assert (facts.gpus, facts.cpus, facts.limit_s) == (request.gpus, request.cpus, request.time_limit_s)
    assert known.expected_s(noted) == pytest.approx(1800.0 * slowdown(EIGHT, HALF))


def test_where_the_predictor_fails_the_limit_is_known(
    predictor: HalfAnHour, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    counters: Counter[str] = Counter()
    expected = ExpectedRunTimes(predictor, store, counters)
    job = pending_job(7)
    predictor.fails = True
    with caplog.at_level(logging.WARNING):
        known = expected.of([job], NOW_S)
    assert "cannot estimate the run times of 1 jobs, only their limits are known: the model is damaged" in caplog.text
    assert counters["run_times_unknown"] == 1
    assert known == LIMITS_ONLY
    assert known.expected_s(job) == 0.44 * job.time_limit_s
    predictor.fails = False
    assert expected.of([job], NOW_S).as_requested(job) is not None


def test_as_long_as_nothing_was_learned_the_limit_is_known(predictor: HalfAnHour, expected: ExpectedRunTimes) -> None:
    predictor.knows = False
    job = pending_job(7)
    assert expected.of([job], NOW_S) == LIMITS_ONLY


def test_past_jobs_and_jobs_in_the_queue_have_the_same_names(
    predictor: HalfAnHour, store: Store, tmp_path: Path
) -> None:
    section = HistorySection(pseudonymize=True, key_file=tmp_path / "history.key")
    job = pending_job(7)
    ExpectedRunTimes(predictor, store, Counter(), named_by(section)).of([job], NOW_S)
    (facts,) = predictor.asked
    past = PastJob(
        job_id="7",
        user=job.user,
        account=job.account,
        name=job.name,
        submitted_s=0.0,
        started_s=0.0,
        ended_s=1.0,
        state="COMPLETED",
        nodes=1,
        cpus=1,
    )
    disguised = Pseudonyms(section.key_file).of(past)
    assert (facts.user, facts.account, facts.name) == (disguised.user, disguised.account, disguised.name)
    assert facts.user != job.user
    missing = HistorySection(pseudonymize=True, key_file=tmp_path / "nowhere" / "history.key")
    assert ExpectedRunTimes(predictor, store, Counter(), named_by(missing)).of([job], NOW_S) == LIMITS_ONLY


def test_running_tasks_of_an_array_are_announced_until_they_leave(
    predictor: HalfAnHour, expected: ExpectedRunTimes
) -> None:
    tasks = [
        msgspec.structs.replace(running(pending_job(number)), is_array=True, array_job_id=7) for number in (8, 9)
    ]
    expected.of(tasks, 10_000.0)
    assert predictor.running == {"8": 9000.0, "9": 9000.0}
    expected.of(tasks[1:], 10_000.0)
    assert predictor.running == {"9": 9000.0}
