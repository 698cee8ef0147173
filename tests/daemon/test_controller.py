"""What a cycle reads of Slurm and takes from the cycle before, what it counts, and how it ends early."""

import errno
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np
import pytest

from rlalloc.config import Config, DaemonSection, PolicySection, StoreSection
from rlalloc.errors import LeaseLost, StoreError
from rlalloc.past_job import PastJob
from rlalloc.run_times.expert_mix import COLUMNS
from rlalloc.run_times.job_facts import JobFacts
from rlalloc.store import Store
from rlalloc.user_messages import AskSwitch, UserServiceError
from rlallocd.controller import Controller
from rlallocd.decisions.agent_client import AgentClient
from rlallocd.slurm import JOBS_PER_CALL, JobRecord, SlurmUnavailable
from rlallocd.transactions.left_alone import OffRequest
from tests.core.test_store import APPLICATION, DECISION
from tests.core.test_store_migrations import run_sql

from .slurm_in_memory import NODE, SlurmInMemory
from .test_redecision_rules import EIGHT, decision_for, pending_job
from .test_request_sizes_and_tags import ENFORCE


class MakeController(Protocol):
    def __call__(self, slurm: SlurmInMemory, **callbacks: Callable[..., object]) -> Controller: ...


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(
        runtime_directory=tmp_path,
        daemon=DaemonSection(heartbeat_s=0.001, outcomes_every_s=0.001),
        store=StoreSection(url=f"sqlite:///{tmp_path}/store.sqlite", key_file=tmp_path / "journal.key"),
    )


@pytest.fixture
def store(config: Config) -> Iterator[Store]:
    store = Store(config.store.url)
    yield store
    store.close()


@pytest.fixture
def make(config: Config, store: Store) -> Iterator[MakeController]:
    agent = AgentClient("ipc:///nowhere", 0.01)

    def make(slurm: SlurmInMemory, **callbacks: Callable[..., object]) -> Controller:
        return Controller(config, slurm, store, agent, **callbacks)  # type: ignore[arg-type]

    yield make
    agent.close()


def test_what_was_answered_is_kept_when_the_daemon_stops(make: MakeController, config: Config) -> None:
    facts = JobFacts(user="alice", submitted_s=1.0, nodes=1, cpus=8)
    controller = make(SlurmInMemory())
    given = controller._predictor._known.predictor.given
    given.remember([facts], np.ones((1, len(COLUMNS))))
    controller.stop()
    after = make(SlurmInMemory())._predictor._known.predictor.given
    assert after.packed(pseudonyms=False) == given.packed(pseudonyms=False)
    assert (config.store.key_file.parent / "run_time_answers").exists()


