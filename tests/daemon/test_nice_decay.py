"""When an added nice falls, by how much, and in how few calls: functions of values, and one Slurm that refuses."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import msgspec
import pytest

from rlalloc.config import Config, parse_config
from rlalloc.job import Shares
from rlalloc.store import Application, ApplicationState, JobHistory, Store
from rlalloc.urgency import UrgencyRules
from rlalloc.view import expected_run_time_s
from rlallocd.decisions.decisions import with_nice
from rlallocd.slurm import JobRecord, Slurm, UpdateRefused
from rlallocd.transactions import nice_decay
from rlallocd.transactions.nice_decay import Added, NiceDecay, added_by, nice_due, updates_for
from rlallocd.transactions.verification import AddedNice

from .hand_clock import HandClock
from .test_redecision_rules import EIGHT, decision_for, pending_job

SINCE_S = 1001
PATIENCE_S = 400.0
ADDED = Added(AddedNice(own=3, added=40), PATIENCE_S)
RULES = "[{name: llm, mode: enforce}]"
URGENCY = "urgency: {nice_band: 100}, redecision: {every_s: 10}"
CONFIG = parse_config(f"{{mode: enforce, rules: {RULES}, {URGENCY}}}", "test")


def niced(job_id: int = 7, nice: int = 43, **changes: object) -> JobRecord:
    record = pending_job(job_id)
    comment = f"{record.admin_comment} rlalloc-decision:of-{job_id}"
    return msgspec.structs.replace(record, nice=nice, admin_comment=comment, **changes)


def history_of(job: JobRecord, added: AddedNice = ADDED.nice, state: ApplicationState = "begun") -> JobHistory:
    decision = msgspec.structs.replace(
        decision_for(job), id=f"of-{job.job_id}", allocation=EIGHT, nice=added.added, patience_s=PATIENCE_S
    )
    application = Application(
        id=0,
        decision_id=decision.id,
        job_id=job.job_id,
        state=state,
        original=EIGHT,
        intended=EIGHT,
        begin_s=0,
        detail="",
        changed_s=0,
        own_nice=added.own,
        added_nice=added.added,
    )
    return JobHistory(decisions=(decision,), applications=(application,))


def test_what_is_added_at_the_decision() -> None:
    """A quarter of the band for an urgency of 0.75; patience is in run times of the decided size."""
    job, rules = pending_job(7), UrgencyRules(nice_band=80, patience=2)
    half = msgspec.structs.replace(EIGHT, gpus_per_node=4)
    decision = msgspec.structs.replace(decision_for(job), shares=Shares(0, 0, 0, 0.75), allocation=half)
    added = with_nice(decision, job, rules)
    assert (added.nice, added.patience_s) == (20, rules.patience_s(expected_run_time_s(decision, half)))
    assert added == msgspec.structs.replace(decision, nice=added.nice, patience_s=added.patience_s)
    most_urgent = msgspec.structs.replace(decision, shares=Shares(0, 0, 0, 1.0))
    assert with_nice(most_urgent, job, rules).nice == 0


def test_nothing_is_added_to_arrays_nor_where_it_is_not_allowed_or_nothing_was_decided() -> None:
    job, rules = pending_job(7), UrgencyRules(nice_band=80)
    decision = msgspec.structs.replace(decision_for(job), shares=Shares(0, 0, 0, 0), allocation=EIGHT)
    array = msgspec.structs.replace(job, is_array=True)
    left = msgspec.structs.replace(decision, allocation=None)
    assert with_nice(decision, job, UrgencyRules()) == decision
    assert with_nice(decision, array, rules) == decision
    assert with_nice(left, job, rules) == left


@pytest.mark.parametrize(
    ("waited_s", "due"), [(0, None), (99, None), (100, 33), (250, 23), (399, 13), (400, 3), (10_000, 3)]
)
def test_it_falls_by_quarters_to_the_jobs_own(waited_s: float, due: int | None) -> None:
    assert nice_due(niced(), ADDED, SINCE_S + waited_s, give_back=False) == due


def test_a_step_that_was_taken_is_not_due_again_and_none_is_ever_taken_back() -> None:
    assert nice_due(niced(nice=33), ADDED, SINCE_S + 100, give_back=False) is None
    assert nice_due(niced(nice=13), ADDED, SINCE_S + 100, give_back=False) is None


@pytest.mark.parametrize("nice", [3, 0, -5, 14, 44])
def test_a_nice_that_is_none_of_ours_stays(nice: int) -> None:
    assert nice_due(niced(nice=nice), ADDED, SINCE_S + 10_000, give_back=True) is None


def test_a_job_that_may_not_begin_yet_does_not_wait_and_a_requeued_one_has_its_turn() -> None:
    assert nice_due(niced(begin_s=SINCE_S + 500), ADDED, SINCE_S + 500, give_back=False) is None
    assert nice_due(niced(restarts=1), ADDED, SINCE_S, give_back=False) == 3
    assert nice_due(niced(), ADDED, SINCE_S, give_back=True) == 3


def test_what_was_added_is_told_once_the_update_has_come_to_its_end() -> None:
    assert added_by(history_of(niced())) == ADDED
    not_begun: tuple[ApplicationState, ...] = ("intended", "applied", "restoring", "restored", "left")
    for state in not_begun:
        assert added_by(history_of(niced(), state=state)) is None


def test_jobs_that_fall_to_the_same_number_share_a_call_and_the_oldest_come_first() -> None:
    jobs = [niced(job_id, submitted_s=1000 - job_id) for job_id in range(1, 6)]
    falls = updates_for({1: 5, 2: 9, 3: 5, 5: 9}, jobs, 100)
    assert [(update.nice, [job.job_id for job in update.jobs]) for update in falls] == [(9, [5, 2]), (5, [3, 1])]
    many = [niced(job_id) for job_id in range(120)]
    assert [len(update.jobs) for update in updates_for(dict.fromkeys(range(120), 5), many, 50)] == [50, 50, 20]


class Nices:
    """A slurmctld of which only nices are of interest; it refuses them where a site's plugin would."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[int], int]] = []
        self.refuses = False
        self.most_jobs = 100

    def set_nice(self, job_ids: Sequence[int], nice: int) -> None:
        self.calls.append((list(job_ids), nice))
        if self.refuses:
            raise UpdateRefused("no nice here")