@pytest.mark.parametrize("error", [ValueError("a text that nobody thought of"), SlurmUnavailable("it is down")])
def test_a_stop_goes_on_whatever_a_reading_raises(
    make: MakeController, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    """The log shows where an error in rlalloc itself comes from."""

    def fails(_: str) -> None:
        raise error

    controller = make(SlurmInMemory(called=fails))
    kept: list[str] = []
    monkeypatch.setattr(controller, "keep_learned", lambda: kept.append("learned"))
    controller.stop()
    assert kept == ["learned"]
    (record,) = (record for record in caplog.records if "they begin by themselves within" in record.message)
    assert bool(record.exc_info) == isinstance(error, ValueError)


@pytest.mark.parametrize(
    ("usable", "awaited", "readings"), [(True, False, 1), (False, False, 3), (False, True, 3), (True, True, 3)]
)
def test_nodes_are_read_again_while_one_is_down_or_awaited(
    make: MakeController, *, usable: bool, awaited: bool, readings: int
) -> None:
    """One that has come up again must not be taken for down by the next job."""
    slurm = SlurmInMemory()
    slurm.node = msgspec.structs.replace(NODE, usable=usable, awaited=awaited)
    controller = make(slurm)
    for _ in range(3):
        assert not controller.cycle().failed
    assert slurm.calls["sinfo"] == readings


@pytest.mark.parametrize("step_s", [-86_400.0, 86_400.0])
def test_a_step_of_the_clock_does_not_stop_the_heartbeat(
    make: MakeController, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step_s: float
) -> None:
    controller = make(SlurmInMemory())
    controller.cycle()
    first = (tmp_path / "intercept").read_text()
    wall = time.time
    monkeypatch.setattr(time, "time", lambda: wall() + step_s)
    time.sleep(0.002)  # a heartbeat
    controller.cycle()
    then, now = (
        float(text.split("expires ")[1].split()[0]) for text in (first, (tmp_path / "intercept").read_text())
    )
    assert now - then == pytest.approx(step_s, abs=600)


def test_the_runtime_directory_is_named_where_it_is_at_fault(
    make: MakeController, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "intercept.new").mkdir()
    controller = make(SlurmInMemory())
    controller.cycle()
    assert controller.counters["runtime_directory_errors"] == 1
    assert f"cannot write {tmp_path}/intercept: Is a directory" in caplog.text


def test_without_a_task_prolog_nothing_is_enforced(
    make: MakeController, config: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As in shadow mode, and said; from the minute on in which slurm.conf names one, it is enforced."""
    slurm = SlurmInMemory()
    slurm.config = msgspec.structs.replace(slurm.config, has_task_prolog=False)
    controller = make(slurm)
    controller.reconfigure(msgspec.structs.replace(config, mode="enforce"))
    controller.cycle()
    assert controller.config.mode == "shadow"
    assert "rule llm shadow" in (tmp_path / "intercept").read_text()
    assert "slurm.conf names no TaskProlog" in caplog.text
    slurm.config = msgspec.structs.replace(slurm.config, has_task_prolog=True)
    controller.reconfigure(msgspec.structs.replace(config, mode="enforce"))
    controller.cycle()
    assert (controller.config.mode, controller.mode_reason) == ("enforce", "")
    assert "rule llm enforce" in (tmp_path / "intercept").read_text()


def test_another_error_of_the_operating_system_is_named_itself(
    make: MakeController, caplog: pytest.LogCaptureFixture
) -> None:
    """The runtime directory has nothing to do with it."""

    def no_memory(_command: str) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    controller = make(SlurmInMemory(called=no_memory))
    controller.cycle()
    assert controller.counters["runtime_directory_errors"] == 0
    assert controller.counters["system_errors"] == 1
    assert "Cannot allocate memory" in caplog.text


def test_a_fault_of_ours_does_not_end_the_daemon(make: MakeController, caplog: pytest.LogCaptureFixture) -> None:
    """Else each start would end in the same way, as long as that job waits."""

    def fault(_command: str) -> None:
        raise ValueError("something odd")

    slurm = SlurmInMemory(called=fault)
    controller = make(slurm)
    controller.cycle()
    assert controller.counters["internal_errors"] == 1
    assert "an error in rlalloc, jobs run as submitted: ValueError('something odd')" in caplog.text
    slurm.called = lambda _: None
    controller.cycle()
    assert controller.counters["internal_errors"] == 1


def test_calls_of_sacct_are_in_the_budget(make: MakeController, store: Store) -> None:
    """As many as there are, however many jobs have ended: the store gives a thousand at a time."""
    store.add_decisions(
        [
            msgspec.structs.replace(decision_for(pending_job(number)), id=str(number), decided_s=time.time())
            for number in range(1, 2 * JOBS_PER_CALL + 2)
        ]
    )
    slurm = SlurmInMemory()
    report = make(slurm).cycle()
    assert slurm.calls["sacct"] == 2
    assert report.calls == sum(slurm.calls.values())


@pytest.mark.parametrize(("state", "asks"), [("PENDING", False), ("RUNNING", False), ("COMPLETED", True)])
def test_of_a_job_that_is_in_the_queue_again_nobody_asks_for_the_outcome(
    make: MakeController, store: Store, state: str, *, asks: bool
) -> None:
    """Sacct calls its first run PREEMPTED, or NODE_FAIL: the job has not ended."""
    job = pending_job(7, submitted_s=int(time.time()) - 1000)
    store.add_decisions([msgspec.structs.replace(decision_for(job), decided_s=time.time())])
    again = msgspec.structs.replace(job, state=state, restarts=1, submitted_s=job.submitted_s + 500)
    slurm = SlurmInMemory([again])
    make(slurm).cycle()
    assert bool(slurm.calls["sacct"]) == asks


def test_the_heartbeat_does_not_wait_for_slurmdbd(make: MakeController, store: Store, tmp_path: Path) -> None:
    """Outcomes can wait, jobs cannot."""
    store.add_decisions([msgspec.structs.replace(decision_for(pending_job(1)), decided_s=time.time())])
    beats: list[bool] = []
    slurm = SlurmInMemory(
        called=lambda command: beats.append((tmp_path / "intercept").exists()) if command == "sacct" else None
    )
    make(slurm).cycle()
    assert beats == [True]


def test_without_slurmdbd_nobody_asks_sacct(make: MakeController, store: Store) -> None:
    """Sacct would fail, and the cycle would count as failed."""
    store.add_decisions([msgspec.structs.replace(decision_for(pending_job(1)), decided_s=time.time())])
    slurm = SlurmInMemory()
    slurm.config = msgspec.structs.replace(slurm.config, has_slurmdbd=False)
    slurm.errors |= {"sacct": 9, "sacct ended": 9}
    controller = make(slurm)
    assert not controller.cycle().failed
    assert not any(name.startswith("sacct") for name in slurm.calls)
    assert controller.counters["history_errors"] == 0


def test_the_past_is_read_after_what_has_just_ended(make: MakeController, store: Store) -> None:
    slurm = SlurmInMemory()
    controller = make(slurm)
    unread_s = partial(controller.metrics.registry.get_sample_value, "rlallocd_history_unread_seconds")
    assert not controller.cycle().failed
    assert unread_s() == 90 * 86400
    while not slurm.calls["sacct earlier"]:
        time.sleep(0.002)  # outcomes_every_s
        assert not controller.cycle().failed
    assert 4 <= slurm.calls["sacct ended"] <= 6  # the last day, an hour first
    assert unread_s() == pytest.approx(89 * 86400, abs=7200)


def test_one_unreadable_row_does_not_stop_the_cycle(config: Config, store: Store) -> None:
    """Neither a decision whose outcome is awaited nor an open entry of the journal: both are skipped and counted."""
    store.add_decisions([DECISION])
    store.journal([APPLICATION])
    changes = ("UPDATE decisions SET decided_s = 2e9, request = '{}'", "UPDATE applications SET intended = '[]'")
    run_sql(config.store.url, *changes)
    patient = Store(config.store.url, skip_unreadable=True)
    agent = AgentClient("ipc:///nowhere", 1.0)
    controller = Controller(config, SlurmInMemory(), patient, agent)  # type: ignore[arg-type]
    for _ in range(2):
        time.sleep(0.002)  # outcomes_every_s
        assert not controller.cycle().failed
    assert controller.counters["store_errors"] == 0
    assert controller.counters["unreadable_rows"] == 2
    agent.close()
    patient.close()


def test_a_decision_keeps_how_long_its_job_was_expected_to_run(config: Config, store: Store) -> None:
    """Also where no policy answered; what the reward divides by follows it."""
    now_s = time.time()
    job = pending_job(7, begin_s=int(now_s) + 3600, reason="BeginTime", time_limit_s=7200)
    tag = job.admin_comment.replace("begin=2000", f"begin={job.begin_s}")
    job = msgspec.structs.replace(job, admin_comment=tag)
    store.history.add(
        [
            PastJob(
                job_id=str(number),
                user=job.user,
                submitted_s=now_s - 2000,
                started_s=now_s - 1000,
                ended_s=now_s - 223,
                state="COMPLETED",
                nodes=1,
                cpus=8,
            )
            for number in range(100, 105)
        ]
    )
    agent = AgentClient("ipc:///nowhere", 0.01)
    known = msgspec.structs.replace(config, mode="enforce", rules=ENFORCE.rules)
    Controller(known, SlurmInMemory([job]), store, agent).cycle()  # type: ignore[arg-type]
    agent.close()
    (decision,) = store.decisions_of(7)
    assert decision.reason.startswith("no-agent")
    assert decision.run_time is not None
    assert decision.run_time.median_s == pytest.approx(777, abs=1)
    assert decision.reference_s == pytest.approx(777, abs=1)


def _deferred(job_id: int) -> JobRecord:
    """A job that waits for us for an hour."""
    grace_over_s = int(time.time()) + 3600
    job = pending_job(job_id, begin_s=grace_over_s, reason="BeginTime")
    tag = job.admin_comment.replace("begin=2000", f"begin={grace_over_s}")
    return msgspec.structs.replace(job, admin_comment=tag)


@pytest.mark.parametrize("step", ["open_applications", "add_decisions", "journal"])
def test_a_store_that_fails_keeps_no_job_waiting(
    config: Config, store: Store, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A full disk: all is let go at once, at its own begin time, and not after the grace; decided before or not."""
    slurm, agent = SlurmInMemory([_deferred(7), _deferred(8)]), AgentClient("ipc:///nowhere", 0.01)
    store.add_decisions([decision_for(_deferred(8))])

    def full(*_: object) -> None:
        raise StoreError("the disk is full")

    enforcing = msgspec.structs.replace(config, mode="enforce", rules=ENFORCE.rules)
    controller = Controller(enforcing, slurm, store, agent)  # type: ignore[arg-type]
    monkeypatch.setattr(store, step, full)
    controller.cycle()
    agent.close()
    assert controller.counters["store_errors"] == 1
    assert sorted(slurm.begun) == [7, 8]
    assert len(store.decisions_of(7)) == (step == "journal")


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (LeaseLost("the right to act could not be renewed"), "the cycle ended early: the right to act"),
        (ValueError("something odd"), "an error in rlalloc, jobs run as submitted: ValueError('something odd')"),
    ],
)
def test_what_fails_after_the_store_does_not_end_the_daemon(
    config: Config,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fault: Exception,
    said: str,
) -> None:
    """With two controllers, the lease is in the store that fails."""

    def full(*_: object) -> None:
        raise StoreError("the disk is full")

    def may_not() -> None:
        raise fault

    slurm, agent = SlurmInMemory([_deferred(7)]), AgentClient("ipc:///nowhere", 0.01)
    controller = Controller(config, slurm, store, agent)  # type: ignore[arg-type]
    monkeypatch.setattr(store, "open_applications", full)
    slurm.may_change = may_not
    controller.cycle()
    agent.close()
    assert controller.counters["store_errors"] == 1
    assert controller.counters["internal_errors"] == isinstance(fault, ValueError)
    assert said in caplog.text