def _nice_decay(slurm: Nices, store: Store, counters: Counter[str]) -> NiceDecay:
    return NiceDecay(cast("Slurm", slurm), store, counters)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(f"sqlite:///{tmp_path}/store.sqlite")
    yield store
    store.close()


def _keep(store: Store, jobs: Sequence[JobRecord]) -> None:
    for number, job in enumerate(jobs):
        history = history_of(job, AddedNice(own=3, added=4 * (number + 10)))
        store.add_decisions(history.decisions)
        store.journal(history.applications)


def _pending(count: int) -> list[JobRecord]:
    """Jobs that were all given another nice."""
    return [niced(job_id, nice=3 + 4 * (number + 10)) for number, job_id in enumerate(range(1, count + 1))]


def test_one_look_makes_so_many_calls_at_most(store: Store) -> None:
    slurm, counters = Nices(), Counter[str]()
    jobs = _pending(nice_decay.CALLS_PER_ROUND + 5)
    _keep(store, jobs)
    decay = _nice_decay(slurm, store, counters)
    for look, calls in ((1, nice_decay.CALLS_PER_ROUND), (2, 0)):  # the second comes too soon
        slurm.calls.clear()
        decay.decay(jobs, CONFIG, SINCE_S + 100 + look, set())
        assert len(slurm.calls) == calls
    assert counters["nice_decay_lowered"] == nice_decay.CALLS_PER_ROUND


def test_a_nice_that_never_comes_to_be_is_given_up(store: Store) -> None:
    slurm, counters = Nices(), Counter[str]()
    slurm.refuses = True
    jobs = _pending(1)
    _keep(store, jobs)
    clock = HandClock()
    decay = NiceDecay(cast("Slurm", slurm), store, counters, clock=clock)
    for look in range(nice_decay.TRIES + 2):
        clock.now_s = 10.0 * look
        decay.decay(jobs, CONFIG, SINCE_S + 101 + 10 * look, set())
    assert slurm.calls == [([1], 33)] * nice_decay.TRIES
    assert counters["nice_decay_stuck"] == 1


@pytest.mark.parametrize("step_s", [-86_400.0, 86_400.0])
def test_a_step_of_the_clock_does_not_put_a_look_off(store: Store, step_s: float) -> None:
    """Looks are paced by a clock that nobody sets; how long a job has waited is Slurm's time, and steps with it."""
    slurm, clock = Nices(), HandClock()
    jobs = _pending(1)
    _keep(store, jobs)
    decay = NiceDecay(cast("Slurm", slurm), store, Counter(), clock=clock)
    decay.decay(jobs, CONFIG, SINCE_S + 100, set())
    slurm.calls.clear()
    decay.decay(jobs, CONFIG, SINCE_S + 100 + max(0.0, step_s), set())
    assert slurm.calls == []  # too soon, whatever the clock on the wall says
    clock.now_s = CONFIG.redecision.every_s
    decay.decay(jobs, msgspec.structs.replace(CONFIG, mode="shadow"), SINCE_S + 100 + step_s, set())
    assert slurm.calls == [([1], 3)]


@pytest.mark.parametrize(
    "text",
    [
        f"{{mode: enforce, rules: {RULES}}}",
        f"{{mode: shadow, rules: {RULES}, urgency: {{nice_band: 100}}}}",
        "{mode: enforce, rules: [{name: other, mode: enforce}], urgency: {nice_band: 100}}",
    ],
)
def test_where_urgency_counts_no_more_all_is_given_back(store: Store, text: str) -> None:
    slurm = Nices()
    jobs = _pending(3)
    _keep(store, jobs)
    config: Config = parse_config(text, "test")
    _nice_decay(slurm, store, Counter()).decay(jobs, config, SINCE_S + 40.0, set())
    assert slurm.calls == [([1, 2, 3], 3)]


def test_a_job_with_an_open_update_is_left_alone(store: Store) -> None:
    slurm = Nices()
    jobs = _pending(2)
    _keep(store, jobs)
    _nice_decay(slurm, store, Counter()).decay(jobs, CONFIG, SINCE_S + 10_000.0, {1})
    assert slurm.calls == [([2], 3)]


def test_at_the_end_all_is_given_back_in_few_calls(store: Store) -> None:
    slurm = Nices()
    jobs = _pending(60)
    _keep(store, jobs)
    _nice_decay(slurm, store, Counter()).give_back(jobs, SINCE_S)
    assert [(len(job_ids), nice) for job_ids, nice in slurm.calls] == [(60, 3)]