def test_who_wants_a_job_left_alone_hears_of_a_fault_of_ours(make: MakeController) -> None:
    job = pending_job(7)
    slurm = SlurmInMemory([job])
    controller = make(slurm)

    def fault() -> None:
        raise ValueError("something odd")

    def cycle() -> None:
        controller.cycle()

    slurm.may_change = fault
    request = OffRequest(7, job.user, 1000, any_job=False)
    with pytest.raises(UserServiceError, match="try again later"):
        controller.off_requests.ask(request, 0.1, cycle)
    assert controller.counters["internal_errors"] == 1


def _asked(controller: Controller, *, off: bool, uid: int = 0, user: str = "root") -> str:
    """What somebody hears who uses the switch, and whom the next cycle answers."""
    question = AskSwitch(off, "it shrinks\x1b too much", "alice")
    return controller.switch.ask(question, uid, user, 1.0, lambda: [controller.cycle()])


def test_the_switch_lets_all_jobs_go_at_once_and_the_store_says_why(config: Config, store: Store) -> None:
    """Also where the daemon is started again meanwhile; only root and SlurmUser may use it."""
    agent = AgentClient("ipc:///nowhere", 0.01)
    enforcing = msgspec.structs.replace(
        config, mode="enforce", rules=ENFORCE.rules, policy=PolicySection(directory=config.runtime_directory)
    )
    slurm = SlurmInMemory([_deferred(7), pending_job(8, EIGHT)])
    slurm.config = msgspec.structs.replace(slurm.config, slurm_user="slurm")
    controller = Controller(enforcing, slurm, store, agent)  # type: ignore[arg-type]
    with pytest.raises(UserServiceError, match="only root and SlurmUser"):
        _asked(controller, off=True, uid=1234, user="mallory")
    assert controller.config.mode == "enforce"
    assert "and 1 that waited for rlallocd run as submitted" in _asked(controller, off=True)
    assert slurm.begun == [7]
    (decision,) = store.decisions_of(7)
    said = "switched off by alice as root (uid 0) because: it shrinks too much"
    assert decision.reason == f"switched-off: rlalloc was {said}".replace("\x1b", "")
    assert (controller.config.mode, controller.mode_reason) == ("off", said)
    intercept = config.runtime_directory / "intercept"
    assert "rule llm off" in intercept.read_text()
    again = Controller(enforcing, slurm, store, agent)  # type: ignore[arg-type]
    slurm.queue[9] = _deferred(9)
    again.cycle()
    assert slurm.begun == [7, 9]
    assert again.config.mode == "off"
    assert _asked(again, off=False, uid=61_235, user="slurm") == (
        "rlalloc is switched on for the whole site; mode enforce is in force"
    )
    assert "rule llm enforce" in intercept.read_text()
    agent.close()


def test_a_job_that_slurmctld_could_never_start_is_not_let_go(
    make: MakeController, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = pending_job(7, EIGHT)
    four = msgspec.structs.replace(EIGHT, gpus_per_node=4)
    decision = msgspec.structs.replace(decision_for(job), request=four)
    store.add_decisions([decision])
    applied = {"decision_id": decision.id, "state": "applied", "original": four, "intended": EIGHT, "record": None}
    store.journal([msgspec.structs.replace(APPLICATION, own_nice=None, added_nice=None, **applied)])
    slurm = SlurmInMemory([job])
    monkeypatch.setattr(slurm, "never_runs", lambda jobs: {each.job_id: "not available" for each in jobs})
    make(slurm).cycle()
    (entry,) = store.open_applications()
    assert (entry.state, slurm.begun) == ("restoring", [])
    assert entry.detail == "slurmctld says of the new size: not available"


@pytest.mark.parametrize("restarts", [0, 1])
def test_a_size_that_no_node_holds_is_taken_back_where_no_limits_are_enforced(
    make: MakeController, store: Store, restarts: int
) -> None:
    """Also from a job that was requeued, which gives it another submit time."""
    now_s = int(time.time())
    job = pending_job(7, EIGHT, reason="BadConstraints", priority=0, restarts=restarts, submitted_s=now_s - 1000)
    four = msgspec.structs.replace(EIGHT, gpus_per_node=4)
    decision = msgspec.structs.replace(decision_for(job), request=four, decided_s=now_s - 1000)
    store.add_decisions([decision])
    begun = msgspec.structs.replace(
        APPLICATION,
        decision_id=decision.id,
        state="begun",
        original=four,
        intended=EIGHT,
        changed_s=time.time() - 86400,
        record=None,
        own_nice=None,
        added_nice=None,
    )
    store.journal([begun])
    slurm = SlurmInMemory([msgspec.structs.replace(job, submitted_s=job.submitted_s + 500 * restarts)])
    make(slurm).cycle()
    assert slurm.calls["scontrol update"] > 0
    assert [each.state for each in store.open_applications()] == ["restoring"]


@pytest.mark.parametrize("submitted_days_ago", [1, 40])
def test_a_daemon_that_stops_gives_a_requeued_job_its_own_nice_back(
    make: MakeController, store: Store, submitted_days_ago: int
) -> None:
    """However long ago it was decided, in another run of the daemon."""
    submitted_s = int(time.time()) - submitted_days_ago * 86400
    job = pending_job(7, submitted_s=submitted_s, restarts=1, nice=9)
    job = msgspec.structs.replace(job, admin_comment=f"{job.admin_comment} rlalloc-decision:of-7")
    decision = msgspec.structs.replace(decision_for(job), decided_s=submitted_s, patience_s=1000.0)
    store.add_decisions([decision])
    store.journal([msgspec.structs.replace(APPLICATION, decision_id=decision.id, state="begun", record=None)])
    slurm = SlurmInMemory([msgspec.structs.replace(job, submitted_s=submitted_s + 500)])
    given: list[tuple[list[int], int]] = []
    slurm.set_nice = lambda job_ids, nice: given.append((job_ids, nice))  # type: ignore[attr-defined]
    make(slurm).stop()
    assert given == [([7], -3)]
